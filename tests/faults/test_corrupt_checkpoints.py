"""A corrupt checkpoint is an error if its numbers are passed on, else a warning."""

import dataclasses
import pathlib
import shutil
import subprocess
import sys

import pytest
from corruptions import swap_parts

from jaxsyn import export, train
from jaxsyn.errors import InputError
from jaxsyn.exporting import FORMATS


@dataclasses.dataclass(frozen=True)
class CorruptRun:
  """A run whose best checkpoint, of step 20, is corrupt.

  Attributes:
    folder: Run directory.
    file: The corrupt file.
    intact: Step of the newest intact checkpoint.
  """

  folder: pathlib.Path
  file: pathlib.Path
  intact: int = 10

  def check_message(self, message, remedy):
    assert "the best checkpoint, of step 20, is corrupt" in message
    assert str(self.file) in message
    assert remedy in message


def corrupt(path):
  path.write_bytes(swap_parts(path.read_bytes(), None))


@pytest.fixture
def corrupt_run(runs, tmp_path):
  """A run whose best checkpoint has a corrupt file of arrays."""
  folder = shutil.copytree(runs["pascal"], tmp_path / "corrupt")
  files = [p for p in (folder / "best" / "20").rglob("*") if p.is_file()]
  file = max(files, key=lambda path: path.stat().st_size)
  corrupt(file)
  shutil.rmtree(folder / "checkpoints" / "20")
  return CorruptRun(folder, file)


@pytest.mark.parametrize("format", FORMATS)
def test_export_rejects_a_corrupt_best_checkpoint(
  corrupt_run, tmp_path, format
):
  run = corrupt_run
  with pytest.raises(InputError) as error:
    export.run(run.folder, tmp_path / "out", format)
  run.check_message(str(error.value), f"--checkpoint={run.intact}.")
  assert not (tmp_path / "out").exists()


def test_export_rejects_a_missing_or_corrupt_checkpoint(runs, tmp_path):
  run = shutil.copytree(runs["pascal"], tmp_path / "run")
  shutil.rmtree(run / "best")
  with pytest.raises(InputError, match=r"of step 20, is corrupt or missing"):
    export.run(run, tmp_path / "out")
  metadata = run / "checkpoints" / "20" / "metadata.json"
  corrupt(metadata)
  with pytest.raises(InputError) as error:
    export.run(run, tmp_path / "out", checkpoint="last")
  assert str(metadata) in str(error.value)
  assert str(error.value).endswith("--checkpoint=10.")
  assert not (tmp_path / "out").exists()


def test_training_rejects_a_corrupt_teacher(corrupt_run, tiny, tmp_path):
  run, config = corrupt_run, tiny("distilled_words")
  config.losses.word_distillation.teacher = str(run.folder)
  with pytest.raises(InputError) as error:
    train.run(config, tmp_path / "run")
  remedy = f"--config.losses.word_distillation.checkpoint={run.intact}."
  run.check_message(str(error.value), remedy)
  assert not (tmp_path / "run").exists()


def test_a_warm_start_warns_of_a_corrupt_best_checkpoint(
  corrupt_run, tiny, tmp_path, capsys
):
  run, config = corrupt_run, tiny("pascal")
  config.batch.shapes = 1
  config.train.start.run = str(run.folder)
  config.train.update(steps=1, evaluate_every=9, selection="log_likelihood")
  train.run(config, tmp_path / "run")
  used = f"the checkpoint of step {run.intact} is used instead"
  run.check_message(capsys.readouterr().err, used)
  assert used in (tmp_path / "run" / "start.json").read_text()


def test_translation_warns_of_a_corrupt_best_checkpoint(
  corrupt_run, environment
):
  done = subprocess.run(
    [
      sys.executable,
      "-m",
      "jaxsyn.translate",
      "--workdir",
      str(corrupt_run.folder),
    ],
    env=environment,
    input="the small dog sees a cat .\n",
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0 and done.stdout.strip()
  used = f"the checkpoint of step {corrupt_run.intact} is used instead"
  corrupt_run.check_message(done.stderr, used)
