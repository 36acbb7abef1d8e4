"""Runs the command `python -m benchmarks.accelerator`."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from absl import flags

import benchmarks.accelerator
from benchmarks.accelerator.limits import TRIAL, BenchmarkLimits, Row
from benchmarks.accelerator.results import (
  DONE,
  FAILED,
  RUNNING,
  Measurement,
  measurements,
  write_results,
)
from jaxsyn import cli
from jaxsyn.errors import InputError
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
  measure: Callable[[Measurement, float], Iterator[Row]],
) -> None:
  """Runs measurements until the time limit, and writes their results.

  Args:
    out: JSON file; Markdown tables are written next to it.
    limits: Sizes of the measurements.
    minutes: Time limit of all measurements together.
    only: Regular expression for the beginning of names; "": all.
    measure: Function from a measurement and the remaining seconds to rows.
  """
  chosen = choose(limits, only)
  end = time.monotonic() + 60 * minutes
  about: Row = {"minutes": minutes, "command": " ".join(sys.argv[1:])}
  write = functools.partial(write_results, out, about, chosen)
  write()
  for one in chosen:
    left = min(end - time.monotonic(), MAX_SECONDS)
    if left < MIN_SECONDS:
      break
    print(f"{one.name} ...", flush=True)
    one.state, start = RUNNING, time.monotonic()
    write()
    try:
      for row in measure(one, left):
        one.rows.append(row)
        one.seconds = time.monotonic() - start
        write()
      one.state = DONE
    except Exception as error:  # the next measurement may succeed
      one.state, one.error = FAILED, str(error) or type(error).__name__
      one.output = getattr(error, "output", "")
    one.seconds = time.monotonic() - start
    write()
    summary = f"{one.state} after {one.seconds:.0f} s, rows: {len(one.rows)}"
    print(f"{one.name}: {summary}. {one.error}")


class MeasurementFailed(Exception):
  """Error for a measurement whose process failed.

  Attributes:
    output: End of its standard error.
  """

  def __init__(self, message: str, output: str):
    super().__init__(message)
    self.output = output


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


def in_process(measurement: Measurement, seconds: float) -> Iterator[Row]:
  """Runs a measurement in a new process; yields its result rows."""
  command = [sys.executable, "-m", "benchmarks.accelerator", *sys.argv[1:]]
  return rows_of([*command, f"--line={measurement.name}"], seconds)


def rows_of(command: list[str], seconds: float) -> Iterator[Row]:
  """Yields the result rows that a measurement process prints.

  Raises:
    MeasurementFailed: The process failed or reached the time limit.
  """
  with tempfile.TemporaryFile("w+") as errors:
    process = subprocess.Popen(
      command,
      stdout=subprocess.PIPE,
      stderr=errors,
      text=True,
      process_group=0,
    )
    late = threading.Event()

    def end() -> None:
      late.set()
      os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
      assert process.stdout is not None
      for text in process.stdout:
        if text.startswith(MARK):
          yield json.loads(text.removeprefix(MARK))
      process.wait()
    finally:
      timer.cancel()
      with contextlib.suppress(ProcessLookupError):  # ends its children, too
        os.killpg(process.pid, signal.SIGKILL)
      process.wait()
    errors.seek(0)
    output = errors.read()[-OUTPUT:]
  if late.is_set():
    raise MeasurementFailed(f"ended after {seconds:.0f} s", output)
  if process.returncode:
    last = output.strip().splitlines()[-1:] or [f"exit {process.returncode}"]
    raise MeasurementFailed(last[0], output)


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
  print(f"written: {out} and {out.with_suffix('.md')}")


if __name__ == "__main__":
  flags.DEFINE_string("out", None, "JSON file; tables in .md next to it.")
  flags.DEFINE_float("minutes", 20.0, "Time limit.", lower_bound=0.0)
  flags.DEFINE_bool("trial", False, "Tiny sizes, to try it on a CPU.")
  flags.DEFINE_string("only", "", "Regular expression for names' beginnings.")
  flags.DEFINE_string("line", "", "Take this measurement; print its rows.")
  cli.main(_main)
