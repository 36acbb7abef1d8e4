"""How long a command takes to its first step: the real one, in a process.

  python -m benchmarks.start_speed --config configs/multi30k_en_de.py

Prints, one line a figure (name=value unit), for a cold start (no programs and
no derived columns are kept from before) and for a warm one, seconds and processor
seconds until the first step is done, and until the STEPS first are,
with what is compiled meanwhile. With --before=FOLDER, another checkout of the
project is measured in turns with this one, --turns=N of them.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import ml_collections
from absl import flags

from benchmarks.figures import show, without_flags
from jaxsyn import cli
from jaxsyn.errors import InputError
from jaxsyn.training import log

TICK = os.sysconf("SC_CLK_TCK")


def measure(
  command: list[str], *, steps: int, root: pathlib.Path, programs: pathlib.Path
) -> dict[str, tuple[float, str]]:
  """Figures of a run that logs every step and is ended after so many.

  Args:
    command: of the training, without --workdir.
    steps: that it takes.
    root: folder of the checkout that runs it.
    programs: folder of compiled programs.
  """
  figures = {}
  speeds: dict[str, list[float]] = {"meanwhile": [], "after": []}
  compiled = math.inf
  environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(programs)}
  with tempfile.TemporaryDirectory() as folder:
    began = time.perf_counter()
    process = subprocess.Popen(
      [*command, "--workdir", f"{folder}/run"],
      cwd=root,
      env=environment,
      stdout=subprocess.PIPE,
      text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
      name = {"step 1 ": "first_step", f"step {steps} ": f"{steps}_steps"}
      if line.startswith("compiled in"):
        compiled = time.time()
      for mark, what in name.items():
        if line.startswith("train ") and mark in line:
          seconds = time.perf_counter() - began
          figures[what] = seconds, "s"
          figures[f"{what}_cpu"] = _processor_seconds(process.pid), "cpu-s"
    if status := process.wait():
      raise InputError(
        f"the training ended with exit status {status}; its own words stand above."
      )
    lines = pathlib.Path(folder, "run", log.FILE).read_text().splitlines()
    for line in lines:
      record = json.loads(line)
      if record["kind"] == "train":
        period = "meanwhile" if record["time"] < compiled else "after"
        speeds[period].append(record["flops"] / 1e9)
  for period, rates in speeds.items():
    if rates:
      figures[f"flops_{period}"] = statistics.median(rates), "GFLOP/s"
  return figures


def watched(steps: int) -> list[str]:
  """Options of a run that takes so many steps and logs each of them."""
  return [
    f"--config.train.steps={steps}",
    "--config.train.log_every=1",
    f"--config.train.evaluate_every={2 * steps}",
    "--config.train.selection=log_likelihood",
  ]


def _processor_seconds(pid: int) -> float:
  """Of a process that runs, all its threads."""
  stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
  user, system = stat.rpartition(")")[2].split()[11:13]
  return (int(user) + int(system)) / TICK


def _main(values: flags.FlagValues) -> None:
  config: ml_collections.ConfigDict = values.config
  columns = pathlib.Path(config.data.directory, "work", "derived").resolve()
  command = [sys.executable, "-m", "jaxsyn.train"]
  # All other flags are those of the training.
  command += without_flags(sys.argv[1:], ("turns", "before", "steps"))
  command += watched(values.steps)
  roots = {"": pathlib.Path.cwd()}
  if values.before:
    roots |= {"before.": pathlib.Path(values.before).resolve()}
  for _ in range(values.turns):
    for name, root in roots.items():
      with tempfile.TemporaryDirectory() as programs:
        shutil.rmtree(columns, ignore_errors=True)
        for state in ("cold", "warm"):
          figures = measure(
            command,
            steps=values.steps,
            root=root,
            programs=pathlib.Path(programs),
          )
          show({f"{name}{state}.{n}": f for n, f in figures.items()})


if __name__ == "__main__":
  cli.config_flag()
  flags.DEFINE_integer("steps", 20, "Of a training.", lower_bound=2)
  flags.DEFINE_integer("turns", 1, "Of measuring.", lower_bound=1)
  flags.DEFINE_string("before", "", "Another checkout, measured in turns.")
  cli.main(_main)
