"""What runs logged, saved and translate."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.hosts.processes import ROOT
from jaxsyn.errors import InputError
from jaxsyn.training import log
from jaxsyn.training.reader import CheckpointReader

SMALL = {
  "model.width": 32,
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.transformer.feed_forward": 32,
  "batch.tokens": 1024,
  "batch.shapes": 2,
  "train.steps": 40,
  "train.log_every": 10,
  "train.evaluate_every": 20,
  "train.save_every": 20,
  "train.validation_sentences": 20,
}
HALF = {"train.steps": SMALL["train.steps"] // 2}


def steps(workdir: pathlib.Path) -> list[int]:
  """Of the checkpoints that a run has kept."""
  return CheckpointReader(workdir).steps()


TIMES = ("time", "tokens_per_s", "waiting", "flops", "minutes", "seconds")


class RunDifference(NamedTuple):
  """The largest relative ones of what two runs logged.

  Attributes:
    scores: of losses, and of all that validation says.
    gradient: of the gradient's norm, which jumps where a rounding moves a unit
      over the kink of its ReLU.
  """

  scores: float
  gradient: float


def difference(
  one: pathlib.Path, other: pathlib.Path, after: int = 0
) -> RunDifference:
  """Between two runs, after a step.

  Raises:
    InputError: they did not log the same lines.
  """
  logs = [
    {
      (record["kind"], record["step"]): record
      for record in log.records(workdir)[0]
      if record["step"] > after
    }
    for workdir in (one, other)
  ]
  if logs[0].keys() != logs[1].keys() or not logs[0]:
    raise InputError(f"{one} and {other} logged other steps.")
  worst = {True: 0.0, False: 0.0}
  for key, record in logs[0].items():
    for name, value in record.items():
      if isinstance(value, float) and not name.endswith(TIMES):
        largest = max(abs(value), abs(logs[1][key][name]), 1e-30)
        share = abs(value - logs[1][key][name]) / largest
        gradient = name == "grad_norm"
        worst[gradient] = max(worst[gradient], share)
  return RunDifference(scores=worst[False], gradient=worst[True])


def translations(workdir: pathlib.Path, lines: Sequence[str]) -> str:
  """Of some lines, by the last checkpoint of a run, on one device."""
  command = [sys.executable, "-m", "jaxsyn.translate", "--workdir"]
  done = subprocess.run(
    [*command, str(workdir), "--checkpoint=last"],
    input="".join(line + "\n" for line in lines),
    capture_output=True,
    text=True,
    cwd=ROOT,
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
  )
  if done.returncode:
    raise InputError(done.stderr)
  return done.stdout
