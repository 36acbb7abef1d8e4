"""Progress of long work: bars on a terminal, elsewhere a line now and then.

  with progress.bar("parsing", total=29_000, unit="line") as bar:
    for line in lines:
      ...
      bar.advance()

All on standard error, for standard output is for results. Bars that are open at
one time stand below each other, in whatever threads; what is printed meanwhile
stands above them.
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

REDRAW_SECONDS = 30.0  # seconds between two lines, where there is no terminal
_SELDOM = 10  # times so many where nothing has changed
_MIN_SECONDS = 0.5  # seconds after which a bar is worth to be seen


class Bar:
  """How far some work is."""

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
    """Begins it.

    Args:
      name: of the work.
      total: of its units; None: nobody knows.
      unit: singular, as "line".
      per: what its speed is told in, if that is not the unit: see `advance`.
      speed: whether that is told at all.
      done: before, not in the speed.
      note: words for what the work waits for, as of `compiling`; "" while it
        advances. Without speed and remaining time, which nobody knows then.
        Called in another thread.
      silent: nothing is told.
    """
    self._name, self._total, self._unit, self._per = name, total, unit, per
    self._done = self._before = done
    self._amount, self._speed, self._note = 0, speed, note
    self._waits = False  # whether the last note was not empty
    self._end: float | None = None  # when it is ended, if not by its total
    self._began = self._said = time.monotonic()
    self._lock = threading.Lock()
    self._screen = None if silent or not sys.stderr.isatty() else _screen
    self._task: Any = None
    self._closed = threading.Event()
    self._thread = threading.Thread(
      target=self._refresh, daemon=True, name="progress"
    )
    if not silent:
      # Also while nothing is finished: a first chunk may take a minute.
      self._thread.start()

  def begin(self) -> None:
    """The clock of its speed starts now."""
    with self._lock:
      self._began = time.monotonic()

  def advance(self, count: int = 1, amount: int | None = None) -> None:
    """So much more is done.

    Args:
      count: units.
      amount: of what the speed is told in, where that is not the unit.
    """
    with self._lock:
      self._done += count
      self._amount += count if amount is None else amount
      if self._task is not None and self._screen:
        self._screen.update(self._task, self._done, self._words())

  def at_most(self, seconds: float) -> None:
    """It is ended after so much more time, whatever is done then."""
    with self._lock:
      self._end = time.monotonic() + seconds

  def set_done(self, done: int) -> None:
    """So much is done in all."""
    self.advance(done - self._done)

  def show(self, content: RenderableType) -> None:
    """Shows something below the bars, on a terminal, in place of what was."""
    if self._screen:
      self._screen.show(content)

  def report(self) -> None:
    """Something else has just told how far it is: no line soon."""
    self._said = time.monotonic()

  @property
  def is_on_terminal(self) -> bool:
    return self._screen is not None

  def close(self) -> None:
    """Removes the bar and ends its thread."""
    with self._lock:
      self._closed.set()
      if self._screen and self._task is not None:
        self._screen.remove(self._task)
      self._screen = self._task = None
    # The note may hold JAX arrays. Freed by a daemon thread while the interpreter
    # exits, they abort the process ("FATAL: exception not rethrown").
    if self._thread.is_alive():
      self._thread.join()

  def _refresh(self) -> None:
    """Tells how far it is until it is closed."""
    seen = -1
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
        is_idle = self._done == seen and not self._waits
        if time.monotonic() - self._said > REDRAW_SECONDS * (
          _SELDOM if is_idle else 1
        ):
          self._said, seen = time.monotonic(), self._done
          # In one write: other threads print as well.
          line = f"{self._name}: {words}\n"
          print(line, end="", file=sys.stderr, flush=True)

  def _words(self) -> str:
    """As in "1,200 of 29,000 lines, 340 lines/s, 82 s left"."""
    remark = self._note()
    if self._waits and not remark:  # the wait would distort the speed
      self._began = time.monotonic()
      self._before, self._amount = self._done, 0
    self._waits = bool(remark)
    seconds = max(time.monotonic() - self._began, 1e-9)
    words = [f"{self._done:,} {_plural(self._unit, self._done)}"]
    if self._total:
      total = f"{self._total:,} {_plural(self._unit, self._total)}"
      words = [f"{self._done:,} of {total}"]
    if self._amount and self._speed and not remark:
      per = _plural(self._per or self._unit, 2)
      words.append(f"{_rounded(self._amount / seconds)} {per}/s")
    is_timed = self._speed and not remark
    if self._total and self._done > self._before and is_timed:
      new_items = self._done - self._before
      left = seconds * (self._total - self._done) / new_items
      if self._end is not None:
        left = min(left, max(self._end - time.monotonic(), 0.0))
      words.append(f"{span(left)} left")
    if remark:
      words.append(remark)
    return ", ".join(words)


@contextlib.contextmanager
def bar(name: str, total: int | None = None, **how: Any) -> Iterator[Bar]:
  """Shows how far some work is, as long as it lasts; arguments as of `Bar`."""
  shown = Bar(name, total, **how)
  try:
    yield shown
  finally:
    shown.close()


def compiling(*programs: tuple[int, int]) -> str:
  """Returns the note of a bar while programs compile, "" once all are compiled.

  Args:
    *programs: Of each function, how many are compiled and how many are needed.

  >>> compiling((3, 12), (0, 1))
  'compiling programs: 3 of 13'
  """
  compiled, needed = map(sum, zip(*programs))
  if compiled >= needed:
    return ""
  return f"compiling programs: {compiled} of {needed}"


class CompileCounter:
  """Counts the programs of a jitted function."""

  def __init__(self) -> None:
    self._needed: set[Any] = set()
    self._compiled: set[Any] = set()

  @property
  def programs(self) -> tuple[int, int]:
    """How many are compiled and how many are needed."""
    return len(self._compiled), len(self._needed)

  @contextlib.contextmanager
  def calls(self, shapes: Any) -> Iterator[None]:
    """Counts a call with arguments of these shapes (hashable)."""
    self._needed.add(shapes)
    try:
      yield
    finally:
      self._compiled.add(shapes)


def span(seconds: float) -> str:
  """A time in words.

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
  """All bars of the process that are open."""

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
      return self._bars.add_task(name, total=total, said="")

  def update(self, task: Any, done: int, text: str) -> None:
    with self._lock:
      if self._bars is not None:
        self._bars.update(task, completed=done, said=text)

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
    # Here: to import rich takes 0.1 s, and most calls are short.
    from rich import console, live, progress

    self._bars = progress.Progress(
      progress.TextColumn("{task.description}"),
      progress.BarColumn(bar_width=24),
      progress.TextColumn("{task.fields[said]}"),
      auto_refresh=False,
    )
    self._live = live.Live(
      self._content(),
      console=console.Console(stderr=True),
      refresh_per_second=4,
      transient=True,
      # Else what goes to a file would be drawn on the terminal instead.
      redirect_stdout=sys.stdout.isatty(),
    )
    self._live.start()

  def _content(self) -> RenderableType:
    from rich import console

    return console.Group(self._bars, self._below)


_screen = _Screen()
