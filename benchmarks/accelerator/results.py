"""Lists all measurements; writes their results as JSON and Markdown."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence

from benchmarks.accelerator import checks, speed
from benchmarks.accelerator.limits import BenchmarkLimits, Row
from jaxsyn.storage import files

NOT_REACHED, RUNNING, DONE, FAILED = "not reached", "running", "done", "failed"


@dataclasses.dataclass
class Measurement:
  """Named measurement of the accelerator benchmark, and its result.

  Attributes:
    name: Name, as --only matches it.
    table: Title of the table of its rows.
    measure: Function that yields rows, in a process that may use the device.
    state: Whether it is done.
    seconds: Duration.
    rows: Rows so far.
    error: Reason of a failure.
    output: End of the standard error of a failed process.
  """

  name: str
  table: str
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
    name: str, table: str, function: Callable[..., Iterator[Row]], *args: str
  ) -> Measurement:
    return Measurement(name, table, functools.partial(function, limits, *args))

  def training(size: str, dtype: str) -> Measurement:
    name = f"training {size} {dtype}"
    return make(name, "Training", speed.training, size, dtype)

  def batches(name: str, size: str) -> Measurement:
    return make(name, "Batch sizes", speed.batch_sizes, size, half)

  return [
    make("device", "Device", speed.device),
    make("steps", "Checks", checks.steps),
    training(main, half),
    *(training(size, half) for size in others[:1]),
    make("translations", "Checks", checks.translations),
    make("search", "Search", speed.search, "transformer", main, half),
    make("gradients", "Checks", checks.gradients),
    *(
      make(f"pair {name}", "Systems", speed.pair, name, main, half)
      for name in limits.paired
    ),
    batches("batch sizes", main),
    *(training(size, half) for size in others[1:]),
    training(main, single),
    *(training(size, single) for size in others),
    *(batches(f"batch sizes {size}", size) for size in others[:1]),
    make("search pascal", "Search", speed.search, "pascal", main, half),
  ]


def write_results(
  path: pathlib.Path, about: Row, chosen: Sequence[Measurement]
) -> None:
  """Writes results as JSON to a file, and as tables to a .md file next to it.

  Args:
    path: JSON file.
    about: Facts about the command.
    chosen: All measurements of the command.
  """
  lines = [
    {name: value for name, value in vars(one).items() if name != "measure"}
    for one in chosen
  ]
  files.write_json(path, {**about, "lines": lines})
  tables: dict[str, list[Row]] = {}
  for one in chosen:
    tables.setdefault(one.table, []).extend(one.rows)
  tables["Not finished"] = [
    {"measurement": one.name, "state": one.state, "why": one.error}
    for one in chosen
    if one.state != DONE
  ]
  tables["Duration"] = [
    {"measurement": one.name, "seconds": one.seconds}
    for one in chosen
    if one.seconds
  ]
  facts = [f"{name}: {_text(value)}" for name, value in about.items()]
  parts = ["# Measurements of the accelerator", ", ".join(facts)]
  for title, rows in tables.items():
    if rows:
      parts += [f"## {title}", as_table(rows)]
  files.write_text(path.with_suffix(".md"), "\n\n".join(parts) + "\n")


def as_table(rows: Sequence[Row]) -> str:
  """Formats rows as a Markdown table with the columns of all rows."""
  columns = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
  cells = [columns, ["---"] * len(columns)]
  cells += [[_text(row.get(name, "")) for name in columns] for row in rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _text(value: float | str) -> str:
  if isinstance(value, str):
    return " ".join(value.replace("|", "\\|").split())
  return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
