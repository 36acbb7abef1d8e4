"""What a server does, whatever brings the requests.

Before this file: `batching`, `asked`, `answers`. After it: `app`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import jaxsyn
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.serving import answers, request_fields
from jaxsyn.serving.batching import (
  Answer,
  QueueFullError,
  TranslationJob,
  Worker,
)
from jaxsyn.serving.http_error import HTTPError
from jaxsyn.serving.limits import ServiceLimits
from jaxsyn.serving.metrics import Metrics
from jaxsyn.serving.runs import Served

T = TypeVar("T")
State = Literal["starting", "ok", "ending"]
_PARSING = 8  # requests to parse that are begun at one time
_AGAIN = 1.0  # seconds after which who was sent away may ask again


class Service:
  """Runs that answer.

  Attributes:
    runs: by name.
    limits: of requests.
    metrics: of what was done.
    state: whether it answers.
    compiled: of the sizes that are compiled before it answers, how many are, and
      how many they are; (0, 0): nobody has said.
    worker: that does the work.
  """

  def __init__(
    self,
    runs: Sequence[Served],
    limits: ServiceLimits,
    *,
    max_sentences: int = 0,
  ):
    """Sets it up; `worker.start` starts it.

    Args:
      runs: the first is asked where none is named.
      limits: of requests.
      max_sentences: of `Worker`.
    """
    self.runs = {run.name: run for run in runs}
    self.limits, self.metrics = limits, Metrics()
    self.state: State = "starting"
    self.compiled = (0, 0)
    self.worker = Worker(
      runs,
      queue=limits.queue,
      max_sentences=max_sentences,
      observer=self.metrics,
    )
    # They wait for the processes that parse.
    self._parsing = ThreadPoolExecutor(_PARSING, "parsing")
    self.metrics.gauge(
      "jaxsyn_queue_sentences",
      "Sentences that wait.",
      lambda: self.worker.waiting,
    )
    self.metrics.gauge(
      "jaxsyn_programs",
      "Programs compiled so far.",
      lambda: self._programs,
    )

  @property
  def health(self) -> dict[str, Any]:
    """Its state, and what clients wait for."""
    compiled, sizes = self.compiled
    if self.state == "starting" and sizes:
      return {"status": self.state, "compiled": compiled, "sizes": sizes}
    status: dict[str, Any] = {"status": self.state}
    stalled = self.worker.stalled
    if self.state == "ok" and self._is_compiling:
      status |= {"compiling": True, "programs": self._programs}
    elif self.state == "ok" and stalled > self.limits.timeout:
      status = {"status": "stuck", "seconds": round(stalled)}
    return status

  def described(self) -> dict[str, Any]:
    """What clients are told of the server."""
    limits = self.limits
    return {
      "version": jaxsyn.__version__,
      "limits": {
        "max_characters": limits.max_characters,
        "max_sentences": limits.max_sentences,
        "max_bytes": limits.max_bytes,
        "rate": limits.rate,
        "timeout": limits.timeout,
      },
      "runs": [run.described for run in self.runs.values()],
    }

  def run(self, name: str) -> Served:
    """The run of a name; "": the first. Raises HTTPError."""
    if not name:
      return next(iter(self.runs.values()))
    if name not in self.runs:
      raise HTTPError(
        422, f"no run {name[:80]!r}. {did_you_mean(name[:80], self.runs)}"
      )
    return self.runs[name]

  @property
  def _programs(self) -> int:
    return sum(run.session.compilations for run in self.runs.values())

  @property
  def _is_compiling(self) -> bool:
    return any(run.note() for run in self.runs.values())

  def translate(self, request: request_fields.Translate) -> PendingTranslation:
    """Begins what POST /translate asks.

    Raises:
      HTTPError: The server is not ready or full, or there is no such run.
    """
    self.check_ready()
    run = self.run(request.run)
    nbest = request.nbest or 1
    if nbest > run.most:
      raise HTTPError(
        422,
        f"nbest is {nbest}, and {run.name!r} finds {run.most} translations of "
        "a sentence: the server's --beam.",
      )
    with self._not_full():
      job = self.worker.translate(run.name, request.requests)
    return PendingTranslation(self, run.name, job, nbest)

  async def parse(self, request: request_fields.ParseText) -> dict[str, Any]:
    """The answer to POST /parse; raises HTTPError, or InputError."""
    self.check_ready()
    reading = self.run(request.run).reading
    if reading.why_no_parser:
      raise InputError(reading.why_no_parser)
    work = asyncio.get_running_loop().run_in_executor(
      self._parsing, reading.parse, request.text
    )
    return answers.parsed(await self.within(work))

  async def inspect(self, request: request_fields.Inspect) -> bytes:
    """The answer to POST /inspect; raises HTTPError, or InputError."""
    self.check_ready()
    run = self.run(request.run)
    with self._not_full():
      task = self.worker.inspect(
        run.name,
        functools.partial(
          answers.inspected, run, request.source, request.layers
        ),
      )
    try:
      return await self.within(asyncio.wrap_future(task.answer))
    finally:
      self.worker.cancel(run.name, task)

  def close(self) -> None:
    """Ends what works, after what it is at."""
    self.state = "ending"
    self.worker.close()
    self._parsing.shutdown(wait=False, cancel_futures=True)
    for run in self.runs.values():
      run.close()

  def check_ready(self) -> None:
    """Raises HTTPError unless requests are answered."""
    if self.state == "ok":
      return
    compiled, sizes = self.compiled
    is_told = self.state == "starting" and sizes
    far = f": {compiled} of {sizes} programs are compiled" if is_told else ""
    raise HTTPError(
      503, f"the server is {self.state}{far}.", retry_after=5 * _AGAIN
    )

  async def within(self, work: Awaitable[T]) -> T:
    """What comes of work; raises HTTPError where it takes too long."""
    try:
      async with asyncio.timeout(self.limits.timeout):
        return await work
    except TimeoutError:
      raise self.late() from None

  def late(self) -> HTTPError:
    """For what took too long."""
    why = "the server is busy. Send less at a time, or ask again later."
    if self._is_compiling:
      why = f"programs are being compiled ({self._programs} so far). Ask again later."
    return HTTPError(
      503,
      f"no answer within {self.limits.timeout:g} seconds: {why}",
      retry_after=5 * _AGAIN,
    )

  @contextlib.contextmanager
  def _not_full(self) -> Iterator[None]:
    try:
      yield
    except QueueFullError:
      raise HTTPError(
        503,
        f"more than {self.limits.queue:,} sentences would wait; ask later.",
        retry_after=_AGAIN,
      ) from None


class PendingTranslation:
  """Sentences that are being translated; `cancel` it in the end.

  Attributes:
    run: name of the run.
    sentences: how many they are.
  """

  def __init__(
    self, service: Service, run: str, job: TranslationJob, nbest: int
  ):
    self._service, self._job, self._nbest = service, job, nbest
    self.run, self.sentences = run, len(job.answers)

  def cancel(self) -> None:
    """Cancels the sentences that are not translated yet."""
    self._service.worker.cancel(self.run, self._job)

  async def results(self) -> AsyncIterator[dict[str, Any]]:
    """Each sentence's answer as it is found, with its "index".

    One that cannot be translated has an "error" instead.

    Raises:
      HTTPError: it takes too long.
    """
    try:
      async with asyncio.timeout(self._service.limits.timeout):
        async for index, answer in self._ended():
          yield {"index": index, **self._on_answer(answer)}
    except TimeoutError:
      raise self._service.late() from None

  def _on_answer(self, answer: Future[Answer]) -> dict[str, Any]:
    error = answer.exception()
    if isinstance(error, InputError):
      return {"error": str(error)}
    return answers.translation(answer.result(), self._nbest)

  async def _ended(self) -> AsyncIterator[tuple[int, Future[Answer]]]:
    """(index, answer) of each sentence, as they are done."""
    loop = asyncio.get_running_loop()
    done: asyncio.Queue[tuple[int, Future[Answer]]] = asyncio.Queue()

    def tell(index: int, answer: Future[Answer]) -> None:
      with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(done.put_nowait, (index, answer))

    for index, answer in enumerate(self._job.answers):
      answer.add_done_callback(functools.partial(tell, index))
    for _ in self._job.answers:
      yield await done.get()
