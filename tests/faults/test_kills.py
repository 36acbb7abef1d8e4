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
from raw_corpora import command, records_of, set_options

from jaxsyn import train
from jaxsyn.configs import base, quickstart
from jaxsyn.preprocess import build
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
    arguments: Command line, without the output folder.
    flag: Flag of the output folder.
    progress: Pattern of files that appear in the folder during the work.
    seconds: Time after the first such file in which the signal is sent.
    result: Function from the output folder to what must be equal.
    intact: Output folder of the command when it is not killed.
  """

  arguments: list[str]
  flag: str
  progress: str
  seconds: float
  result: Callable[[pathlib.Path], object]
  intact: pathlib.Path


# Fields of log records that depend on the time.
TIMES = [
  "time",
  "minutes",
  "eta_minutes",
  "tokens_per_s",
  "waiting",
  "flops",
  "mfu",
  "seconds",
]


def log_records(workdir: pathlib.Path) -> list[dict]:
  """Returns the records of the log of a run, without times."""
  lines = (workdir / "log.jsonl").read_text().splitlines()
  records = [json.loads(line) for line in lines]
  return [{k: v for k, v in r.items() if k not in TIMES} for r in records]


def train_state(workdir: pathlib.Path) -> object:
  """Returns the log of a run, and step, arrays and progress of its end."""
  import jax
  import orbax.checkpoint as ocp

  folder = workdir / "checkpoints"
  step = max(int(path.name) for path in folder.iterdir() if path.name.isdigit())
  with ocp.StandardCheckpointer() as reader:
    state = reader.restore(folder / str(step) / "state")
  leaves, structure = jax.tree.flatten(state)
  record = json.loads(
    (folder / str(step) / "metadata/metadata.json").read_text()
  )
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
    [*command.arguments, f"{command.flag}={folder}"],
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


@pytest.fixture(scope="module")
def preparation(tmp_path_factory, prepared) -> Command:
  folder, raw = tmp_path_factory.mktemp("preparation"), prepared.parent / "raw"
  config = base.get_config()
  config.data.update(name="toy", directory=str(folder / "intact"))
  config.data.update(validation="test", test=())
  config.prepare.update(raw_dir=str(raw), shard_mib=0.05, workers=2)
  files = ("train.en", "train.qaa")
  config.prepare.splits.update(train=(*files, "1-500"), test=(*files, "501-"))
  config.prepare.vocabulary.size = 300
  model = str(raw / "quickstart.udpipe")
  config.prepare.parse.source.udpipe.model = model
  intact, flag = build.run(config), "--config.data.directory"
  return Command(command(config), flag, "work/*", 3.0, dataset_files, intact)


@pytest.fixture(scope="module")
def training(tmp_path_factory, prepared) -> Command:
  options = {
    "data.directory": str(prepared),
    "model.width": 16,
    "model.transformer.encoder_layers": 1,
    "model.transformer.decoder_layers": 1,
    "model.transformer.feed_forward": 16,
    "model.transformer.heads": 2,
    "optimiser.accumulate": 3,
    "batch.tokens": 1024,
    "batch.shapes": 1,
    "train.steps": 40,
    "train.save_every": 2,
    "train.evaluate_every": 20,
    "train.log_every": 15,  # windows are interrupted
    "train.minutes": 0.0,
    "train.selection": "log_likelihood",
  }
  config, intact = quickstart.get_config("sisa"), tmp_path_factory.mktemp("run")
  set_options(config, options)
  train.run(config, intact)
  words = [sys.executable, "-m", "jaxsyn.train"]
  words += ["--config", "configs/quickstart.py:sisa"]
  words += [f"--config.{name}={value}" for name, value in options.items()]
  return Command(words, "--workdir", "checkpoints/*", 3.0, train_state, intact)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["preparation", "training"])
def test_killed_commands_continue(name, seed, request, tmp_path, environment):
  command = request.getfixturevalue(name)
  folder, rng = tmp_path / "killed", np.random.default_rng(seed)
  for kill in (signal.SIGKILL, SIGNALS[int(rng.integers(2))]):
    if run(command, folder, environment, kill, rng):
      break  # it ended before the signal
  assert run(command, folder, environment)
  assert command.result(folder) == command.result(command.intact)
