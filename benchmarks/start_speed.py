"""Measures the time from the training command to its first steps.

  python -m benchmarks.start_speed --config configs/multi30k_en_de.py [--steps 60]

Prints, for a start without compiled programs ("cold") and with those of the first
start ("warm"), the seconds and processor seconds until the first step and until
--steps steps are done, and the speed of steps while other programs are compiled
("meanwhile") and after. All other flags are those of `jaxsyn.train`.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from absl import flags

from benchmarks.figures import Figures, show
from jaxsyn import cli
from jaxsyn.errors import InputError
from jaxsyn.training import log


def measure(command: list[str], steps: int, programs: str) -> Figures:
  """Measures time to the first steps, and FLOP rates while compiling and after.

  Args:
    command: Command of the training, without --workdir.
    steps: Number of steps.
    programs: Folder of compiled programs.
  """
  figures = {}
  compiled = math.inf
  names = {"step 1 ": "first_step", f"step {steps} ": f"{steps}_steps"}
  with tempfile.TemporaryDirectory() as folder:
    start = time.perf_counter()
    process = subprocess.Popen(
      [
        *command,
        f"--workdir={folder}",
        f"--config.train.steps={steps}",
        "--config.train.log_every=1",
        f"--config.train.evaluate_every={2 * steps}",
        "--config.train.selection=log_likelihood",
      ],
      env=os.environ | {"JAX_COMPILATION_CACHE_DIR": programs},
      stdout=subprocess.PIPE,
      text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
      if line.startswith("compiled in"):
        compiled = time.time()
      for mark, name in names.items():
        if line.startswith("train ") and mark in line:
          figures[name] = time.perf_counter() - start, "s"
          figures[f"{name}_cpu"] = _processor_seconds(process.pid), "cpu-s"
    if status := process.wait():
      raise InputError(
        f"the training ended with exit status {status}; see its messages above."
      )
    text = pathlib.Path(folder, log.FILE).read_text()
  speeds: dict[str, list[float]] = {"meanwhile": [], "after": []}
  for line in map(json.loads, text.splitlines()):
    if line["kind"] == "train":
      period = "meanwhile" if line["time"] < compiled else "after"
      speeds[period].append(line["flops"] / 1e9)
  for period, rates in speeds.items():
    if rates:
      figures[f"flops_{period}"] = statistics.median(rates), "GFLOP/s"
  return figures


def _processor_seconds(pid: int) -> float:
  """Returns the total processor time of a running process's threads."""
  stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
  user, system = stat.rpartition(")")[2].split()[11:13]
  return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _main(values: flags.FlagValues) -> None:
  words = iter(sys.argv[1:])
  command = [sys.executable, "-m", "jaxsyn.train"]
  for word in words:  # all but --steps and its value
    if re.fullmatch("--?steps", word):
      next(words)
    elif not re.match("--?steps=", word):
      command.append(word)
  with tempfile.TemporaryDirectory() as programs:
    for state in ("cold", "warm"):
      figures = measure(command, values.steps, programs)
      show({f"{state}.{name}": figure for name, figure in figures.items()})


if __name__ == "__main__":
  cli.config_flag()
  flags.DEFINE_integer("steps", 20, "Number of steps.", lower_bound=2)
  cli.main(_main)
