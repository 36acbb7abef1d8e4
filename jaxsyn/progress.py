"""Progress of long tasks, as bars on a terminal or else a line every 30 s.

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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from rich.console import RenderableType

REDRAW_SECONDS = 30.0  # between two lines without a terminal
_IDLE_FACTOR = 10  # factor of REDRAW_SECONDS if no unit was finished
_MIN_SECONDS = 0.5  # shorter tasks get no bar


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
      silent: Whether to show nothing.
    """
    self._name, self._total, self._unit, self._per = name, total, unit, per
    self._done = self._before = done
    self._amount, self._speed, self._note = 0, speed, note
    self._is_waiting = False  # whether the last note was not empty
    self._end: float | None = None  # time limit of the task
    self._started = self._printed = time.monotonic()
    self._lock = threading.Lock()
    self._screen = None if silent or not sys.stderr.isatty() else _screen
    self._task: Any = None
    self._closed = threading.Event()
    self._thread = threading.Thread(
      target=self._refresh, daemon=True, name="progress"
    )
    if not silent:
      # Also before the first unit is done, which may take a minute.
      self._thread.start()

  def start_clock(self) -> None:
    """Restarts the time from which the speed of the task is measured."""
    with self._lock:
      self._started = time.monotonic()

  def advance(self, count: int = 1, amount: int | None = None) -> None:
    """Adds finished units to the progress.

    Args:
      count: Number of finished units.
      amount: Number of finished units for the speed, if these differ.
    """
    with self._lock:
      self._done += count
      self._amount += count if amount is None else amount
      if self._task is not None and self._screen:
        self._screen.update(self._task, self._done, self._words())

  def set_time_limit(self, seconds: float) -> None:
    """Sets the time limit of the task, in seconds from now."""
    with self._lock:
      self._end = time.monotonic() + seconds

  def set_done(self, done: int) -> None:
    """Sets the total number of finished units."""
    self.advance(done - self._done)

  def show(self, content: RenderableType) -> None:
    """Shows content below all bars on a terminal, replacing earlier content."""
    if self._screen:
      self._screen.show(content)

  def postpone_line(self) -> None:
    """Delays the next progress line, for callers that printed the progress."""
    self._printed = time.monotonic()

  @property
  def is_on_terminal(self) -> bool:
    """Whether the progress bar is drawn on a terminal."""
    return self._screen is not None

  def close(self) -> None:
    """Removes the progress bar and ends its thread."""
    with self._lock:
      self._closed.set()
      if self._screen and self._task is not None:
        self._screen.remove(self._task)
      self._screen = self._task = None
    # The note may refer to JAX arrays. A daemon thread that frees them while
    # the interpreter exits aborts the process ("FATAL: exception not
    # rethrown").
    if self._thread.is_alive():
      self._thread.join()

  def _refresh(self) -> None:
    """Shows the progress repeatedly until the bar is closed."""
    last_done = -1
    while not self._closed.wait(
      _MIN_SECONDS if self._screen else min(REDRAW_SECONDS, 1.0)
    ):
      with self._lock:
        if self._closed.is_set():
          return
        if self._screen:
          if self._task is None:
            self._task = self._screen.add(self._name, self._total)
          self._screen.update(self._task, self._done, self._words())
          continue
        words = self._words()
        is_idle = self._done == last_done and not self._is_waiting
        pause = REDRAW_SECONDS * (_IDLE_FACTOR if is_idle else 1)
        if time.monotonic() - self._printed > pause:
          self._printed, last_done = time.monotonic(), self._done
          # In one write, since other threads print as well.
          line = f"{self._name}: {words}\n"
          print(line, end="", file=sys.stderr, flush=True)

  def _words(self) -> str:
    """Returns the progress as text.

    Example: "1,200 of 29,000 lines, 340 lines/s, 82 s left".
    """
    note = self._note()
    if self._is_waiting and not note:  # the wait would distort the speed
      self._started = time.monotonic()
      self._before, self._amount = self._done, 0
    self._is_waiting = bool(note)
    seconds = max(time.monotonic() - self._started, 1e-9)
    words = [f"{self._done:,} {_plural(self._unit, self._done)}"]
    if self._total:
      total = f"{self._total:,} {_plural(self._unit, self._total)}"
      words = [f"{self._done:,} of {total}"]
    if self._amount and self._speed and not note:
      per = _plural(self._per or self._unit, 2)
      words.append(f"{_rounded(self._amount / seconds)} {per}/s")
    is_timed = self._speed and not note
    if self._total and self._done > self._before and is_timed:
      new_items = self._done - self._before
      left = seconds * (self._total - self._done) / new_items
      if self._end is not None:
        left = min(left, max(self._end - time.monotonic(), 0.0))
      words.append(f"{span(left)} left")
    if note:
      words.append(note)
    return ", ".join(words)


@contextlib.contextmanager
def bar(name: str, total: int | None = None, **options: Any) -> Iterator[Bar]:
  """Yields a progress bar that is shown during a `with` block.

  The arguments are those of `Bar`.
  """
  shown = Bar(name, total, **options)
  try:
    yield shown
  finally:
    shown.close()


def compiling(*programs: tuple[int, int]) -> str:
  """Returns the progress note about programs that are being compiled.

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
    """Numbers of compiled and of needed programs, as a pair."""
    return len(self._compiled), len(self._needed)

  @contextlib.contextmanager
  def calls(self, shapes: Any) -> Iterator[None]:
    """Counts the program that a function call in a `with` block compiles.

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
  return (
    f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
  )


def _plural(unit: str, count: int) -> str:
  return unit if count == 1 or unit.endswith("B") else f"{unit}s"


def _rounded(speed: float) -> str:
  return f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"


class _Screen:
  """Terminal display of all open progress bars of the process."""

  def __init__(self) -> None:
    self._lock = threading.RLock()
    self._tasks = 0
    self._live: Any = None
    self._bars: Any = None
    self._below: RenderableType = ""

  def add(self, name: str, total: int | None) -> Any:
    with self._lock:
      if not self._tasks:
        self._open()
      self._tasks += 1
      return self._bars.add_task(name, total=total, text="")

  def update(self, task: Any, done: int, text: str) -> None:
    with self._lock:
      if self._bars is not None:
        self._bars.update(task, completed=done, text=text)

  def show(self, content: RenderableType) -> None:
    with self._lock:
      self._below = content
      if self._live is not None:
        self._live.update(self._content())

  def remove(self, task: Any) -> None:
    with self._lock:
      self._bars.remove_task(task)
      self._tasks -= 1
      if not self._tasks:
        self._live.stop()
        self._live, self._below = None, ""

  def _open(self) -> None:
    # Imported here, since it takes 0.1 s and most tasks are short.
    from rich import console, live, progress

    self._bars = progress.Progress(
      progress.TextColumn("{task.description}"),
      progress.BarColumn(bar_width=24),
      progress.TextColumn("{task.fields[text]}"),
      auto_refresh=False,
    )
    self._live = live.Live(
      self._content(),
      console=console.Console(stderr=True),
      refresh_per_second=4,
      transient=True,
      # Otherwise rich would draw output for a file on the terminal.
      redirect_stdout=sys.stdout.isatty(),
    )
    self._live.start()

  def _content(self) -> RenderableType:
    from rich import console

    return console.Group(self._bars, self._below)


_screen = _Screen()
