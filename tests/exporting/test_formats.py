"""What `jaxsyn.export` says before it opens a model."""

import pytest

from jaxsyn import export
from jaxsyn.errors import InputError
from jaxsyn.exporting import FORMATS, PAGES


def test_each_format_has_a_page_by_which_it_is_whole():
  assert set(FORMATS) == set(PAGES)


@pytest.mark.parametrize("format", FORMATS)
def test_rejects_folders_that_are_not_runs(format, tmp_path):
  with pytest.raises(InputError, match="is not the folder of a run"):
    export.run(tmp_path, tmp_path / "out", format)
  assert not (tmp_path / "out").exists()
