"""A corrupt checkpoint is an error if its numbers are passed on, else a warning."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys

import pytest

from jaxsyn import export, train
from jaxsyn.errors import InputError
from jaxsyn.exporting import FORMATS


def flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 0x10
  path.write_bytes(data)


CORRUPTIONS = {
  "flip": flip,
  "truncate": lambda path: os.truncate(path, path.stat().st_size // 2),
  "delete": lambda path: path.unlink(),
}


@dataclasses.dataclass(frozen=True)
class CorruptRun:
  """A run whose best checkpoint, of step 20, is corrupt.

  Attributes:
    folder: Run directory.
    file: The corrupt file.
    intact: Step of the newest intact checkpoint.
  """

  folder: os.PathLike
  file: os.PathLike
  intact: int = 10

  def check_message(self, message, remedy):
    assert "the best checkpoint, of step 20, is corrupt" in message
    assert str(self.file) in message
    assert remedy in message


@pytest.fixture
def corrupt_run(runs, tmp_path):
  """A function (corruption, metadata) -> a run with a corrupt best checkpoint."""

  def make(corruption="flip", metadata=False):
    folder = tmp_path / f"pascal {corruption} {metadata}"
    shutil.copytree(runs["pascal"], folder)
    best = folder / "best" / "20"
    files = [path for path in best.rglob("*") if path.is_file()]
    file = max(files, key=lambda path: path.stat().st_size)
    if metadata:
      file = best / "metadata.json"
    CORRUPTIONS[corruption](file)
    shutil.rmtree(folder / "checkpoints" / "20")
    return CorruptRun(folder, file)

  return make


@pytest.mark.parametrize(
  ("format", "corruption", "metadata"),
  [
    *((format, "flip", False) for format in FORMATS),
    *(("safetensors", corruption, True) for corruption in CORRUPTIONS),
  ],
)
def test_export_rejects_a_corrupt_best_checkpoint(
  corrupt_run, tmp_path, format, corruption, metadata
):
  run = corrupt_run(corruption, metadata)
  with pytest.raises(InputError) as error:
    export.run(run.folder, tmp_path / "out", format)
  run.check_message(str(error.value), f"--checkpoint={run.intact}.")
  assert not (tmp_path / "out").exists()


def test_export_rejects_a_missing_or_corrupt_checkpoint(runs, tmp_path):
  run = shutil.copytree(runs["pascal"], tmp_path / "run")
  shutil.rmtree(run / "best")
  with pytest.raises(InputError, match=r"of step 20, is corrupt or missing"):
    export.run(run, tmp_path / "out")
  newest = run / "checkpoints" / "20"
  flip(newest / "metadata.json")
  with pytest.raises(InputError) as error:
    export.run(run, tmp_path / "out", checkpoint="last")
  assert str(newest / "metadata.json") in str(error.value)
  assert str(error.value).endswith("--checkpoint=10.")
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
  ("system", "loss"),
  [("distilled", "distillation"), ("distilled_words", "word_distillation")],
)
def test_training_rejects_a_corrupt_teacher(
  corrupt_run, tiny, tmp_path, system, loss
):
  run, config = corrupt_run(), tiny(system)
  config.losses[loss].teacher = str(run.folder)
  with pytest.raises(InputError) as error:
    train.run(config, tmp_path / "run")
  remedy = f"--config.losses.{loss}.checkpoint={run.intact}."
  run.check_message(str(error.value), remedy)
  assert not (tmp_path / "run").exists()


def test_a_warm_start_warns_of_a_corrupt_best_checkpoint(
  corrupt_run, tiny, tmp_path, capsys
):
  run, config = corrupt_run(), tiny("pascal")
  config.batch.shapes = 1
  config.train.start.run = str(run.folder)
  config.train.update(steps=1, evaluate_every=9, selection="log_likelihood")
  train.run(config, tmp_path / "run")
  used = f"the checkpoint of step {run.intact} is used instead"
  run.check_message(capsys.readouterr().err, used)
  assert used in (tmp_path / "run" / "start.json").read_text()


@pytest.mark.parametrize("command", ["translate", "serve"])
def test_commands_warn_of_a_corrupt_best_checkpoint(
  corrupt_run, tmp_path, environment, command
):
  run = corrupt_run()
  words = ["--workdir", str(run.folder)]
  if command == "serve":
    words = [str(run.folder), "--port", "0", "--compile", "0"]
  process = subprocess.Popen(
    [sys.executable, "-m", f"jaxsyn.{command}", *words],
    env=environment,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  try:
    if command == "translate":
      process.stdin.write("the small dog sees a cat .\n")
      process.stdin.close()
    assert process.stdout.readline().strip()
  finally:
    process.send_signal(signal.SIGINT)
    process.stdin = None
    _, message = process.communicate(timeout=60)
  used = f"the checkpoint of step {run.intact} is used instead"
  run.check_message(message, used)
