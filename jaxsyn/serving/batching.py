"""Continuous batching: sentences of many requests are translated together.

One thread uses the devices. For each run in turn it takes a batch of waiting
sentences, translates it, and sets the results. A batch takes one sentence of each
request in turn, so that short requests do not wait for long ones.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from jaxsyn.decode.requests import Request
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.serving.runs import ServedRun

BATCH_DELAY = 0.003  # seconds that an idle worker waits for further sentences


class QueueFullError(Exception):
  """No more sentences may wait."""


@dataclasses.dataclass(frozen=True)
class SentenceResult:
  """The result of a sentence.

  Attributes:
    nbest: Translations, best first.
    cut: Whether the sentence was too long, and only its beginning was read.
  """

  nbest: list[Translation]
  cut: bool


class Job:
  """Work of one request.

  Attributes:
    run: Name of the run.
    results: Futures of the results.
    waiting: Indices of results for which work has not started.
    is_wanted: Whether the client still waits.
  """

  def __init__(self, run: str, count: int):
    self.run, self.is_wanted = run, True
    self.results: list[Future[Any]] = [Future() for _ in range(count)]
    self.waiting = collections.deque(range(count))


class TranslationJob(Job):
  """The sentences of a request; each result is a SentenceResult."""

  def __init__(self, run: str, requests: Sequence[Request]):
    super().__init__(run, len(requests))
    self.requests = requests


class InspectionJob(Job):
  """Other work with the model of a run.

  Attributes:
    function: Function that does the work; its argument is a function that returns
      whether the client still waits.
  """

  def __init__(self, run: str, function: Callable[[Callable[[], bool]], Any]):
    super().__init__(run, 1)
    self.function = function


@dataclasses.dataclass(frozen=True)
class _Sentence:
  """A sentence of a batch."""

  job: TranslationJob
  index: int

  @property
  def request(self) -> Request:
    return self.job.requests[self.index]

  @property
  def result(self) -> Future[Any]:
    return self.job.results[self.index]


class RequestQueue:
  """The jobs that wait for a run.

  Attributes:
    run: The run.
    max_sentences: Maximum number of sentences in a batch.
    translations, inspections: Jobs with waiting work.
  """

  def __init__(self, run: ServedRun, max_sentences: int):
    self.run, self.max_sentences = run, max_sentences
    self.translations: collections.deque[TranslationJob] = collections.deque()
    self.inspections: collections.deque[InspectionJob] = collections.deque()

  @property
  def waiting(self) -> int:
    """Number of waiting sentences; an inspection counts as one."""
    sentences = sum(len(job.waiting) for job in self.translations)
    return sentences + len(self.inspections)

  def jobs_like(self, job: Job) -> collections.deque[Any]:
    """Returns the waiting jobs of the kind of a job."""
    is_inspection = isinstance(job, InspectionJob)
    return self.inspections if is_inspection else self.translations

  def take_batch(self) -> list[_Sentence]:
    """Takes sentences for a batch, one of each request in turn."""
    batch: list[_Sentence] = []
    while self.translations and len(batch) < self.max_sentences:
      job = self.translations.popleft()
      batch.append(_Sentence(job, job.waiting.popleft()))
      if job.waiting:
        self.translations.append(job)
    return batch


class Worker:
  """The thread that uses the devices.

  Attributes:
    queues: Queue of each run, by name.
    done: Future that is set when the thread has ended.
  """

  def __init__(
    self,
    runs: Sequence[ServedRun],
    *,
    max_waiting: int,
    max_sentences: int,
    on_batch: Callable[[str, int], None],
  ):
    """Creates the worker; `start` starts its thread.

    Args:
      runs: Runs that are served.
      max_waiting: Maximum number of waiting sentences.
      max_sentences: Maximum number of sentences in a batch; 0: that of the run's
        config, for each device.
      on_batch: Called with the name of the run and the size of each batch.
    """
    self.queues = {
      run.name: RequestQueue(run, max_sentences or _batch_size(run))
      for run in runs
    }
    self._max_waiting, self._on_batch = max_waiting, on_batch
    self._changed = threading.Condition()  # guards the queues
    self._is_closed = False
    self._last_progress: float | None = None  # None: idle
    self._turns = collections.deque(self.queues.values())
    self._thread = threading.Thread(
      target=self._work, name="worker", daemon=True
    )
    self.done: Future[None] = Future()

  def start(self) -> None:
    self._thread.start()

  def submit(self, job: Job) -> None:
    """Adds a job to the queue of its run; raises QueueFullError."""
    with self._changed:
      more = len(job.waiting)
      if self._is_closed or self._waiting() + more > self._max_waiting:
        raise QueueFullError
      if more:
        self.queues[job.run].jobs_like(job).append(job)
        self._changed.notify()

  def cancel(self, job: Job) -> None:
    """Cancels a job, also if it is running."""
    job.is_wanted = False
    with self._changed, contextlib.suppress(ValueError):  # not waiting
      self.queues[job.run].jobs_like(job).remove(job)
    for result in job.results:
      result.cancel()

  @property
  def stalled_seconds(self) -> float:
    """Seconds since the current work last made progress; 0 without work."""
    last = self._last_progress
    return 0.0 if last is None else time.monotonic() - last

  @property
  def waiting(self) -> int:
    """Number of waiting sentences."""
    with self._changed:
      return self._waiting()

  def close(self) -> None:
    """Ends the thread after its current batch."""
    with self._changed:
      self._is_closed = True
      self._changed.notify()

  def _waiting(self) -> int:
    return sum(queue.waiting for queue in self.queues.values())

  def _work(self) -> None:
    try:
      while self._wait_for_jobs():
        queue = self._turns[0]
        self._turns.rotate(-1)
        with self._changed:
          batch = queue.take_batch()
          inspections = queue.inspections
          inspection = inspections.popleft() if inspections else None
        self._translate(queue.run, batch)
        if inspection is not None:
          self._inspect(inspection)
        self._last_progress = None
    finally:
      self.done.set_result(None)

  def _wait_for_jobs(self) -> bool:
    """Waits until there is work; returns whether to continue."""
    with self._changed:
      if not self._is_closed and not self._waiting():
        while not self._is_closed and not self._waiting():
          self._changed.wait()
        end = time.monotonic() + BATCH_DELAY
        while (left := end - time.monotonic()) > 0 and not self._is_closed:
          self._changed.wait(left)
      return not self._is_closed

  def _is_wanted(self, job: Job) -> bool:
    """Returns whether a job is still wanted; called when it makes progress."""
    self._last_progress = time.monotonic()
    return job.is_wanted

  def _inspect(self, job: InspectionJob) -> None:
    (result,) = job.results
    if not self._is_wanted(job) or not result.set_running_or_notify_cancel():
      return
    try:
      result.set_result(job.function(lambda: self._is_wanted(job)))
    except Exception as error:
      result.set_exception(error)

  def _translate(self, run: ServedRun, batch: Sequence[_Sentence]) -> None:
    """Translates sentences; an error is reported only to its own client."""
    batch = [one for one in batch if one.result.set_running_or_notify_cancel()]
    if not batch:
      return
    self._last_progress = time.monotonic()
    self._on_batch(run.name, len(batch))
    try:
      self._search(run, _read(run, batch))
    except Exception as error:  # the thread must not end
      for sentence in batch:
        if not sentence.result.done():
          sentence.result.set_exception(error)

  def _search(
    self, run: ServedRun, inputs: Sequence[tuple[_Sentence, Any, bool, Any]]
  ) -> None:
    # Clients may have disconnected while the batch was read.
    inputs = [one for one in inputs if one[0].job.is_wanted]
    if not inputs:
      return
    sentences, examples, cuts, output_requests = zip(*inputs)
    try:
      nbests = run.session.search(
        examples,
        output_requests,
        is_wanted=lambda index: self._is_wanted(sentences[index].job),
      )
    except Exception as error:
      if len(inputs) == 1:
        sentences[0].result.set_exception(error)
        return
      for one in inputs:  # any of them may be the cause
        self._search(run, [one])
      return
    for sentence, nbest, cut in zip(sentences, nbests, cuts, strict=True):
      sentence.result.set_result(SentenceResult(nbest, cut))


def _read(
  run: ServedRun, batch: Sequence[_Sentence]
) -> list[tuple[_Sentence, Any, bool, Any]]:
  """Reads the sentences of a batch; the results of invalid ones are errors.

  Returns:
    Each valid sentence, its example, whether it was cut, and its output request.
  """
  inputs = []
  read = run.readers.read([sentence.request.source for sentence in batch])
  for sentence, one in zip(batch, read, strict=True):
    request = sentence.request
    index = sentence.index if request.index is None else request.index
    try:
      if isinstance(one, InputError):
        raise one
      output_request = run.session.output_request(request, index)
    except Exception as error:
      sentence.result.set_exception(error)
    else:
      inputs.append((sentence, *one, output_request))
  return inputs


def _batch_size(run: ServedRun) -> int:
  session = run.session
  decode = session.plan.config.decode
  return int(decode.search.batch_size(decode)) * len(session.devices)
