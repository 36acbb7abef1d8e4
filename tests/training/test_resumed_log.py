"""The log of a run that was killed and resumed: that of an uninterrupted one."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from jaxsyn import train
from jaxsyn.configs import quickstart

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS, EVERY = 60, 25  # of the log, so that windows end at 25, 50 and 60
TIMES = {
  *("time", "minutes", "eta_minutes", "tokens_per_s"),
  *("waiting", "flops", "mfu", "seconds"),
}
OPTIONS = {
  "batch.shapes": 1,
  "batch.tokens": 1024,
  "model.width": 16,
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.transformer.feed_forward": 16,
  "model.transformer.heads": 2,
  "train.steps": STEPS,
  "train.save_every": 2,
  "train.log_every": EVERY,
  "train.evaluate_every": STEPS,
  "train.minutes": 0.0,
  "train.selection": "log_likelihood",
}


def records(folder):
  """The records of the log, without times."""
  lines = (folder / "log.jsonl").read_text().splitlines()
  return [
    {k: v for k, v in json.loads(line).items() if k not in TIMES}
    for line in lines
  ]


def steps(folder):
  names = (folder / "checkpoints").glob("[0-9]*")
  return sorted(int(path.name) for path in names)


def interrupt(command, environment, folder, step, index):
  """Runs the command until a checkpoint is reached; returns the newest one."""
  process = subprocess.Popen(
    command,
    cwd=ROOT,
    env=environment,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
  )
  while max(steps(folder), default=0) < step:
    assert process.poll() is None, process.stderr.read().decode()
    time.sleep(0.01)
  process.send_signal(index)
  _, output = process.communicate(timeout=120)
  assert process.returncode == (-index if index == signal.SIGKILL else 0), (
    output.decode()
  )
  return max(steps(folder))


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_log_after_sigkill_and_sigterm_equals_the_uninterrupted_one(
  prepared, environment, tmp_path, accumulate
):
  """Both signals come in the middle of a window; `sisa` has several losses."""
  options = {
    **OPTIONS,
    "data.directory": str(prepared),
    "optimiser.accumulate": accumulate,
  }
  config = quickstart.get_config("sisa")
  with config.unlocked():
    config.update_from_flattened_dict(options)
  train.run(config, tmp_path / "straight")
  wanted = records(tmp_path / "straight")
  assert [(one["kind"], one["step"]) for one in wanted] == [
    *(("train", 25), ("train", 50), ("train", 60), ("validation", 60)),
  ]
  assert {"loss", "loss/nll", "padding", "grad_norm"} < {*wanted[0]}

  folder = tmp_path / "run"
  command = [
    *(sys.executable, "-m", "jaxsyn.train", "--config"),
    *("configs/quickstart.py:sisa", "--workdir", str(folder)),
    *(f"--config.{name}={value}" for name, value in options.items()),
  ]
  killed = interrupt(command, environment, folder, 5, signal.SIGKILL)
  assert 5 <= killed < 25
  stopped = interrupt(command, environment, folder, 30, signal.SIGTERM)
  assert 30 <= stopped < 50
  # The incomplete window has no record of its own.
  assert [one["step"] for one in records(folder)] == [25]
  train.run(config, folder)
  assert records(folder) == wanted
