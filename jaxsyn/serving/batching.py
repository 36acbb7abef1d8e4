"""Sentences of many requests, translated together, and each told its own.

One thread does all that the devices do: for each run in turn it takes what waits,
calls the session once, and answers. Of several requests it takes a sentence each in
turn, so that a short one does not wait for a long one.

Before this file: `runs`. After it: `service`.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from jaxsyn.decode.requests import Request
from jaxsyn.decode.translator import Translation
from jaxsyn.serving.runs import Served

COMPANY = 0.003  # seconds that a sentence waits for others, where none was


@dataclasses.dataclass(frozen=True)
class Answer:
  """What was found for a sentence.

  Attributes:
    nbest: translations, best first.
    cut: whether only its beginning was read.
  """

  nbest: list[Translation]
  cut: bool


class Full(Exception):
  """No more sentences can wait."""


class Watch(Protocol):
  """What is told of the work, for metrics."""

  def batch(self, run: str, sentences: int) -> None: ...


@dataclasses.dataclass(frozen=True)
class _Item:
  job: Job
  request: Request
  place: int
  answer: Future[Answer]


class Job:
  """The sentences of a request.

  Attributes:
    answers: one of each, in order.
    waiting: sentences that are not being translated yet.
    is_wanted: whether the client still waits.
  """

  def __init__(self, requests: Sequence[Request]):
    self.is_wanted = True
    items = [
      _Item(self, request, place, Future())
      for place, request in enumerate(requests)
    ]
    self.answers = [item.answer for item in items]
    self.waiting = collections.deque(items)


class Look:
  """Other work with a run's model.

  Attributes:
    answer: what comes of it.
    is_wanted: whether the client still waits.
  """

  def __init__(self, function: Callable[[Callable[[], bool]], Any]):
    """Sets it up.

    Args:
      function: does it; is given a function that returns `is_wanted`.
    """
    self.function, self.is_wanted = function, True
    self.answer: Future[Any] = Future()


class Desk:
  """What waits for a run.

  Attributes:
    run: that is asked.
    jobs: with sentences that wait.
    looks: other work with the run's model.
  """

  def __init__(self, run: Served, most: int):
    self.run, self.most = run, most
    self.jobs: collections.deque[Job] = collections.deque()
    self.looks: collections.deque[Look] = collections.deque()

  @property
  def sentences(self) -> int:
    return sum(len(job.waiting) for job in self.jobs)

  def take(self) -> list[_Item]:
    """Sentences for a batch, one of each request in turn."""
    taken: list[_Item] = []
    while self.jobs and len(taken) < self.most:
      job = self.jobs.popleft()
      item = job.waiting.popleft()
      if item.answer.set_running_or_notify_cancel():
        taken.append(item)
      if job.waiting:
        self.jobs.append(job)
    return taken


class Worker:
  """The thread that does what the devices do.

  Attributes:
    desks: by name of the run.
  """

  def __init__(
    self,
    runs: Sequence[Served],
    *,
    queue: int = 1000,
    together: int = 0,
    watch: Watch | None = None,
  ):
    """Sets it up; `start` starts it.

    Args:
      runs: that are served.
      queue: sentences that may wait; an inspection counts as one.
      together: sentences of a batch at most; 0: as many as the run's config
        has searched together on each device.
      watch: is told of each batch.
    """
    self.desks = {run.name: Desk(run, together or _most(run)) for run in runs}
    self._queue, self._watch = queue, watch
    self._changed = threading.Condition()
    self._ends = False
    self._advanced: float | None = None  # when work last did; None: idle
    self._turns = collections.deque(self.desks.values())
    self._thread = threading.Thread(
      target=self._work, name="worker", daemon=True
    )
    self.done: Future[None] = Future()

  def start(self) -> None:
    self._thread.start()

  def translate(self, run: str, requests: Sequence[Request]) -> Job:
    """Asks for translations.

    Raises:
      Full: too many wait.
    """
    job = Job(requests)
    with self._changed:
      self._check_room(len(requests))
      if requests:
        self.desks[run].jobs.append(job)
        self._changed.notify()
    return job

  def look(
    self, run: str, function: Callable[[Callable[[], bool]], Any]
  ) -> Look:
    """Asks for other work with a run's model; raises as `translate`."""
    look = Look(function)
    with self._changed:
      self._check_room(1)
      self.desks[run].looks.append(look)
      self._changed.notify()
    return look

  def cancel(self, run: str, work: Job | Look) -> None:
    """Cancels the work for a request, also where it has begun."""
    work.is_wanted = False
    waiting: collections.deque[Any] = (
      self.desks[run].jobs if isinstance(work, Job) else self.desks[run].looks
    )
    with self._changed:
      if work in waiting:
        waiting.remove(work)
    for answer in work.answers if isinstance(work, Job) else [work.answer]:
      answer.cancel()

  @property
  def stalled(self) -> float:
    """Seconds in which the work at hand has not advanced; 0 if there is none."""
    advanced = self._advanced
    return 0.0 if advanced is None else time.monotonic() - advanced

  @property
  def waiting(self) -> int:
    """Sentences that wait."""
    with self._changed:
      return self._waiting()

  def close(self) -> None:
    """Ends the thread after what it is at; who still waits is told so."""
    with self._changed:
      self._ends = True
      self._changed.notify()

  def _waiting(self) -> int:
    desks = self.desks.values()
    return sum(desk.sentences + len(desk.looks) for desk in desks)

  def _check_room(self, more: int) -> None:
    if self._ends or self._waiting() + more > self._queue:
      raise Full

  def _work(self) -> None:
    try:
      while (desk := self._next()) is not None:
        self._advanced = time.monotonic()
        self._serve(desk)
        self._advanced = None
    finally:
      self.done.set_result(None)

  def _next(self) -> Desk | None:
    """The next run in turn for which something waits; None: the end."""
    with self._changed:
      was_idle = False
      while not self._ends and not self._waiting():
        was_idle = True
        self._changed.wait()
      if self._ends:
        return None
      if was_idle:
        end = time.monotonic() + COMPANY
        while (left := end - time.monotonic()) > 0 and not self._ends:
          self._changed.wait(left)
      for _ in range(len(self._turns)):
        desk = self._turns[0]
        self._turns.rotate(-1)
        if desk.jobs or desk.looks:
          return desk
      return self._turns[0]  # who waited has gone

  def _serve(self, desk: Desk) -> None:
    """A batch, and one more thing."""
    with self._changed:
      items = desk.take()
      look = desk.looks.popleft() if desk.looks else None
    if items:
      self._translate(desk.run, items)
    if look is not None and look.answer.set_running_or_notify_cancel():
      self._advanced = time.monotonic()
      _tell(look.answer, lambda: look.function(lambda: self._check(look)))

  def _check(self, work: Job | Look) -> bool:
    """Whether work is still wanted; called as it advances."""
    self._advanced = time.monotonic()
    return work.is_wanted

  def _translate(self, run: Served, items: Sequence[_Item]) -> None:
    """Answers each; what is wrong with one is told to who asked it alone."""
    if self._watch is not None:
      self._watch.batch(run.name, len(items))
    ready: list[tuple[_Item, Any, bool, Any]] = []
    asked: list[tuple[_Item, Any]] = []
    for item in items:
      try:
        place = item.request.place
        asked.append(
          (
            item,
            run.session.terms(
              item.request, item.place if place is None else place
            ),
          )
        )
      except Exception as error:
        item.answer.set_exception(error)
    try:
      read = run.reading.read([item.request.source for item, _ in asked])
    except Exception as error:
      read = [error] * len(asked)
    for (item, terms), one in zip(asked, read):
      if isinstance(one, Exception):
        item.answer.set_exception(one)
      else:
        ready.append((item, *one, terms))
    self._search(run, ready)

  def _search(
    self, run: Served, ready: Sequence[tuple[_Item, Any, bool, Any]]
  ) -> None:
    # While others of the batch were read, clients may have gone.
    ready = [one for one in ready if one[0].job.is_wanted]
    if not ready:
      return
    jobs = [item.job for item, _, _, _ in ready]
    try:
      found = run.session.search(
        [example for _, example, _, _ in ready],
        [terms for _, _, _, terms in ready],
        is_wanted=lambda number: self._check(jobs[number]),
      )
    except Exception as error:
      if len(ready) == 1:
        ready[0][0].answer.set_exception(error)
        return
      for one in ready:  # whichever it was, the others are answered
        self._search(run, [one])
      return
    for (item, _, cut, _), nbest in zip(ready, found, strict=True):
      item.answer.set_result(Answer(nbest, cut))


def _tell(answer: Future[Any], function: Callable[[], Any]) -> None:
  try:
    answer.set_result(function())
  except Exception as error:
    answer.set_exception(error)


def _most(run: Served) -> int:
  session = run.session
  decode = session.plan.config.decode
  return int(decode.search.together(decode)) * len(session.devices)
