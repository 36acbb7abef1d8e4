"""A comparison on data of which optional test splits were left out."""

import pytest
from raw_corpora import corpus

from jaxsyn import compare
from jaxsyn.comparison import planned_jobs, results
from jaxsyn.configs import systems
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


def prepared(tmp_path, tests):
  """A config, prepared, whose test split `late` has no files."""
  config = corpus(tmp_path)
  config.prepare.splits.late = ("late.en", "late.de")
  config.prepare.parse.source_conllu = {}
  config.prepare.parse.sides = ()
  config.prepare.optional = ("late",)
  config.data.test = tests
  build.run(config)
  config.update_from_flattened_dict(SIZES)
  return systems.apply(config, "transformer")


def test_scores_the_prepared_splits_and_names_the_others(tmp_path, capfd):
  config = prepared(tmp_path, ("test", "late"))
  folder = tmp_path / "compared"
  settings = Settings(metrics=("chrf",))
  result = compare.run({"transformer": config}, folder, 1, settings=settings)
  assert [split.name for split in result.results.splits] == ["test"]
  assert "test splits without files: late" in capfd.readouterr().out
  stored = results.from_json((folder / results.FILE).read_text())
  assert stored.systems[0].data.left_out == ("late",)
  for name in ("report.md", "report.html"):
    text = (folder / name).read_text()
    assert "Test sets left out, since their files were not there: late" in text
  assert [p.name for p in folder.glob("*/seed_0/test/*")] == ["test.txt"]
  output = (folder / "transformer" / "seed_0" / "output.txt").read_text()
  assert "nothing can be compared" not in output
  # The same command again finds its own settings.
  again = compare.run({"transformer": config}, folder, 1, settings=settings)
  assert again.results.splits == result.results.splits


def test_all_left_out_is_an_error_before_anything_is_trained(tmp_path):
  config = prepared(tmp_path, ("late",))
  with pytest.raises(
    InputError, match=r"all splits of config\.data\.test .*late"
  ):
    compare.run({"transformer": config}, tmp_path / "compared", 1)
  assert not (tmp_path / "compared" / planned_jobs.FILE).exists()
