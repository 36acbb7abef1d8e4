"""Commands that are killed at random moments and started again.

In the end the files must equal those of a command that was never killed: all files of
a dataset directory, and the train state and the log of a run. The suite kills each
command twice; JAXSYN_EXHAUSTIVE=1 kills it twenty times.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
from raw_corpora import corpus, records_of

from jaxsyn.storage import checksums

ROOT = pathlib.Path(__file__).parents[2]
EXHAUSTIVE = os.environ.get("JAXSYN_EXHAUSTIVE") == "1"
SEEDS = range(10 if EXHAUSTIVE else 1)
SIGNALS = (signal.SIGTERM, signal.SIGINT)
TIMEOUT = 300.0  # seconds


@dataclasses.dataclass(frozen=True)
class Command:
  """A command that is killed.

  Attributes:
    arguments: Function from the output folder to the command line.
    progress: Pattern of files that appear in the folder during the work.
    seconds: Time after the first of these files in which the signal is sent.
    result: Function from the output folder to what must be equal.
  """

  arguments: Callable[[pathlib.Path], list[str]]
  progress: str
  seconds: float
  result: Callable[[pathlib.Path], object]


# Fields of log records that depend on the time.
TIMES = {
  "time",
  "minutes",
  "eta_minutes",
  "tokens_per_s",
  "waiting",
  "flops",
  "mfu",
  "seconds",
}


def log_records(workdir: pathlib.Path) -> list[dict]:
  """Returns the records of the log of a run, without times."""
  lines = (workdir / "log.jsonl").read_text().splitlines()
  return [
    {k: v for k, v in json.loads(line).items() if k not in TIMES}
    for line in lines
  ]


def train_state(workdir: pathlib.Path) -> object:
  """Returns the log of a run, and step, arrays and progress of its end."""
  import jax
  import orbax.checkpoint as ocp

  folder = workdir / "checkpoints"
  step = max(int(path.name) for path in folder.iterdir() if path.name.isdigit())
  with ocp.StandardCheckpointer() as reader:
    state = reader.restore(folder / str(step) / "state")
  leaves, structure = jax.tree.flatten(state)
  record = json.loads((folder / str(step) / "metadata.json").read_text())
  progress = record["content"]
  del progress["minutes"], progress["window"]["seconds"]
  arrays = [
    (array.dtype.str, array.shape, array.tobytes())
    for array in map(np.asarray, leaves)
  ]
  return step, arrays, str(structure), progress, log_records(workdir)


def dataset_files(directory: pathlib.Path) -> object:
  """Returns the files of a dataset directory, and its manifest without times."""
  manifest = json.loads((directory / "manifest.json").read_text())
  content = checksums.verify_checksum(manifest)
  del content["seconds"]
  return records_of(directory), content


def wait_for_progress(process, folder: pathlib.Path, pattern: str) -> None:
  """Waits until a new file appears in a folder, or the process ends."""
  before, start = set(folder.glob(pattern)), time.monotonic()
  while process.poll() is None and set(folder.glob(pattern)) <= before:
    assert time.monotonic() - start < TIMEOUT, "no progress"
    time.sleep(0.005)


def run(
  command: Command, folder: pathlib.Path, environment, kill=None, rng=None
) -> bool:
  """Runs a command, and sends it a signal at a random moment if one is given.

  Returns:
    Whether the command ended by itself.
  """
  process = subprocess.Popen(
    command.arguments(folder),
    cwd=ROOT,
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  sent = None
  try:
    if kill is not None:
      wait_for_progress(process, folder, command.progress)
      time.sleep(rng.random() * command.seconds)
      if process.poll() is None:
        sent = kill
        process.send_signal(sent)
    output, _ = process.communicate(timeout=TIMEOUT)
  finally:
    process.kill()
    process.wait()
  assert "Traceback" not in output, output
  allowed = {0} if sent is None else {0, -sent, 128 + sent}
  assert process.returncode in allowed, output
  if "stopped at step" in output:
    assert "To resume: python -m jaxsyn.train" in output
  return sent is None


@dataclasses.dataclass(frozen=True)
class Intact:
  """A command, and its result when it is not killed."""

  command: Command
  result: object


def check_kills(intact: Intact, folder, environment, seed: int) -> None:
  """Asserts that a command that is interrupted twice has the same result."""
  rng = np.random.default_rng(seed)
  for kill in (signal.SIGKILL, SIGNALS[int(rng.integers(2))]):
    if run(intact.command, folder, environment, kill, rng):
      break  # it ended before the signal
  assert run(intact.command, folder, environment)
  assert intact.command.result(folder) == intact.result


@pytest.fixture(scope="module")
def preparation(tmp_path_factory, environment) -> Intact:
  folder = tmp_path_factory.mktemp("preparation")
  raw = corpus(folder, train=4000, test=50).prepare.raw_dir
  config = folder / "toy.py"
  config.write_text(
    "from jaxsyn.configs import base\n"
    "def get_config():\n"
    "  config = base.get_config()\n"
    "  config.data.update(name='toy', validation='test')\n"
    f"  config.prepare.raw_dir = {raw!r}\n"
    "  config.prepare.vocabulary.size = 60\n"
    "  config.prepare.update(shard_mib=0.1, workers=2)\n"
    "  for split in ('train', 'test'):\n"
    "    config.prepare.splits[split] = (f'{split}.en', f'{split}.de.gz')\n"
    "    config.prepare.parse.source_conllu[split] = (\n"
    f"      {raw!r} + f'/{{split}}.conllu')\n"
    "  return config\n"
  )

  def arguments(directory):
    return [
      sys.executable,
      "-m",
      "preprocess.build",
      "--config",
      str(config),
      f"--config.data.directory={directory}",
    ]

  command = Command(arguments, "work/*", 2.0, dataset_files)
  assert run(command, folder / "intact", environment)
  return Intact(command, dataset_files(folder / "intact"))


@pytest.fixture(scope="module")
def training(tmp_path_factory, prepared, environment) -> Intact:
  folder = tmp_path_factory.mktemp("training")
  options = {
    "data.directory": prepared,
    "model.width": 16,
    "model.transformer.encoder_layers": 1,
    "model.transformer.decoder_layers": 1,
    "model.transformer.feed_forward": 16,
    "model.transformer.heads": 2,
    "optimiser.accumulate": 3,
    "batch.tokens": 1024,
    "batch.shapes": 1,
    "train.steps": 120,
    "train.save_every": 2,
    "train.evaluate_every": 40,
    "train.log_every": 25,  # windows are interrupted
    "train.minutes": 0.0,
    "train.selection": "log_likelihood",
  }

  def arguments(workdir):
    return [
      sys.executable,
      "-m",
      "jaxsyn.train",
      "--workdir",
      str(workdir),
      "--config",
      "configs/quickstart.py:sisa",
      *(f"--config.{name}={value}" for name, value in options.items()),
    ]

  command = Command(arguments, "checkpoints/*", 3.0, train_state)
  assert run(command, folder / "intact", environment)
  return Intact(command, train_state(folder / "intact"))


@pytest.mark.parametrize("seed", SEEDS)
def test_prepare_continues_after_kills(
  preparation, tmp_path, environment, seed
):
  check_kills(preparation, tmp_path / "killed", environment, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_training_resumes_after_kills(training, tmp_path, environment, seed):
  check_kills(training, tmp_path / "killed", environment, seed)
