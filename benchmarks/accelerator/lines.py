"""What is measured, the most important first."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

from benchmarks.accelerator import checks, search, speed, start
from benchmarks.accelerator.limits import BenchmarkLimits, Row


@dataclasses.dataclass(frozen=True)
class Line:
  """Something to measure.

  Attributes:
    name: of the line, as --only has it.
    table: that its rows stand in.
    measure: makes the rows, in a process that may use the device.
    minutes: it may take at most.
  """

  name: str
  table: str
  measure: Callable[[BenchmarkLimits], Iterator[Row]]
  minutes: float = 4.0


def lines(limits: BenchmarkLimits) -> list[Line]:
  """In the order in which they are measured."""
  main, *others = limits.sizes
  half, single = "bfloat16", "float32"

  def of(
    name: str, table: str, measure: Callable[..., Iterator[Row]], *sizes: str
  ) -> Line:
    def rows(limits: BenchmarkLimits) -> Iterator[Row]:
      return measure(limits, *sizes)

    return Line(name, table, functools.wraps(measure)(rows))

  def training(size: str, dtype: str) -> Line:
    name = f"training {size} {dtype}"
    return of(name, "Training", speed.training, size, dtype)

  return [
    Line("device", "Device", speed.device),
    Line("steps", "Checks", checks.steps),
    training(main, half),
    *(training(size, half) for size in others[:1]),
    Line("translations", "Checks", checks.translations),
    of("search", "Search", search.search, "transformer", main, half),
    Line("gradients", "Checks", checks.gradients),
    *(
      of(f"pair {name}", "Systems", speed.pair, name, main, half)
      for name in limits.paired
    ),
    of("batch sizes", "Batch sizes", speed.batch_sizes, main, half),
    *(training(size, half) for size in others[1:]),
    training(main, single),
    of("start", "Start", start.start, main, half),
    *(training(size, single) for size in others),
    *(
      of(f"batch sizes {size}", "Batch sizes", speed.batch_sizes, size, half)
      for size in others[:1]
    ),
    of("search pascal", "Search", search.search, "pascal", main, half),
  ]
