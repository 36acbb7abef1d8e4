"""A data set of two plain files: what configs/own.py makes of their names."""

import pytest

from jaxsyn.configs import own
from jaxsyn.errors import InputError
from jaxsyn.preprocess import reading


def test_splits_follow_each_other_and_leave_nothing_out():
  config = own.corpus(("corpus.en", "corpus.fr"), held_out=2)
  chosen = []
  for name in ("validation", "test", "train"):
    *files, lines = config.prepare.splits[name]
    assert files == ["corpus.en", "corpus.fr"]
    chosen += reading.line_range(lines, 7, name)
  assert chosen == [*range(7)]


def test_names_say_languages_folder_and_data_set():
  config = own.get_config(
    "pascal", files=("raw/Web-1.zh_Hant.gz", "raw/Web-1.en")
  )
  data = config.data
  assert (data.source_language, data.target_language) == ("zh_Hant", "en")
  assert (
    data.name == "web_1_zh_hant_en" and data.directory == f"data/{data.name}"
  )
  assert config.system == "pascal" and config.parts.encoder.parent_scaled


@pytest.mark.parametrize("name", ["corpus", ".en", "corpus.gz"])
def test_a_name_without_a_language_is_refused(name):
  with pytest.raises(InputError, match=f"^{name}: call it NAME.LANGUAGE"):
    own.corpus((name, "corpus.fr"))


def test_too_few_lines_are_told():
  lines = own.corpus(("corpus.en", "corpus.fr")).prepare.splits.train[2]
  with pytest.raises(InputError, match="FIRST- to the last, of 1 to 600 as"):
    reading.line_range(lines, 600, "train")
