"""Lists all measurements; writes their results as JSON and Markdown."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.accelerator import checks, search, speed
from benchmarks.accelerator.limits import BenchmarkLimits, Row
from jaxsyn.storage import files

NOT_REACHED, RUNNING, DONE, FAILED = "not reached", "running", "done", "failed"


@dataclasses.dataclass(frozen=True)
class Measurement:
  """Named measurement of the accelerator benchmark.

  Attributes:
    name: Name, as --only matches it.
    table: Title of the table of its rows.
    function: Function (limits, *arguments) -> rows, in a process that may use
      the device.
    arguments: Further arguments of the function.
    minutes: Time limit.
  """

  name: str
  table: str
  function: Callable[..., Iterator[Row]]
  arguments: tuple[str, ...] = ()
  minutes: float = 4.0

  def rows(self, limits: BenchmarkLimits) -> Iterator[Row]:
    return self.function(limits, *self.arguments)


def measurements(limits: BenchmarkLimits) -> list[Measurement]:
  """Returns all measurements, the most important first."""
  main, *others = limits.sizes
  half, single = "bfloat16", "float32"

  def training(size: str, dtype: str) -> Measurement:
    name = f"training {size} {dtype}"
    return Measurement(name, "Training", speed.training, (size, dtype))

  def searching(name: str, system: str) -> Measurement:
    return Measurement(name, "Search", search.search, (system, main, half))

  def batches(name: str, size: str) -> Measurement:
    return Measurement(name, "Batch sizes", speed.batch_sizes, (size, half))

  return [
    Measurement("device", "Device", speed.device),
    Measurement("steps", "Checks", checks.steps),
    training(main, half),
    *(training(size, half) for size in others[:1]),
    Measurement("translations", "Checks", checks.translations),
    searching("search", "transformer"),
    Measurement("gradients", "Checks", checks.gradients),
    *(
      Measurement(f"pair {name}", "Systems", speed.pair, (name, main, half))
      for name in limits.paired
    ),
    batches("batch sizes", main),
    *(training(size, half) for size in others[1:]),
    training(main, single),
    *(training(size, single) for size in others),
    *(batches(f"batch sizes {size}", size) for size in others[:1]),
    searching("search pascal", "pascal"),
  ]


class MeasurementFailed(Exception):
  """Error for a measurement whose process failed.

  Attributes:
    output: End of its standard error.
  """

  def __init__(self, message: str, output: str = ""):
    super().__init__(message)
    self.output = output


@dataclasses.dataclass
class Result:
  """State and result rows of one measurement."""

  name: str
  table: str
  state: str = NOT_REACHED
  seconds: float = 0.0
  rows: list[Row] = dataclasses.field(default_factory=list)
  error: str = ""
  output: str = ""


class Results:
  """Results of all measurements, written to files after each row.

  Args:
    path: JSON file; the tables are written to a .md file next to it.
    chosen: Measurements.
    about: Facts about the command.
  """

  def __init__(
    self, path: pathlib.Path, chosen: Sequence[Measurement], about: Row
  ):
    self._path, self._about = path, about
    self.results = [Result(one.name, one.table) for one in chosen]
    self._write()

  def collect(self, index: int, rows: Iterator[Row]) -> Result:
    """Adds the rows of a measurement as they arrive; records failures."""
    result, start = self.results[index], time.monotonic()
    result.state = RUNNING
    self._write()
    try:
      for row in rows:
        result.rows.append(row)
        result.seconds = time.monotonic() - start
        self._write()
      result.state = DONE
    except Exception as error:  # the next measurement may succeed
      result.state = FAILED
      result.error = str(error) or type(error).__name__
      result.output = getattr(error, "output", "")
    finally:
      result.seconds = time.monotonic() - start
      self._write()
    return result

  def _write(self) -> None:
    lines = [dataclasses.asdict(result) for result in self.results]
    files.write_json(self._path, {**self._about, "lines": lines})
    files.write_text(self._path.with_suffix(".md"), self._markdown())

  def _markdown(self) -> str:
    facts = [f"{name}: {_text(value)}" for name, value in self._about.items()]
    parts = ["# Measurements of the accelerator", ", ".join(facts)]
    tables: dict[str, list[Row]] = {}
    for result in self.results:
      tables.setdefault(result.table, []).extend(result.rows)
    for title, rows in tables.items():
      if rows:
        parts += [f"## {title}", as_table(rows)]
    unfinished: list[Row] = []
    times: list[Row] = []
    for result in self.results:
      name = {"measurement": result.name}
      if result.state != DONE:
        why = {"state": result.state, "why": result.error}
        unfinished.append({**name, **why})
      if result.seconds:
        times.append({**name, "seconds": result.seconds})
    if unfinished:
      parts += ["## Not finished", as_table(unfinished)]
    parts += ["## Duration", as_table(times)]
    return "\n\n".join(parts) + "\n"


def as_table(rows: Sequence[Row]) -> str:
  """Formats rows as a Markdown table with every column that a row has."""
  columns = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
  cells = [columns, ["---"] * len(columns)]
  cells += [[_text(row.get(name, "")) for name in columns] for row in rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _text(value: float | str) -> str:
  if isinstance(value, str):
    return " ".join(value.replace("|", "\\|").split())
  return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
