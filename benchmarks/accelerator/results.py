"""Lists the measurements of the accelerator benchmark in execution order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

from benchmarks.accelerator import checks, speed
from benchmarks.accelerator.limits import BenchmarkLimits, Row

NOT_REACHED, DONE, FAILED = "not reached", "done", "failed"


@dataclasses.dataclass
class Measurement:
  """Named measurement of the accelerator benchmark, and its result.

  Attributes:
    name: Name, as --only matches it.
    measure: Function that yields rows, in a process that may use the device.
    state: Whether it is done.
    seconds: Duration.
    rows: Results.
    error: Reason of a failure.
    output: End of the standard error of a failed process.
  """

  name: str
  measure: Callable[[], Iterator[Row]]
  state: str = NOT_REACHED
  seconds: float = 0.0
  rows: list[Row] = dataclasses.field(default_factory=list)
  error: str = ""
  output: str = ""


def measurements(limits: BenchmarkLimits) -> list[Measurement]:
  """Returns all measurements, the most important first."""
  main, *others = limits.sizes
  half, single = "bfloat16", "float32"

  def make(
    name: str, function: Callable[..., Iterator[Row]], *args: str
  ) -> Measurement:
    return Measurement(name, functools.partial(function, limits, *args))

  def training(size: str, dtype: str) -> Measurement:
    return make(f"training {size} {dtype}", speed.training, size, dtype)

  return [
    make("device", speed.device),
    make("steps", checks.steps),
    training(main, half),
    *(training(size, half) for size in others[:1]),
    make("translations", checks.translations),
    make("search", speed.search, "transformer", main, half),
    make("gradients", checks.gradients),
    *(
      make(f"pair {name}", speed.pair, name, main, half)
      for name in limits.paired
    ),
    make("batch sizes", speed.batch_sizes, main, half),
    *(training(size, half) for size in others[1:]),
    training(main, single),
    *(training(size, single) for size in others),
    *(
      make(f"batch sizes {size}", speed.batch_sizes, size, half)
      for size in others[:1]
    ),
    make("search pascal", speed.search, "pascal", main, half),
  ]
