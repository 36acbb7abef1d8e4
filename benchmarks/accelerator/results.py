"""What was measured so far, as JSON and as Markdown tables."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Iterator, Sequence

from benchmarks.accelerator.limits import Row
from benchmarks.accelerator.lines import Line
from jaxsyn.storage import files

NOT_REACHED, RUNNING, DONE, FAILED = "not reached", "running", "done", "failed"


class MeasurementFailed(Exception):
  """A line came to no good end.

  Attributes:
    output: the end of what it said on standard error.
  """

  def __init__(self, message: str, output: str = ""):
    super().__init__(message)
    self.output = output


@dataclasses.dataclass
class Measurement:
  """What is known of a line."""

  name: str
  table: str
  state: str = NOT_REACHED
  seconds: float = 0.0
  rows: list[Row] = dataclasses.field(default_factory=list)
  error: str = ""
  output: str = ""


class MeasurementResults:
  """All lines, on the disk after every row."""

  def __init__(self, path: pathlib.Path, lines: Sequence[Line], about: Row):
    """Begins with nothing reached.

    Args:
      path: of the JSON file; the tables stand beside it, in .md.
      lines: to be measured.
      about: what is told of all of it.
    """
    self._path, self._about = path, about
    self.lines = [Measurement(line.name, line.table) for line in lines]
    self._write()

  def measure(self, number: int, rows: Iterator[Row]) -> Measurement:
    """Takes in the rows of a line as they come; a fault is written down."""
    line, began = self.lines[number], time.monotonic()
    line.state = RUNNING
    self._write()
    try:
      for row in rows:
        line.rows.append(row)
        line.seconds = time.monotonic() - began
        self._write()
      line.state = DONE
    except Exception as error:  # the next line may do
      line.state, line.error = FAILED, str(error) or type(error).__name__
      line.output = getattr(error, "output", "")
    finally:
      line.seconds = time.monotonic() - began
      self._write()
    return line

  def _write(self) -> None:
    page = {**self._about, "lines": [*map(dataclasses.asdict, self.lines)]}
    files.write_json(self._path, page)
    files.write_text(self._path.with_suffix(".md"), self._markdown())

  def _markdown(self) -> str:
    parts = ["# What the accelerator does", _sentence(self._about)]
    for table in dict.fromkeys(line.table for line in self.lines):
      rows = [
        r for line in self.lines if line.table == table for r in line.rows
      ]
      if rows:
        parts += [f"## {table}", as_table(rows)]
    left: list[Row] = [
      {"line": line.name, "state": line.state, "why": line.error}
      for line in self.lines
      if line.state != DONE
    ]
    if left:
      parts += ["## Not (wholly) measured", as_table(left)]
    times: list[Row] = [
      {"line": line.name, "seconds": line.seconds}
      for line in self.lines
      if line.seconds
    ]
    parts += ["## How long it took", as_table(times)]
    return "\n\n".join(parts) + "\n"


def as_table(rows: Sequence[Row]) -> str:
  """A Markdown table; its columns are those of all rows."""
  columns = list(dict.fromkeys(name for row in rows for name in row))
  cells = [columns, ["---"] * len(columns)]
  cells += [[_text(row.get(name, "")) for name in columns] for row in rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _text(value: float | str) -> str:
  if isinstance(value, str):
    return " ".join(value.replace("|", "\\|").split())
  return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _sentence(about: Row) -> str:
  return ", ".join(f"{name}: {_text(value)}" for name, value in about.items())
