"""How a benchmark prints, and what it reads off the machine."""

from __future__ import annotations

import os
import pathlib
import resource
from collections.abc import Collection, Mapping, Sequence

Figures = Mapping[str, tuple[float, str]]  # name -> (value, unit)


def without_flags(words: Sequence[str], names: Collection[str]) -> list[str]:
  """Returns a command line without some flags, "--name=value" or "--name value".

  Args:
    words: Arguments of the command.
    names: Names of the flags; none of them is boolean.
  """
  others, left = [], iter(words)
  for word in left:
    name, equals, _ = word.lstrip("-").partition("=")
    if not word.startswith("-") or name not in names:
      others.append(word)
    elif not equals:
      next(left, None)  # the value
  return others


def show(figures: Figures) -> None:
  """One line a figure: name=value unit."""
  for name, (value, unit) in figures.items():
    text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    print(f"{name}={text} {unit}", flush=True)


def processor_seconds() -> float:
  """Processor time of this process and of its ended children."""
  return sum(
    usage.ru_utime + usage.ru_stime
    for usage in map(
      resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
  )


def process_seconds() -> float:
  """Since this process began, its imports included."""
  stat = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2]
  began = int(stat.split()[19]) / os.sysconf("SC_CLK_TCK")
  return float(pathlib.Path("/proc/uptime").read_text().split()[0]) - began


def peak_mib() -> float:
  """Largest resident memory of this process so far."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
