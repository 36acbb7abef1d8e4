"""Runs the command `python -m benchmarks.accelerator`."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from absl import flags

import benchmarks.accelerator
from benchmarks.accelerator.limits import TRIAL, BenchmarkLimits, Row
from benchmarks.accelerator.results import (
  DONE,
  FAILED,
  Measurement,
  measurements,
)
from jaxsyn import cli
from jaxsyn.errors import InputError
from jaxsyn.storage import files
from jaxsyn.training.runtime import set_up_jax

__doc__ = benchmarks.accelerator.__doc__  # for --help
MARK = "ROW "  # before a row in the output of a process
MIN_SECONDS = 10.0  # a measurement with less time is not begun
MAX_SECONDS = 240.0  # time limit of a measurement
OUTPUT = 2000  # recorded characters of the output of a failed process


def run(
  out: pathlib.Path,
  limits: BenchmarkLimits,
  *,
  minutes: float,
  only: str = "",
  measure: Callable[[Measurement, float], None],
) -> None:
  """Runs measurements until the time limit; prints and writes their results.

  Args:
    out: JSON file.
    limits: Sizes of the measurements.
    minutes: Time limit of all measurements together.
    only: Regular expression for the beginning of names; "": all.
    measure: Function of a measurement and the remaining seconds; it adds the
      rows to the measurement.
  """
  chosen = choose(limits, only)
  end = time.monotonic() + 60 * minutes
  about: Row = {"minutes": minutes, "command": " ".join(sys.argv[1:])}
  write_results(out, about, chosen)
  for one in chosen:
    left = min(end - time.monotonic(), MAX_SECONDS)
    if left < MIN_SECONDS:
      break
    print(f"{one.name} ...", flush=True)
    start = time.monotonic()
    try:
      measure(one, left)
      one.state = DONE
    except Exception as error:  # the next measurement may succeed
      one.state, one.error = FAILED, str(error) or type(error).__name__
    one.seconds = time.monotonic() - start
    for row in one.rows:
      print(json.dumps(row, ensure_ascii=False))
    print(f"{one.name}: {one.state} after {one.seconds:.0f} s. {one.error}")
    write_results(out, about, chosen)


def write_results(
  out: pathlib.Path, about: Row, chosen: Sequence[Measurement]
) -> None:
  """Writes all measurements, the command and its time limit to a JSON file."""
  lines = [
    {name: value for name, value in vars(one).items() if name != "measure"}
    for one in chosen
  ]
  files.write_json(out, {**about, "lines": lines})


def choose(limits: BenchmarkLimits, only: str) -> list[Measurement]:
  """Returns measurements whose names match a regular expression."""
  every = measurements(limits)
  try:
    chosen = [one for one in every if re.match(only, one.name)]
  except re.error as error:
    raise InputError(
      f"--only={only}: no regular expression: {error}."
    ) from None
  if not chosen:
    names = ", ".join(one.name for one in every)
    raise InputError(f"--only={only}: no name begins so. Names: {names}.")
  return chosen


def in_process(measurement: Measurement, seconds: float) -> None:
  """Runs a measurement in a new process, which is killed at the time limit."""
  command = [sys.executable, "-m", "benchmarks.accelerator", *sys.argv[1:]]
  run_process([*command, f"--line={measurement.name}"], measurement, seconds)


def run_process(
  command: list[str], measurement: Measurement, seconds: float
) -> None:
  """Adds rows printed by a process to a measurement; on failure, also its log.

  Raises:
    RuntimeError: The process failed or reached the time limit.
  """
  printed = b""
  try:
    printed = subprocess.run(
      command, capture_output=True, timeout=seconds, check=True
    ).stdout
  except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
    printed = error.stdout or b""
    measurement.output = (error.stderr or b"").decode()[-OUTPUT:]
    last = measurement.output.strip().splitlines()[-1:]
    if isinstance(error, subprocess.TimeoutExpired) or not last:
      last = [str(error)]
    raise RuntimeError(last[0]) from None
  finally:
    measurement.rows += [
      json.loads(line.removeprefix(MARK))
      for line in printed.decode(errors="replace").splitlines(keepends=True)
      if line.startswith(MARK) and line.endswith("\n")
    ]


def _main(values: flags.FlagValues) -> None:
  limits = TRIAL if values.trial else BenchmarkLimits()
  if values.line:
    one, *_ = choose(limits, f"{re.escape(values.line)}$")
    set_up_jax()
    for row in one.measure():
      print(f"{MARK}{json.dumps(row)}", flush=True)
    return
  if not values.out:
    raise InputError("--out is missing: name the JSON file to be written.")
  out = pathlib.Path(values.out)
  with tempfile.TemporaryDirectory() as programs:
    # An empty cache, so that compilation is measured.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = programs
    run(
      out, limits, minutes=values.minutes, only=values.only, measure=in_process
    )
  print(f"written: {out}")


if __name__ == "__main__":
  flags.DEFINE_string("out", None, "JSON file of the results.")
  flags.DEFINE_float("minutes", 20.0, "Time limit.", lower_bound=0.0)
  flags.DEFINE_bool("trial", False, "Tiny sizes, to try it on a CPU.")
  flags.DEFINE_string("only", "", "Regular expression for names' beginnings.")
  flags.DEFINE_string("line", "", "Take this measurement; print its rows.")
  cli.main(_main)
