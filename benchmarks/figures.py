"""Measures time and memory for benchmarks, and prints their results."""

from __future__ import annotations

import os
import pathlib
import resource
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Figures = Mapping[str, tuple[float, str]]  # name -> (value, unit)


class Timer:
  """Context manager that measures the time of its `with` block.

  Attributes:
    wall: Seconds.
    cpu: Processor seconds of this process and of child processes that ended.
  """

  wall: float
  cpu: float

  def __enter__(self) -> Timer:
    self._start = time.perf_counter(), _processor_seconds()
    return self

  def __exit__(self, *error: object) -> None:
    wall, cpu = self._start
    self.wall = time.perf_counter() - wall
    self.cpu = _processor_seconds() - cpu


def take_turns(
  functions: Sequence[Callable[[], object]], seconds: float
) -> tuple[np.ndarray, np.ndarray]:
  """Calls functions in turns, so that ratios of their times are comparable.

  Args:
    functions: Functions; each is called at least once.
    seconds: Time after which no turn begins.

  Returns:
    Seconds and processor seconds of all calls, one row per turn.
  """
  turns: list[list[Timer]] = []
  end = time.perf_counter() + seconds
  while not turns or time.perf_counter() < end:
    turns.append([])
    for function in functions:
      with Timer() as timer:
        function()
      turns[-1].append(timer)
  return (
    np.array([[timer.wall for timer in turn] for turn in turns]),
    np.array([[timer.cpu for timer in turn] for turn in turns]),
  )


def show(figures: Figures) -> None:
  """Prints each measured value as a line "name=value unit"."""
  for name, (value, unit) in figures.items():
    text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    print(f"{name}={text} {unit}", flush=True)


def peak_mib() -> float:
  """Returns the peak resident memory of this process so far, in MiB."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def process_seconds() -> float:
  """Returns the seconds since this process started, imports included."""
  stat = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2]
  start = int(stat.split()[19]) / os.sysconf("SC_CLK_TCK")
  return float(pathlib.Path("/proc/uptime").read_text().split()[0]) - start


def _processor_seconds() -> float:
  usages = map(
    resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
  )
  return sum(usage.ru_utime + usage.ru_stime for usage in usages)
