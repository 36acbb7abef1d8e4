"""A corrupt checkpoint is an error where its numbers are passed on, else a warning."""

import dataclasses
import importlib.util
import os
import shutil
import signal
import subprocess
import sys

import pytest

from jaxsyn import export, train
from jaxsyn.errors import InputError
from jaxsyn.exporting import FORMATS

LINE = "the small dog sees a cat .\n"


def flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 0x10
  path.write_bytes(data)


DAMAGES = {
  "flipped": flip,
  "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
  "deleted": lambda path: path.unlink(),
}


@dataclasses.dataclass(frozen=True)
class Damaged:
  """A run whose best checkpoint is corrupt.

  Attributes:
    folder: run directory.
    step: step of its best checkpoint.
    file: the corrupt file.
    intact: step of the nearest intact checkpoint.
  """

  folder: os.PathLike
  step: int
  file: os.PathLike
  intact: int


@pytest.fixture
def damaged(runs, tmp_path):
  """A function (damage, system, page) -> a run with a corrupt best checkpoint."""

  def make(damage="flipped", system="pascal", page=False):
    folder = tmp_path / f"{system} {damage} {page}"
    shutil.copytree(runs[system], folder)
    (best,) = (folder / "best").iterdir()
    files = [path for path in best.rglob("*") if path.is_file()]
    file = max(files, key=lambda path: path.stat().st_size)
    if page:
      file = best / "metadata.json"
    DAMAGES[damage](file)
    shutil.rmtree(folder / "checkpoints" / "20")
    assert best.name == "20"
    return Damaged(folder, 20, file, 10)

  return make


def command(environment, *words, **options):
  return subprocess.run(
    [sys.executable, "-m", *map(str, words)],
    env=environment,
    capture_output=True,
    text=True,
    check=False,
    **options,
  )


def check_message(message, run, remedy):
  """Asserts that a message names the step, the file and the remedy."""
  assert f"the best checkpoint, of step {run.step}, is corrupt" in message
  assert str(run.file) in message
  assert remedy in message


@pytest.mark.parametrize(
  ("format", "damage", "page"),
  [
    *((format, "flipped", False) for format in FORMATS),
    *(("safetensors", damage, True) for damage in DAMAGES),
    ("safetensors", "deleted", False),
  ],
)
def test_export_rejects_a_corrupt_best_checkpoint(
  damaged, tmp_path, format, damage, page
):
  run = damaged(damage, page=page)
  with pytest.raises(InputError) as error:
    export.run(run.folder, tmp_path / "out", format)
  check_message(str(error.value), run, f"--checkpoint={run.intact}.")
  assert not (tmp_path / "out").exists()


def test_export_rejects_a_missing_best_checkpoint(runs, tmp_path):
  shutil.copytree(runs["pascal"], tmp_path / "run")
  shutil.rmtree(tmp_path / "run" / "best")
  with pytest.raises(InputError, match=r"of step 20, is corrupt or missing"):
    export.run(tmp_path / "run", tmp_path / "out")
  assert not (tmp_path / "out").exists()


def test_export_rejects_a_corrupt_last_checkpoint(runs, tmp_path):
  shutil.copytree(runs["pascal"], tmp_path / "run")
  newest = max((tmp_path / "run/checkpoints").iterdir(), key=lambda p: p.name)
  flip(newest / "metadata.json")
  with pytest.raises(InputError) as error:
    export.run(tmp_path / "run", tmp_path / "out", checkpoint="last")
  assert str(newest / "metadata.json") in str(error.value)
  assert str(error.value).endswith("--checkpoint=10.")
  assert not (tmp_path / "out").exists()


def test_export_command_fails_and_its_remedy_works(
  damaged, tmp_path, environment
):
  if importlib.util.find_spec("safetensors") is None:
    pytest.skip("extra hub")
  run, out = damaged(), tmp_path / "out"
  words = ("jaxsyn.export", "--workdir", run.folder, "--output", out)
  done = command(environment, *words)
  assert (done.returncode, done.stdout) == (2, "")
  check_message(done.stderr, run, remedy := f"--checkpoint={run.intact}")
  assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr
  assert not out.exists()
  export.run(run.folder, out, checkpoint=remedy.partition("=")[2])
  assert (out / "model.safetensors").is_file()


@pytest.mark.parametrize(
  ("system", "loss"),
  [("distilled", "distillation"), ("distilled_words", "word_distillation")],
)
def test_teachers_reject_a_corrupt_best_checkpoint(
  damaged, tiny, tmp_path, system, loss
):
  run, config = damaged(), tiny(system)
  config.losses[loss].teacher = str(run.folder)
  with pytest.raises(InputError) as error:
    train.run(config, tmp_path / "run")
  remedy = f"--config.losses.{loss}.checkpoint={run.intact}."
  check_message(str(error.value), run, remedy)
  assert not (tmp_path / "run").exists()


def test_a_resumed_run_rejects_a_corrupt_teacher(damaged, tiny, runs, tmp_path):
  run, config = damaged(), tiny("distilled")
  shutil.copytree(runs["pascal"], tmp_path / "teacher")
  config.losses.distillation.teacher = str(tmp_path / "teacher")
  config.batch.shapes = 1
  config.train.update(steps=2, evaluate_every=2, selection="log_likelihood")
  train.run(config, tmp_path / "run")
  file = tmp_path / "teacher" / run.file.relative_to(run.folder)
  shutil.copy(run.file, file)
  config.train.steps = 4
  with pytest.raises(InputError) as error:
    train.run(config, tmp_path / "run")
  remedy = "--config.losses.distillation.checkpoint=20."  # the same parameters
  check_message(str(error.value), dataclasses.replace(run, file=file), remedy)
  assert sorted(p.name for p in (tmp_path / "run/checkpoints").iterdir()) == [
    "2"
  ]


def test_a_warm_start_warns_of_a_corrupt_best_checkpoint(
  damaged, tiny, tmp_path, capsys
):
  run, config = damaged(), tiny("pascal")
  config.batch.shapes = 1
  config.train.start.run = str(run.folder)
  config.train.update(steps=1, evaluate_every=9, selection="log_likelihood")
  train.run(config, tmp_path / "run")
  output = capsys.readouterr()
  assert output.err.startswith(f"warning: {run.folder}: ")
  used = f"the checkpoint of step {run.intact} is used instead"
  check_message(output.err, run, used)
  assert used in (tmp_path / "run" / "start.json").read_text()


def test_translate_warns_of_a_corrupt_best_checkpoint(
  damaged, tmp_path, environment
):
  run, name = damaged(), "translate"
  (tmp_path / "lines").write_text(LINE)
  words = (f"jaxsyn.{name}", "--workdir", run.folder, "--input")
  words += (tmp_path / "lines", "--output", tmp_path / name)
  done = command(environment, *words)
  assert done.returncode == 0, done.stderr
  assert f"warning: {run.folder}: " in done.stderr
  used = f"the checkpoint of step {run.intact} is used instead"
  check_message(done.stderr, run, used)
  assert (tmp_path / name).exists()


def test_serve_warns_of_a_corrupt_best_checkpoint(damaged, environment):
  run = damaged()
  words = ("jaxsyn.serve", str(run.folder), "--port", "0", "--compile", "0")
  process = subprocess.Popen(
    [sys.executable, "-m", *words],
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  try:
    assert process.stdout.readline().startswith("serving ")
  finally:
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
  used = f"the checkpoint of step {run.intact} is used instead"
  check_message(message, run, used)
