"""Systems that cannot be trained are rejected before any training."""

import re

import pytest

from jaxsyn import compare
from jaxsyn.comparison import planned_jobs
from jaxsyn.config import read_config
from jaxsyn.configs.papers import pascal
from jaxsyn.errors import InputError

RESULTS, LAYERS = pascal.TABLES["results"], pascal.TABLES["layers"]
ROWS = {"layer_1": LAYERS, "layer_5": LAYERS, "layer_6": LAYERS}
ROWS |= {"transformer": RESULTS, "multitask": RESULTS}


@pytest.mark.parametrize(
  ("names", "message", "invalid"),
  [
    (
      ("transformer", "multitask"),
      r"^multitask: config\.data\.second\.task='parse' needs constituency"
      r" trees .*config\.prepare\.parse\.source_brackets",
      [],
    ),
    (
      ("transformer", "layer_1", "layer_5", "layer_6", "multitask"),
      r"^3 of 5 systems cannot",
      ["layer_5", "layer_6", "multitask"],
    ),
  ],
)
def test_names_all_systems_that_cannot_be_trained(
  tiny, tmp_path, names, message, invalid
):
  """The prepared data has no constituency trees; the models have two layers."""
  systems = [
    planned_jobs.System(
      name, read_config(ROWS[name].row(name).on(tiny("transformer")))
    )
    for name in names
  ]
  with pytest.raises(InputError, match=message) as error:
    compare.run(systems, tmp_path / "compared", 1)
  lines = re.findall(r"^  (\w+): ", str(error.value), re.MULTILINE)
  assert lines == invalid
  assert not (tmp_path / "compared" / planned_jobs.FILE).exists()
