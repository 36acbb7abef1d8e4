"""Processes in which cases run: one that hangs or dies costs itself alone."""

from __future__ import annotations

import collections
import dataclasses
import multiprocessing
import pathlib
import traceback
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jaxsyn import progress
from jaxsyn.errors import InputError

RIGHT, REFUSED = "right", "refused"
SILENT, FOREIGN, HANG = "silent", "foreign", "hang"
OUTCOMES = (RIGHT, REFUSED, SILENT, FOREIGN, HANG)
BAD = (SILENT, FOREIGN, HANG)
MAX_REPORTED = 20  # offenders named a suite


class Silent(Exception):
  """A damaged input gave a wrong result without a word; says which."""


@dataclasses.dataclass(frozen=True)
class Suite:
  """Cases of one kind.

  Attributes:
    open: folder of the world -> what all cases of a process share.
    case: that, random numbers -> nothing where the result is right; raises
      InputError where the input was refused, `Silent` where neither.
    chunk: cases a process runs before it reports.
    seconds: that one case may take; longer is a hang.
  """

  open: Callable[[pathlib.Path], Any]
  case: Callable[[Any, np.random.Generator], None]
  chunk: int = 1
  seconds: float = 60.0


@dataclasses.dataclass
class Tally:
  """What became of the cases of a suite.

  Attributes:
    count: outcome -> how many.
    offenders: the first bad ones: number of the case, and what happened.
  """

  count: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )
  offenders: list[str] = dataclasses.field(default_factory=list)

  @property
  def tried(self) -> int:
    return sum(self.count.values())

  @property
  def bad(self) -> int:
    return sum(self.count[outcome] for outcome in BAD)

  @classmethod
  def one(cls, outcome: str, told: str = "") -> Tally:
    """One case; what is told of it where it is bad."""
    return cls(collections.Counter([outcome]), [told] if told else [])

  def add(self, other: Tally) -> None:
    self.count += other.count
    room = MAX_REPORTED - len(self.offenders)
    self.offenders += other.offenders[: max(room, 0)]


def rng_of(seed: int, suite: str, number: int) -> np.random.Generator:
  """The random numbers of one case, whatever process runs it."""
  return np.random.default_rng([seed, zlib.crc32(suite.encode()), number])


def run_here(
  suite: Suite, name: str, state: Any, *, seed: int, numbers: Iterable[int]
) -> Tally:
  """Runs cases in this process."""
  tally = Tally()
  for number in numbers:
    try:
      suite.case(state, rng_of(seed, name, number))
      outcome, told = RIGHT, ""
    except InputError:
      outcome, told = REFUSED, ""
    except Silent as error:
      outcome, told = SILENT, str(error)
    except Exception as error:
      place = traceback.extract_tb(error.__traceback__)[-1]
      outcome = FOREIGN
      told = f"{error!r:.200} at {place.filename}:{place.lineno}"
    told = told and f"{name} {number}: {outcome}: {told}"
    tally.add(Tally.one(outcome, told))
  return tally


def run(
  suites: Mapping[str, Suite],
  counts: Mapping[str, int],
  world: pathlib.Path,
  *,
  seed: int,
  workers: int,
) -> dict[str, Tally]:
  """Runs cases in processes of their own.

  Args:
    suites: by name, of a module's table: a process finds it by `module`.
    counts: name -> how many cases.
    world: folder of `world.make`.
    seed: of all random numbers.
    workers: processes at a time.
  """
  tallies = {name: Tally() for name in counts}
  jobs = [
    (name, range(first, min(first + suites[name].chunk, count)))
    for name, count in counts.items()
    for first in range(0, count, suites[name].chunk)
  ]
  hands = [_Hand(suites, world, seed) for _ in range(workers)]

  def work(hand: _Hand) -> None:
    while jobs:
      try:
        name, numbers = jobs.pop()
      except IndexError:
        return
      found = hand.run(name, numbers)
      tallies[name].add(found)
      bar.advance(found.tried)

  total = sum(counts.values())
  with (
    progress.bar("trying", total, unit="case") as bar,
    ThreadPoolExecutor(workers) as pool,
  ):
    try:
      for done in [pool.submit(work, hand) for hand in hands]:
        done.result()
    finally:
      jobs.clear()
      for hand in hands:
        hand.stop()
  return tallies


class _Hand:
  """One process at a time; a new one after a hang or a death."""

  def __init__(self, suites: Mapping[str, Suite], world, seed: int):
    self._suites, self._given = suites, (suites, world, seed)
    self._process: multiprocessing.process.BaseProcess | None = None

  def run(self, name: str, numbers: range) -> Tally:
    """Halves what hangs or dies until the one case is found."""
    if self._process is None:
      # Not forked: JAX and UDPipe have threads.
      context = multiprocessing.get_context("spawn")
      self._pipe, theirs = context.Pipe()
      self._process = context.Process(
        target=_serve, args=(theirs, *self._given), daemon=True
      )
      self._process.start()
      theirs.close()
    suite = self._suites[name]
    # The first case of a process waits for its imports as well.
    patience = suite.seconds * (1 if len(numbers) == 1 else 2) + 120
    died = False
    self._pipe.send((name, numbers))
    try:
      if self._pipe.poll(patience):
        return self._pipe.recv()
    except (EOFError, ConnectionError):
      died = True
    code = self.stop()
    if len(numbers) > 1:
      middle = len(numbers) // 2
      tally = self.run(name, numbers[:middle])
      tally.add(self.run(name, numbers[middle:]))
      return tally
    outcome = FOREIGN if died else HANG
    told = f"the process died ({code})" if died else f"over {patience:.0f} s"
    return Tally.one(outcome, f"{name} {numbers[0]}: {outcome}: {told}")

  def stop(self) -> int | None:
    """Ends the process; returns its exit code where it had ended itself."""
    if self._process is None:
      return None
    self._process.join(timeout=1.0 if not self._process.is_alive() else 0.0)
    code = self._process.exitcode
    self._process.kill()
    self._process.join()
    self._pipe.close()
    self._process = None
    return code


def _serve(pipe, suites: Mapping[str, Suite], world, seed: int) -> None:
  states: dict[Any, Any] = {}
  while True:
    try:
      name, numbers = pipe.recv()
    except EOFError:
      return
    suite = suites[name]
    if suite.open not in states:
      states[suite.open] = suite.open(world)
    pipe.send(
      run_here(suite, name, states[suite.open], seed=seed, numbers=numbers)
    )
