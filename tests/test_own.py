"""Tests the config of two plain files, configs/own.py."""

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


def test_file_names_determine_languages_folder_and_dataset():
  config = own.get_config(
    "pascal", files=("raw/Web-1.zh_Hant.gz", "raw/Web-1.en")
  )
  data = config.data
  assert (data.source_language, data.target_language) == ("zh_Hant", "en")
  assert data.name == "web_1_zh_hant_en"
  assert data.directory == "data/web_1_zh_hant_en"
  assert config.system == "pascal" and config.parts.encoder.parent_scaled


@pytest.mark.parametrize("name", ["corpus", ".en", "corpus.gz"])
def test_rejects_a_name_without_a_language(name):
  with pytest.raises(InputError, match=f"^{name}: call it NAME.LANGUAGE"):
    own.corpus((name, "corpus.fr"))
