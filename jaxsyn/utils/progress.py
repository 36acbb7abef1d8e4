"""Shows the progress of long tasks, as bars or as a line every 30 s.

  with progress.bar("parsing", total=29_000, unit="line") as bar:
    for line in lines:
      ...
      bar.advance()

Progress is written to standard error, since standard output is for results.
Bars of several threads are shown below each other, and printed text above them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

REDRAW_SECONDS = 30.0  # between two lines without a terminal
_FRAME_SECONDS = 0.5  # between two frames on a terminal, and before the first
_FIRST_UNITS = 10  # or a tenth of all, before the remaining time is shown


class Bar:
  """Progress bar of one task."""

  def __init__(
    self,
    name: str,
    total: int | None = None,
    *,
    unit: str = "",
    per: str = "",
    speed: bool = True,
    done: int = 0,
    note: Callable[[], str] = lambda: "",
    silent: bool = False,
  ):
    """Starts showing the progress of a task.

    Args:
      name: Name of the task.
      total: Number of units; None if unknown.
      unit: Name of a unit in the singular, such as "line".
      per: Name of the unit for the speed, if it differs; see `advance`.
      speed: Whether to show the speed.
      done: Number of units done before, which do not count for the speed.
      note: Function that returns a description of a wait, as `compiling` does,
        or "". During a wait, the speed and remaining time are not shown. It is
        called in another thread.
      silent: Whether to hide the progress.
    """
    self.name, self.total, self.done = name, total, done
    self.text = ""
    self._unit, self._per, self._speed, self._note = unit, per, speed, note
    # Values since the clock was started.
    self._started = self._printed = time.monotonic()
    self._before, self._amount = done, 0
    self._is_waiting = False  # whether the last note was not empty
    self._end: float | None = None  # time limit of the task
    self._lock = threading.Lock()
    self.is_on_terminal = not silent and sys.stderr.isatty()
    self._closed = threading.Event()
    show = self._show_frames if self.is_on_terminal else self._print_lines
    self._thread = threading.Thread(target=show, daemon=True, name="progress")
    if not silent:
      # Also before the first unit is done, which may take a minute.
      self._thread.start()

  def start_clock(self) -> None:
    """Restarts the clock that measures the speed of the task."""
    with self._lock:
      self._started = time.monotonic()

  def advance(self, count: int = 1, amount: int | None = None) -> None:
    """Adds finished units to the progress.

    Args:
      count: Number of finished units.
      amount: Number of finished units for the speed, if these differ.
    """
    with self._lock:
      self.done += count
      self._amount += count if amount is None else amount

  def set_time_limit(self, seconds: float) -> None:
    """Sets the time limit of the task, in seconds from now."""
    self._end = time.monotonic() + seconds

  def set_done(self, done: int) -> None:
    """Sets the number of finished units so far."""
    self.advance(done - self.done)

  def show(self, content: Any) -> None:
    """Shows a Rich renderable below all bars on a terminal, until they end.

    It replaces earlier content.
    """
    if self.is_on_terminal:
      _screen.below = content

  def postpone_line(self) -> None:
    """Postpones the next progress line, as the caller has printed the progress."""
    self._printed = time.monotonic()

  def close(self) -> None:
    """Removes the progress bar and ends its thread."""
    self._closed.set()
    # The note may refer to JAX arrays. A daemon thread that frees them while
    # the interpreter exits aborts the process ("FATAL: exception not
    # rethrown").
    if self._thread.is_alive():
      self._thread.join()
    _screen.remove(self)

  def _show_frames(self) -> None:
    while not self._closed.wait(_FRAME_SECONDS):
      self.text = self._words()
      _screen.draw(self)

  def _print_lines(self) -> None:
    last_done = -1
    while not self._closed.wait(min(REDRAW_SECONDS, 1.0)):
      words = self._words()
      is_idle = self.done == last_done and not self._is_waiting
      if time.monotonic() - self._printed > REDRAW_SECONDS and not is_idle:
        self._printed, last_done = time.monotonic(), self.done
        # In one write, since other threads print as well.
        line = f"{self.name}: {words}\n"
        print(line, end="", file=sys.stderr, flush=True)

  def _words(self) -> str:
    """Returns the progress as a line of text.

    Example: "1,200 of 29,000 lines, 340 lines/s, 82 s left".
    """
    note = self._note()
    with self._lock:
      if self._is_waiting and not note:  # the wait would distort the speed
        self._started = time.monotonic()
        self._before, self._amount = self.done, 0
      self._is_waiting = bool(note)
      words = [f"{self.done:,} {_plural(self._unit, self.done)}"]
      if self.total:
        units = _plural(self._unit, self.total)
        words = [f"{self.done:,} of {self.total:,} {units}"]
      if note:
        words.append(note)
      elif self._speed:
        words += self._speed_words()
      return ", ".join(words)

  def _speed_words(self) -> list[str]:
    """Returns texts of the speed and the remaining time, if they are known."""
    words = []
    now = time.monotonic()
    seconds = max(now - self._started, 1e-9)
    if self._amount:
      speed = _rounded(self._amount / seconds)
      words.append(f"{speed} {_plural(self._per or self._unit, 2)}/s")
    new_units = self.done - self._before
    # The first units tell little: other programs may be compiled meanwhile.
    if self.total and new_units >= min(_FIRST_UNITS, -(-self.total // 10)):
      left = seconds * (self.total - self.done) / new_units
      if self._end is not None:
        left = min(left, max(self._end - now, 0.0))
      words.append(f"{span(left)} left")
    return words


@contextlib.contextmanager
def bar(name: str, total: int | None = None, **options: Any) -> Iterator[Bar]:
  """Yields a progress bar that is shown during a `with` block.

  The arguments are those of `Bar`.
  """
  with contextlib.closing(Bar(name, total, **options)) as shown:
    yield shown


def compiling(*programs: tuple[int, int]) -> str:
  """Returns a note on how many jitted programs are compiled; "" if all are.

  It is "" if all programs are compiled.

  Args:
    *programs: Pair for each function: the numbers of compiled and of needed
      programs.
  >>> compiling((3, 12), (0, 1))
  'compiling programs: 3 of 13'
  """
  compiled, needed = map(sum, zip(*programs))
  if compiled >= needed:
    return ""
  return f"compiling programs: {compiled} of {needed}"


class CompileCounter:
  """Counter of the compiled programs of a jitted function."""

  def __init__(self) -> None:
    self._needed: set[Any] = set()
    self._compiled: set[Any] = set()

  @property
  def programs(self) -> tuple[int, int]:
    """Pair (number of programs compiled so far, number of programs called)."""
    return len(self._compiled), len(self._needed)

  @contextlib.contextmanager
  def calls(self, shapes: Any) -> Iterator[None]:
    """Counts a call's program as compiled when the call's `with` block ends.

    Args:
      shapes: Shapes of the arguments, hashable; equal shapes share a program.
    """
    self._needed.add(shapes)
    try:
      yield
    finally:
      self._compiled.add(shapes)


def span(seconds: float) -> str:
  """Returns a duration in seconds, formatted with a suitable unit.

  >>> span(40), span(400), span(40_000)
  ('40 s', '7 min', '11.1 h')
  """
  if seconds < 100:
    return f"{seconds:.0f} s"
  if seconds < 6000:
    return f"{seconds / 60:.0f} min"
  return f"{seconds / 3600:.1f} h"


def _plural(unit: str, count: int) -> str:
  if count == 1 or unit.endswith("B"):  # such as MiB
    return unit
  return f"{unit}es" if unit.endswith("ch") else f"{unit}s"


def _rounded(speed: float) -> str:
  return f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"


class _Screen:
  """Display of all open progress bars on the terminal.

  Attributes:
    below: Content below the bars.
  """

  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._bars: list[Bar] = []
    self._live: Any = None
    self.below: Any = ""

  def draw(self, bar: Bar) -> None:
    """Draws all open progress bars; adds `bar` to them if it is new."""
    # Imported here, since it takes 0.1 s and most tasks are short.
    from rich import console, live, progress_bar, table, text

    with self._lock:
      if bar not in self._bars:
        self._bars.append(bar)
      if self._live is None:
        self._live = live.Live(
          console=console.Console(stderr=True),
          auto_refresh=False,  # no thread, which could outlive the bars
          transient=True,
          # Otherwise rich would draw output for a file on the terminal.
          redirect_stdout=sys.stdout.isatty(),
        )
        self._live.start()
      rows = table.Table.grid(padding=(0, 1))
      for each in self._bars:
        graph = progress_bar.ProgressBar(each.total, each.done, width=24)
        rows.add_row(text.Text(each.name), graph, text.Text(each.text))
      self._live.update(console.Group(rows, self.below), refresh=True)

  def remove(self, bar: Bar) -> None:
    """Removes a bar, and the display if it was the last bar."""
    with self._lock:
      if bar in self._bars:
        self._bars.remove(bar)
      if self._live is not None and not self._bars:
        self._live.stop()
        self._live, self.below = None, ""


_screen = _Screen()
