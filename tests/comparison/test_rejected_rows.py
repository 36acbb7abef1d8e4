"""Rows that the prepared data does not allow, rejected before any is trained."""

import re

import pytest
from raw_corpora import corpus

from jaxsyn import cli, compare
from jaxsyn.comparison import planned_jobs
from jaxsyn.config import read_config
from jaxsyn.configs import base, systems
from jaxsyn.configs.papers import pascal
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Data with dependency trees, without constituency trees."""
  return build.run(corpus(tmp_path_factory.mktemp("rows")))


def system_of(row, folder, **options):
  config = corpus_config(folder)
  config = row.on(config)
  for name, value in options.items():
    cli.set_option(config, name.replace("__", "."), value)
  return planned_jobs.System(row.name, read_config(config))


def corpus_config(folder):
  config = base.data_set("toy", "en", "de")
  config.data.update(directory=str(folder), validation="test")
  return systems.apply(config, "transformer")


def test_multitask_without_constituency_trees_is_the_only_fault(
  folder, tmp_path
):
  rows = pascal.TABLES["results"].rows
  inputs = [system_of(row, folder) for row in rows]
  with pytest.raises(
    InputError,
    match=r"^multitask: config\.data\.second\.task='parse' needs constituency"
    r" trees .*config\.prepare\.parse\.source_brackets",
  ):
    compare.run(inputs, tmp_path / "compared", 1)
  assert not (tmp_path / "compared" / planned_jobs.FILE).exists()


def test_every_row_that_cannot_be_trained_is_named(folder, tmp_path):
  results = pascal.TABLES["results"]
  layers = pascal.TABLES["layers"]
  inputs = [system_of(results.row("transformer"), folder)]
  inputs += [system_of(layers.row(f"layer_{n}"), folder) for n in (1, 5, 6)]
  inputs.append(system_of(results.row("multitask"), folder))
  with pytest.raises(InputError, match=r"^3 of 5 systems cannot") as error:
    compare.run(inputs, tmp_path / "compared", 1)
  matches = re.findall(r"^  (\w+): ", str(error.value), re.MULTILINE)
  assert matches == ["layer_5", "layer_6", "multitask"]
  assert not (tmp_path / "compared" / planned_jobs.FILE).exists()
