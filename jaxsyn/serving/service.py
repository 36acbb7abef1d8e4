"""The service: requests in, results out, independent of HTTP."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import jaxsyn
from jaxsyn.data.sentence import conllu
from jaxsyn.decode.translator import EMPTY_TRANSLATION
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.serving.batching import (
  InspectionJob,
  Job,
  QueueFullError,
  SentenceResult,
  TranslationJob,
  Worker,
)
from jaxsyn.serving.metrics import Metrics
from jaxsyn.serving.requests import (
  HTTPError,
  InspectRequest,
  ParseRequest,
  ServiceLimits,
  TranslateRequest,
)
from jaxsyn.serving.runs import ServedRun, nbest_fields

T = TypeVar("T")
State = Literal["starting", "ok", "ending"]
_PARSER_THREADS = 8  # requests that wait for a parser at one time
_RETRY_QUEUE = 1  # seconds after which a client may try again
_RETRY_STATE = 5  # seconds, where the server is not ready or too slow


class Service:
  """Runs that translate, parse and inspect.

  Attributes:
    runs: Runs by name; the first is the default.
    limits: Limits of requests.
    metrics: Metrics of the server.
    state: Whether requests are accepted.
    compiled: Numbers of compiled sizes and of all sizes, while the server starts;
      (0, 0): unknown.
    worker: Thread that uses the devices; it must be started.
  """

  def __init__(
    self,
    runs: Sequence[ServedRun],
    limits: ServiceLimits,
    *,
    max_sentences: int = 0,
  ):
    self.runs = {run.name: run for run in runs}
    self.limits, self.metrics = limits, Metrics()
    self.state: State = "starting"
    self.compiled = (0, 0)
    self.worker = Worker(
      runs,
      max_waiting=limits.queue,
      max_sentences=max_sentences,
      on_batch=self.metrics.count_batch,
    )
    self._parser_threads = ThreadPoolExecutor(_PARSER_THREADS, "parsing")
    self.metrics.add_gauge(
      "jaxsyn_queue_sentences",
      "Sentences that wait.",
      lambda: self.worker.waiting,
    )
    self.metrics.add_gauge(
      "jaxsyn_programs", "Programs compiled so far.", self._programs
    )

  @property
  def health(self) -> dict[str, Any]:
    """The response of GET /health."""
    compiled, sizes = self.compiled
    if self.state == "starting" and sizes:
      return {"status": self.state, "compiled": compiled, "sizes": sizes}
    if self.state == "ok":
      stalled = self.worker.stalled_seconds
      if self._is_compiling():
        programs = self._programs()
        return {"status": "ok", "compiling": True, "programs": programs}
      if stalled > self.limits.timeout:
        return {"status": "stuck", "seconds": round(stalled)}
    return {"status": self.state}

  @property
  def description(self) -> dict[str, Any]:
    """The response of GET /runs."""
    names = ("max_characters", "max_sentences", "max_bytes", "timeout")
    return {
      "version": jaxsyn.__version__,
      "limits": {name: getattr(self.limits, name) for name in names},
      "runs": [run.description for run in self.runs.values()],
    }

  def translate(self, request: TranslateRequest) -> TranslationJob:
    """Starts a translation; its `results` follow, and `worker.cancel` ends it.

    Raises:
      HTTPError: The server is not ready or full, or there is no such run.
    """
    self.check_ready()
    run = self._run(request.run)
    if request.nbest > run.max_nbest:
      raise HTTPError(
        422,
        f"nbest is {request.nbest}, and {run.name!r} finds {run.max_nbest} "
        "translations of a sentence: the server's --beam.",
      )
    job = TranslationJob(run.name, request.requests)
    self._submit(job)
    return job

  async def results(
    self, job: TranslationJob, nbest: int
  ) -> AsyncIterator[dict[str, Any]]:
    """Yields the result of each sentence when it is translated.

    It has its "index", and an "error" if it cannot be translated.

    Raises:
      HTTPError: The translation takes too long.
    """
    tasks = [
      asyncio.ensure_future(_result(index, future, nbest))
      for index, future in enumerate(job.results)
    ]
    try:
      for result in asyncio.as_completed(tasks, timeout=self.limits.timeout):
        yield await result
    except TimeoutError:
      raise self._timeout_error() from None
    finally:
      for task in tasks:
        task.cancel()

  async def parse(self, request: ParseRequest) -> dict[str, Any]:
    """Returns the response of POST /parse; raises HTTPError or InputError."""
    self.check_ready()
    readers = self._run(request.run).readers
    if readers.why_no_parser:
      raise InputError(readers.why_no_parser)
    parse = await self._within_timeout(
      asyncio.get_running_loop().run_in_executor(
        self._parser_threads, readers.parse, request.text
      )
    )
    spans = zip(parse.start_W, parse.end_W)
    return {
      "text": parse.text,
      "conllu": conllu.to_text(parse, "1", is_complete=True),
      "words": [parse.text[start:end] for start, end in spans],
      "heads": list(parse.head_W),
      "relations": list(parse.relation_W),
      "parsed": parse.parsed,
    }

  async def inspect(self, request: InspectRequest) -> bytes:
    """Returns the response of POST /inspect; raises HTTPError or InputError."""
    self.check_ready()
    run = self._run(request.run)
    job = InspectionJob(
      run.name, functools.partial(run.inspect, request.source, request.layers)
    )
    self._submit(job)
    try:
      return await self._within_timeout(asyncio.wrap_future(job.results[0]))
    finally:
      self.worker.cancel(job)

  def close(self) -> None:
    """Stops accepting work; the current batch continues."""
    self.state = "ending"
    self.worker.close()
    self._parser_threads.shutdown(wait=False, cancel_futures=True)
    for run in self.runs.values():
      run.close()

  def check_ready(self) -> None:
    """Raises HTTPError unless requests are accepted."""
    if self.state == "ok":
      return
    compiled, sizes = self.compiled
    progress = ""
    if self.state == "starting" and sizes:
      progress = f": {compiled} of {sizes} programs are compiled"
    raise HTTPError(
      503, f"the server is {self.state}{progress}.", retry_after=_RETRY_STATE
    )

  def _timeout_error(self) -> HTTPError:
    """Returns the error for a request that takes too long."""
    why = "the server is busy. Send less at a time, or ask again later."
    if self._is_compiling():
      why = (
        f"programs are being compiled ({self._programs()} so far). Ask again "
        "later."
      )
    return HTTPError(
      503,
      f"no answer within {self.limits.timeout:g} seconds: {why}",
      retry_after=_RETRY_STATE,
    )

  def _run(self, name: str) -> ServedRun:
    """Returns the run of a name; raises HTTPError."""
    if not name:
      return next(iter(self.runs.values()))
    if name not in self.runs:
      raise HTTPError(
        422, f"no run {name[:80]!r}. {did_you_mean(name[:80], self.runs)}"
      )
    return self.runs[name]

  def _submit(self, job: Job) -> None:
    try:
      self.worker.submit(job)
    except QueueFullError:
      raise HTTPError(
        503,
        f"more than {self.limits.queue:,} sentences would wait; ask later.",
        retry_after=_RETRY_QUEUE,
      ) from None

  async def _within_timeout(self, work: Awaitable[T]) -> T:
    """Returns the result of work; raises HTTPError if it takes too long."""
    try:
      return await asyncio.wait_for(work, self.limits.timeout)
    except TimeoutError:
      raise self._timeout_error() from None

  def _programs(self) -> int:
    return sum(run.session.compilations for run in self.runs.values())

  def _is_compiling(self) -> bool:
    return any(run.is_compiling for run in self.runs.values())


async def _result(
  index: int, future: Future[SentenceResult], nbest: int
) -> dict[str, Any]:
  """Waits for a sentence; returns its fields in the response."""
  try:
    result = await asyncio.wrap_future(future)
  except InputError as error:
    return {"index": index, "error": str(error)}
  translations = result.nbest[:nbest] or [EMPTY_TRANSLATION]
  return {
    "index": index,
    "text": translations[0].text,
    "cut": result.cut,
    "nbest": nbest_fields(translations),
  }
