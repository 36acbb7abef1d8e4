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


class QueueFullError(Exception):
  """No more sentences can wait."""


class BatchObserver(Protocol):
  """What is told of the work, for metrics."""

  def batch(self, run: str, sentences: int) -> None: ...


@dataclasses.dataclass(frozen=True)
class _Item:
  job: TranslationJob
  request: Request
  place: int
  answer: Future[Answer]


class TranslationJob:
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


class InspectionTask:
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


class RequestQueue:
  """What waits for a run.

  Attributes:
    run: that is asked.
    jobs: with sentences that wait.
    looks: other work with the run's model.
  """

  def __init__(self, run: Served, max_sentences: int):
    self.run, self.max_sentences = run, max_sentences
    self.jobs: collections.deque[TranslationJob] = collections.deque()
    self.inspections: collections.deque[InspectionTask] = collections.deque()

  @property
  def sentences(self) -> int:
    return sum(len(job.waiting) for job in self.jobs)

  def take(self) -> list[_Item]:
    """Sentences for a batch, one of each request in turn."""
    items: list[_Item] = []
    while self.jobs and len(items) < self.max_sentences:
      job = self.jobs.popleft()
      item = job.waiting.popleft()
      if item.answer.set_running_or_notify_cancel():
        items.append(item)
      if job.waiting:
        self.jobs.append(job)
    return items


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
    max_sentences: int = 0,
    observer: BatchObserver | None = None,
  ):
    """Sets it up; `start` starts it.

    Args:
      runs: that are served.
      queue: sentences that may wait; an inspection counts as one.
      max_sentences: sentences of a batch at most; 0: as many as the run's
        config has searched together on each device.
      observer: is told of each batch.
    """
    self.desks = {
      run.name: RequestQueue(run, max_sentences or _max_sentences(run))
      for run in runs
    }
    self._queue, self._watch = queue, observer
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

  def translate(self, run: str, requests: Sequence[Request]) -> TranslationJob:
    """Asks for translations.

    Raises:
      Full: too many wait.
    """
    job = TranslationJob(requests)
    with self._changed:
      self._check_room(len(requests))
      if requests:
        self.desks[run].jobs.append(job)
        self._changed.notify()
    return job

  def inspect(
    self, run: str, function: Callable[[Callable[[], bool]], Any]
  ) -> InspectionTask:
    """Asks for other work with a run's model; raises as `translate`."""
    task = InspectionTask(function)
    with self._changed:
      self._check_room(1)
      self.desks[run].inspections.append(task)
      self._changed.notify()
    return task

  def cancel(self, run: str, work: TranslationJob | InspectionTask) -> None:
    """Cancels the work for a request, also where it has begun."""
    work.is_wanted = False
    waiting: collections.deque[Any] = (
      self.desks[run].jobs
      if isinstance(work, TranslationJob)
      else self.desks[run].inspections
    )
    with self._changed:
      if work in waiting:
        waiting.remove(work)
    for answer in (
      work.answers if isinstance(work, TranslationJob) else [work.answer]
    ):
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
    return sum(queue.sentences + len(queue.inspections) for queue in desks)

  def _check_room(self, more: int) -> None:
    if self._ends or self._waiting() + more > self._queue:
      raise QueueFullError

  def _work(self) -> None:
    try:
      while (queue := self._next()) is not None:
        self._advanced = time.monotonic()
        self._serve(queue)
        self._advanced = None
    finally:
      self.done.set_result(None)

  def _next(self) -> RequestQueue | None:
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
        queue = self._turns[0]
        self._turns.rotate(-1)
        if queue.jobs or queue.inspections:
          return queue
      return self._turns[0]  # who waited has gone

  def _serve(self, queue: RequestQueue) -> None:
    """A batch, and one more thing."""
    with self._changed:
      items = queue.take()
      task = queue.inspections.popleft() if queue.inspections else None
    if items:
      self._translate(queue.run, items)
    if task is not None and task.answer.set_running_or_notify_cancel():
      self._advanced = time.monotonic()
      _resolve(task.answer, lambda: task.function(lambda: self._check(task)))

  def _check(self, work: TranslationJob | InspectionTask) -> bool:
    """Whether work is still wanted; called as it advances."""
    self._advanced = time.monotonic()
    return work.is_wanted

  def _translate(self, run: Served, items: Sequence[_Item]) -> None:
    """Answers each; what is wrong with one is told to who asked it alone."""
    if self._watch is not None:
      self._watch.batch(run.name, len(items))
    ready: list[tuple[_Item, Any, bool, Any]] = []
    pending: list[tuple[_Item, Any]] = []
    for item in items:
      index = item.request.index
      index = item.place if index is None else index
      try:
        output_request = run.session.output_request(item.request, index)
      except Exception as error:
        item.answer.set_exception(error)
      else:
        pending.append((item, output_request))
    try:
      read = run.reading.read([item.request.source for item, _ in pending])
    except Exception as error:
      read = [error] * len(pending)
    for (item, output_request), one in zip(pending, read):
      if isinstance(one, Exception):
        item.answer.set_exception(one)
      else:
        ready.append((item, *one, output_request))
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
      nbests = run.session.search(
        [example for _, example, _, _ in ready],
        [output_request for _, _, _, output_request in ready],
        is_wanted=lambda index: self._check(jobs[index]),
      )
    except Exception as error:
      if len(ready) == 1:
        ready[0][0].answer.set_exception(error)
        return
      for one in ready:  # whichever it was, the others are answered
        self._search(run, [one])
      return
    for (item, _, cut, _), nbest in zip(ready, nbests, strict=True):
      item.answer.set_result(Answer(nbest, cut))


def _resolve(answer: Future[Any], function: Callable[[], Any]) -> None:
  try:
    answer.set_result(function())
  except Exception as error:
    answer.set_exception(error)


def _max_sentences(run: Served) -> int:
  session = run.session
  decode = session.plan.config.decode
  return int(decode.search.batch_size(decode)) * len(session.devices)
