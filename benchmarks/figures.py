"""Measures time and memory for benchmarks, and prints their results."""

from __future__ import annotations

import os
import pathlib
import resource
import time
from collections.abc import Mapping

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
    self._start = time.perf_counter(), processor_seconds()
    return self

  def __exit__(self, *error: object) -> None:
    wall, cpu = self._start
    self.wall = time.perf_counter() - wall
    self.cpu = processor_seconds() - cpu


def show(figures: Figures) -> None:
  """Prints each measured value as a line "name=value unit"."""
  for name, (value, unit) in figures.items():
    text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    print(f"{name}={text} {unit}", flush=True)


def processor_seconds() -> float:
  """Returns the processor time of this process and its ended children."""
  usages = map(
    resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
  )
  return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def process_seconds() -> float:
  """Returns the age of this process, including its imports."""
  stat = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2]
  start = int(stat.split()[19]) / os.sysconf("SC_CLK_TCK")
  return float(pathlib.Path("/proc/uptime").read_text().split()[0]) - start


def peak_mib() -> float:
  """Returns the peak resident memory of this process so far, in MiB."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
