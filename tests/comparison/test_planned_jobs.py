"""Systems that the prepared data does not allow, and optional test splits."""

import re

import pytest
from raw_corpora import corpus

from jaxsyn import cli, compare
from jaxsyn.comparison import planned_jobs, results
from jaxsyn.config import read_config
from jaxsyn.configs import base, systems
from jaxsyn.configs.papers import pascal
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build
from jaxsyn.scoring.settings import Settings

SIZES = {
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.width": 32,
  "model.transformer.feed_forward": 32,
  "batch.tokens": 512,
  "batch.shapes": 1,
  "decode.beam": 1,
  "train.steps": 4,
  "train.evaluate_every": 4,
  "train.validation_sentences": 1,
  "train.save_every": 4,
  "train.log_every": 2,
}


@pytest.fixture(scope="module")
def optional(tmp_path_factory):
  """A config of prepared data whose optional test split has no files."""
  config = corpus(tmp_path_factory.mktemp("optional"))
  config.prepare.splits.late = ("late.en", "late.de")
  config.prepare.parse.source_conllu = {}
  config.prepare.parse.sides = ()
  config.prepare.optional = ("late",)
  config.data.test = ("test", "late")
  build.run(config)
  config.update_from_flattened_dict(SIZES)
  return systems.apply(config, "transformer")


def test_scores_the_prepared_splits_and_names_the_others(
  optional, tmp_path, capfd
):
  folder = tmp_path / "compared"
  settings = Settings(metrics=("chrf",))
  result = compare.run({"transformer": optional}, folder, 1, settings=settings)
  assert [split.name for split in result.results.splits] == ["test"]
  assert "test splits without files: late" in capfd.readouterr().out
  stored = results.from_json((folder / results.FILE).read_text())
  assert stored.systems[0].data.left_out == ("late",)
  for name in ("report.md", "report.html"):
    assert "Test sets without files: late" in (folder / name).read_text()
  assert [p.name for p in folder.glob("*/seed_0/test/*")] == ["test.txt"]
  again = compare.run({"transformer": optional}, folder, 1, settings=settings)
  assert again.results.splits == result.results.splits
  optional.data.test = ("late",)
  with pytest.raises(InputError, match=r"all splits of config\.data\.test"):
    compare.run({"transformer": optional}, tmp_path / "other", 1)
  assert not (tmp_path / "other" / planned_jobs.FILE).exists()


@pytest.fixture(scope="module")
def system_of(tmp_path_factory):
  """A function: row of a table -> system on data without constituency trees."""
  folder = build.run(corpus(tmp_path_factory.mktemp("rows")))

  def make(row):
    config = base.data_set("toy", "en", "de")
    config.data.update(directory=str(folder), validation="test")
    config = row.on(systems.apply(config, "transformer"))
    return planned_jobs.System(row.name, read_config(config))

  return make


def test_names_the_only_system_that_cannot_be_trained(system_of, tmp_path):
  inputs = [system_of(row) for row in pascal.TABLES["results"].rows]
  message = (
    r"^multitask: config\.data\.second\.task='parse' needs constituency"
    r" trees .*config\.prepare\.parse\.source_brackets"
  )
  with pytest.raises(InputError, match=message):
    compare.run(inputs, tmp_path / "compared", 1)
  assert not (tmp_path / "compared" / planned_jobs.FILE).exists()


def test_names_all_systems_that_cannot_be_trained(system_of, tmp_path):
  table, layers = pascal.TABLES["results"], pascal.TABLES["layers"]
  rows = [table.row("transformer")]
  rows += [layers.row(f"layer_{n}") for n in (1, 5, 6)]
  rows.append(table.row("multitask"))
  with pytest.raises(InputError, match=r"^3 of 5 systems cannot") as error:
    compare.run([system_of(row) for row in rows], tmp_path / "compared", 1)
  matches = re.findall(r"^  (\w+): ", str(error.value), re.MULTILINE)
  assert matches == ["layer_5", "layer_6", "multitask"]


def test_error_explains_how_to_set_an_option_of_one_system():
  config, path = base.get_config(), "parts.encoder.dasa.strength"
  message = (
    f'not all systems have; set it for one: --systems "NAME=SYSTEM,{path}='
  )
  with pytest.raises(InputError, match=re.escape(message)):
    cli.check_option(config, path, multiple=True)
  with pytest.raises(InputError, match="after ':' in --config"):
    cli.check_option(config, path)
