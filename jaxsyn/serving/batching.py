"""Continuous batching: sentences of many requests are translated together.

One thread uses the devices. For each run in turn, it takes a batch of waiting
sentences, and sets their results. A batch takes one sentence of each job in turn,
so that short requests do not wait for long ones.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from jaxsyn.decode.prefix import OutputRequest
from jaxsyn.decode.requests import Request, as_request
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.serving.runs import ServedRun


class QueueFullError(Exception):
  """Error for a job that the queue cannot take, since it is full or closed."""


class SentenceResult(NamedTuple):
  """N-best translations of one sentence, and whether it was truncated.

  Attributes:
    nbest: Translations, best first.
    cut: Whether the sentence was too long, and only its beginning was read.
  """

  nbest: list[Translation]
  cut: bool


class Job:
  """Sentences of one client's request, to be translated or inspected.

  Attributes:
    run: Run that translates or inspects.
    sentences: All sentences.
    waiting: Sentences that wait.
    inspects: Whether to inspect the sentences, not to translate them.
    is_wanted: Whether the client still waits.
  """

  def __init__(
    self,
    run: ServedRun,
    requests: Sequence[Request],
    *,
    inspects: bool = False,
  ):
    self.run, self.inspects, self.is_wanted = run, inspects, True
    self.sentences = [
      Sentence(self, index, request) for index, request in enumerate(requests)
    ]
    self.waiting = collections.deque(self.sentences)


@dataclasses.dataclass(frozen=True, eq=False)
class Sentence:
  """One sentence of a client's request, with a future of its result.

  Attributes:
    job: Its job.
    index: Index in the job.
    request: Request to translate or inspect it.
    result: Future of a SentenceResult, or of the JSON of an inspection.
  """

  job: Job
  index: int
  request: Request
  result: Future[Any] = dataclasses.field(default_factory=Future)


class _Input(NamedTuple):
  """Sentence converted to arrays, and whether it was truncated."""

  sentence: Sentence
  example: Any
  cut: bool
  output_request: OutputRequest


class Worker:
  """Thread that runs models on the devices, with a job queue for each run."""

  def __init__(self, *, max_waiting: int, max_sentences: int = 0):
    """Starts the thread that runs models on the devices.

    Args:
      max_waiting: Maximum number of waiting sentences.
      max_sentences: Maximum number of sentences in a batch; 0: the batch size of
        the run.
    """
    self._max_waiting, self._max_sentences = max_waiting, max_sentences
    self._thread = ThreadPoolExecutor(1, "devices")
    self._lock = threading.Lock()  # guards the following
    self._jobs: dict[ServedRun, collections.deque[Job]] = {}
    self._is_closed = False

  def submit(self, job: Job) -> None:
    """Adds a job to the queue of its run, or raises QueueFullError."""
    with self._lock:
      waiting = self._count_waiting() + len(job.sentences)
      if self._is_closed or waiting > self._max_waiting:
        raise QueueFullError
      if not job.sentences:
        return
      if job.run in self._jobs:  # its next batch is scheduled
        self._jobs[job.run].append(job)
      else:
        self._jobs[job.run] = collections.deque([job])
        self._thread.submit(self._work, job.run)

  def cancel(self, job: Job) -> None:
    """Cancels a job, even if it is running."""
    with self._lock:
      job.is_wanted = False
      job.waiting.clear()
    for sentence in job.sentences:
      sentence.result.cancel()

  def call(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Schedules a function on the device thread; returns its future."""
    return self._thread.submit(function, *args)

  @property
  def waiting(self) -> int:
    """Number of sentences that wait in the queues."""
    with self._lock:
      return self._count_waiting()

  def max_sentences(self, run: ServedRun) -> int:
    """Returns the maximum batch size of a run, in sentences."""
    return self._max_sentences or run.batch_size

  def close(self) -> Future[None]:
    """Stops the thread after its current batch; returns a future to await."""
    with self._lock:
      self._is_closed = True
    ended = self._thread.submit(lambda: None)
    self._thread.shutdown(wait=False)
    return ended

  def _count_waiting(self) -> int:
    jobs = itertools.chain.from_iterable(self._jobs.values())
    return sum(len(job.waiting) for job in jobs)

  def _work(self, run: ServedRun) -> None:
    """Processes a batch from one served model's queue; schedules the next."""
    with self._lock:
      batch = [] if self._is_closed else self._take_batch(run)
    # Those that are cancelled from here on end during the search.
    batch = [one for one in batch if one.result.set_running_or_notify_cancel()]
    for one in batch:
      if one.job.inspects:
        _inspect(run, one)
    _translate(run, [one for one in batch if not one.job.inspects])
    with self._lock:
      if self._jobs[run] and not self._is_closed:
        self._thread.submit(self._work, run)
      else:
        del self._jobs[run]

  def _take_batch(self, run: ServedRun) -> list[Sentence]:
    """Takes sentences from a run's queue, one from each job in turn."""
    queue, batch = self._jobs[run], list[Sentence]()
    while queue and len(batch) < self.max_sentences(run):
      job = queue.popleft()
      if job.waiting:  # not cancelled
        batch.append(job.waiting.popleft())
      if job.waiting:
        queue.append(job)
    return batch


@contextlib.contextmanager
def _errors_to(sentences: Sequence[Sentence]) -> Iterator[None]:
  """Stores an exception of the `with` block in the sentences' futures."""
  try:
    yield
  except Exception as error:
    for sentence in sentences:
      if not sentence.result.done():
        sentence.result.set_exception(error)


def _inspect(run: ServedRun, sentence: Sentence) -> None:
  with _errors_to([sentence]):
    source, job = sentence.request.source, sentence.job
    sentence.result.set_result(run.inspect(source, lambda: job.is_wanted))


def _translate(run: ServedRun, batch: Sequence[Sentence]) -> None:
  """Translates a batch; an error only affects the sentence that caused it."""
  inputs: list[_Input] = []
  with _errors_to(batch):
    read = run.readers.read([sentence.request.source for sentence in batch])
    for sentence, one in zip(batch, read, strict=True):
      with _errors_to([sentence]):
        if isinstance(one, InputError):
          raise one
        indexed = as_request(sentence.request, sentence.index)
        output_request = run.session.output_request(indexed)
        inputs.append(_Input(sentence, *one, output_request))
  _search(run, inputs)


def _search(run: ServedRun, inputs: Sequence[_Input]) -> None:
  # Clients may have disconnected while the batch was read.
  inputs = [one for one in inputs if one.sentence.job.is_wanted]
  if not inputs:
    return
  try:
    nbests = run.session.search(
      [one.example for one in inputs],
      [one.output_request for one in inputs],
      is_wanted=lambda index: inputs[index].sentence.job.is_wanted,
    )
  except Exception as error:
    if len(inputs) == 1:
      inputs[0].sentence.result.set_exception(error)
      return
    for one in inputs:  # any of them may be the cause
      _search(run, [one])
    return
  for one, nbest in zip(inputs, nbests, strict=True):
    one.sentence.result.set_result(SentenceResult(nbest, one.cut))
