"""What a server does, whatever brings the requests.

Before this file: `batching`, `asked`, `answers`. After it: `app`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import jaxsyn
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.serving import answers, asked
from jaxsyn.serving.batching import Full, Job, Worker
from jaxsyn.serving.limits import Limits
from jaxsyn.serving.metrics import Metrics
from jaxsyn.serving.refusal import Refused
from jaxsyn.serving.runs import Served

State = Literal["starting", "ok", "ending"]
_AGAIN = 1.0  # seconds after which who was sent away may ask again


class Service:
  """Runs that answer.

  Attributes:
    runs: by name.
    limits: of requests.
    metrics: of what was done.
    state: whether it answers.
    worker: that does the work.
  """

  def __init__(
    self, runs: Sequence[Served], limits: Limits, *, together: int = 0
  ):
    """Sets it up; `worker.start` starts it.

    Args:
      runs: the first is asked where none is named.
      limits: of requests.
      together: of `Worker`.
    """
    self.runs = {run.name: run for run in runs}
    self.limits, self.metrics = limits, Metrics()
    self.state: State = "starting"
    self.worker = Worker(
      runs, queue=limits.queue, together=together, watch=self.metrics
    )
    self.metrics.gauge(
      "jaxsyn_queue_sentences",
      "Sentences that wait.",
      lambda: self.worker.waiting,
    )
    self.metrics.gauge(
      "jaxsyn_programs",
      "Programs compiled so far.",
      lambda: sum(run.session.compilations for run in runs),
    )

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
      "runs": [run.described() for run in self.runs.values()],
    }

  def run(self, name: str) -> Served:
    """The run of a name; "": the first. Raises Refused."""
    if not name:
      return next(iter(self.runs.values()))
    if name not in self.runs:
      raise Refused(
        422, f"no run {name[:80]!r}. {did_you_mean(name[:80], self.runs)}"
      )
    return self.runs[name]

  async def translate(self, told: Any) -> AsyncIterator[dict[str, Any]]:
    """Answers to POST /translate, each as it is found.

    Yields: first what stands for all, {"run": ...}; then one of each sentence,
      with its "index"; of one that cannot be translated its "error" instead.

    Raises:
      Refused: the request is.
    """
    self.check_ready()
    request = asked.translate(told, self.limits)
    run = self.run(request.run)
    nbest = request.nbest or 1
    if nbest > run.most:
      raise Refused(
        422,
        f"nbest is {nbest}, and {run.name!r} finds {run.most} translations of "
        "a sentence: the server's --beam.",
      )
    with self._not_full():
      job = self.worker.translate(run.name, request.requests)
    yield {"run": run.name}
    try:
      async with asyncio.timeout(self.limits.timeout):
        async for index, answer in _as_found(job):
          error = answer.exception()
          if error is None:
            found = answers.translation(answer.result(), nbest)
            yield {"index": index, **found}
          elif isinstance(error, InputError):
            yield {"index": index, "error": str(error)}
          else:
            raise error
    except TimeoutError:
      raise self._late() from None
    finally:
      self.worker.leave(run.name, job)

  async def parse(self, told: Any) -> dict[str, Any]:
    """The answer to POST /parse; raises Refused, or InputError."""
    self.check_ready()
    name, line = asked.parse(told, self.limits)
    run = self.run(name)
    if run.why_no_parser:
      raise InputError(run.why_no_parser)
    return answers.parsed(
      await self._within(asyncio.to_thread(run.parse, line))
    )

  async def inspect(self, told: Any) -> bytes:
    """The answer to POST /inspect; raises Refused, or InputError."""
    self.check_ready()
    request = asked.inspect(told, self.limits)
    run = self.run(request.run)
    with self._not_full():
      answer = self.worker.look(
        run.name,
        functools.partial(
          answers.inspected, run, request.source, request.layers
        ),
      )
    return await self._within(asyncio.wrap_future(answer))

  def check_ready(self) -> None:
    """Raises Refused unless requests are answered."""
    if self.state != "ok":
      raise Refused(503, f"the server is {self.state}.", retry_after=5 * _AGAIN)

  async def _within(self, work: Any) -> Any:
    try:
      async with asyncio.timeout(self.limits.timeout):
        return await work
    except TimeoutError:
      raise self._late() from None

  def _late(self) -> Refused:
    return Refused(
      503,
      f"no answer within {self.limits.timeout:g} seconds: much waits. Ask for "
      "less at a time, or later.",
      retry_after=5 * _AGAIN,
    )

  @contextlib.contextmanager
  def _not_full(self) -> Any:
    try:
      yield
    except Full:
      raise Refused(
        503,
        f"more than {self.limits.queue:,} sentences would wait; ask later.",
        retry_after=_AGAIN,
      ) from None


async def _as_found(job: Job) -> AsyncIterator[tuple[int, Any]]:
  """(index, answer) of each sentence, as they are done."""
  loop = asyncio.get_running_loop()
  done: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()

  def tell(index: int, answer: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
      loop.call_soon_threadsafe(done.put_nowait, (index, answer))

  for index, answer in enumerate(job.answers):
    answer.add_done_callback(functools.partial(tell, index))
  for _ in job.answers:
    yield await done.get()
