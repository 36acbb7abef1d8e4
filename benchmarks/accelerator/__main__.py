"""The command: see `benchmarks.accelerator`."""

from __future__ import annotations

import contextlib
import dataclasses
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
from benchmarks.accelerator.lines import Line, lines
from benchmarks.accelerator.results import (
  Measurement,
  MeasurementFailed,
  MeasurementResults,
)
from jaxsyn import cli
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.training.mesh import set_up_jax

__doc__ = benchmarks.accelerator.__doc__  # what --help shows
MARK = "ROW "  # before the rows, among all that a process may print
LEAST = 10.0  # seconds; a line with fewer left is not begun
KEPT = 2000  # letters of what a process said before it failed


def run(
  out: pathlib.Path,
  limits: BenchmarkLimits,
  *,
  minutes: float,
  only: str = "",
  measure: Callable[[Line, float], Iterator[Row]],
) -> MeasurementResults:
  """Measures line after line until the minutes are over.

  Args:
    out: JSON file; the Markdown tables stand beside it.
    limits: how much.
    minutes: in all.
    only: regular expression that names of lines begin with; "": all.
    measure: (line, seconds that are left to it) -> rows.

  Returns: what is on the disk as well.
  """
  chosen = _chosen(limits, only)
  end = time.monotonic() + 60 * minutes
  about: Row = {"minutes": minutes, "command": " ".join(sys.argv[1:])}
  results = MeasurementResults(out, chosen, about)
  for number, line in enumerate(chosen):
    left = min(end - time.monotonic(), 60 * line.minutes)
    if left < LEAST:
      break
    print(f"{line.name} ...", flush=True)
    done = results.measure(number, measure(line, left))
    print(f"{line.name}: {_summary(done)}", flush=True)
  return results


def _chosen(limits: BenchmarkLimits, only: str) -> list[Line]:
  try:
    chosen = [line for line in lines(limits) if re.match(only, line.name)]
  except re.error as error:
    raise InputError(
      f"--only={only}: no regular expression: {error}."
    ) from None
  if not chosen:
    names = ", ".join(line.name for line in lines(limits))
    raise InputError(f"{only!r}: no line begins so. Lines: {names}.")
  return chosen


def _summary(line: Measurement) -> str:
  rows = f"{len(line.rows)} row{'s' * (len(line.rows) != 1)}"
  return (
    f"{line.state} after {line.seconds:.0f} s, {rows} {line.error}".rstrip()
  )


def beside(line: Line, seconds: float) -> Iterator[Row]:
  """The rows of a line, measured by a process of its own."""
  command = [sys.executable, "-m", "benchmarks.accelerator", *sys.argv[1:]]
  return rows_of([*command, f"--line={line.name}"], seconds)


def rows_of(command: list[str], seconds: float) -> Iterator[Row]:
  """The rows that a process prints, as they come.

  Raises:
    Failed: it ended otherwise than well, or took longer than it may.
  """
  with tempfile.TemporaryFile("w+") as said:
    process = subprocess.Popen(
      command,
      stdout=subprocess.PIPE,
      stderr=said,
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
      with contextlib.suppress(ProcessLookupError):  # it, or what it started
        os.killpg(process.pid, signal.SIGKILL)
      process.wait()
    said.seek(0)
    output = said.read()[-KEPT:]
  if late.is_set():
    raise MeasurementFailed(f"ended after {seconds:.0f} s", output)
  if process.returncode:
    words = output.strip().splitlines()[-1:] or [f"exit {process.returncode}"]
    raise MeasurementFailed(words[0], output)


def _main(values: flags.FlagValues) -> None:
  limits = TRIAL if values.trial else BenchmarkLimits()
  limits = dataclasses.replace(limits, data=values.data)
  if values.line:
    line, *_ = _chosen(limits, f"{re.escape(values.line)}$")
    set_up_jax()
    for row in line.measure(limits):
      print(f"{MARK}{json.dumps(row)}", flush=True)
    return
  if not values.out:
    raise InputError("--out is missing: name the JSON file to be written.")
  out = pathlib.Path(values.out)
  if values.data:
    manifests.read(values.data)  # a fault is told now and not in the end
  with tempfile.TemporaryDirectory() as programs:
    # Of this run alone, so that what is compiled first is compiled.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = programs
    run(out, limits, minutes=values.minutes, only=values.only, measure=beside)
  print(f"written: {out} and {out.with_suffix('.md')}")


if __name__ == "__main__":
  flags.DEFINE_string("out", None, "JSON file; tables in .md beside it.")
  flags.DEFINE_float("minutes", 20.0, "That it may take.", lower_bound=0.0)
  flags.DEFINE_string("data", "", "Prepared folder, for the command's start.")
  flags.DEFINE_bool("trial", False, "Tiny sizes, for a look on a CPU.")
  flags.DEFINE_string("only", "", "Lines that begin so; a regular expression.")
  flags.DEFINE_string("line", "", "Measure this line here and print its rows.")
  cli.main(_main)
