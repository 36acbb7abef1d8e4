"""HTTP endpoints of `jaxsyn serve`: /translate, /parse, /inspect and others."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import AsyncGenerator, Awaitable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import jaxsyn
from jaxsyn.data.sentence import conllu
from jaxsyn.decode.requests import MalformedTree, TooLarge
from jaxsyn.decode.translator import EMPTY_TRANSLATION
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.serving.batching import Job, QueueFullError, Sentence, Worker
from jaxsyn.serving.requests import ServiceLimits, ServiceRequest, read_body
from jaxsyn.serving.responses import (
  ERROR_HANDLERS,
  INTERNAL_ERROR,
  HeadersMiddleware,
  json_bytes,
  json_response,
)
from jaxsyn.serving.runs import ServedRun, nbest_fields

T = TypeVar("T")
Results = AsyncGenerator[dict[str, Any], None]
PAGE = pathlib.Path(__file__).parent / "page"
_PARSER_THREADS = 8  # requests that wait for a parser at one time
_STATUSES = {TooLarge: 413, MalformedTree: 422}  # of other InputErrors: 400
_LOG = logging.getLogger("jaxsyn.serve")


class Service:
  """HTTP service that translates, parses and inspects with trained runs.

  Attributes:
    runs: Runs by name; the first is the default.
    limits: Limits of requests.
    state: Whether requests are accepted.
    worker: Thread that uses the devices.
  """

  def __init__(
    self,
    runs: Sequence[ServedRun],
    limits: ServiceLimits,
    *,
    max_sentences: int = 0,
  ):
    self.runs, self.limits = {run.name: run for run in runs}, limits
    self.state: Literal["starting", "ok", "ending"] = "starting"
    self.worker = Worker(max_waiting=limits.queue, max_sentences=max_sentences)
    self._parsers = ThreadPoolExecutor(_PARSER_THREADS, "parsing")
    self._origins: frozenset[str] = frozenset()

  def app(self, hosts: Sequence[str], origins: Sequence[str]) -> Starlette:
    """Returns the ASGI application for the allowed host names and web origins.

    Args:
      hosts: Names of the server that requests may have; "*": any.
      origins: Web pages on other hosts that may send requests and read
        responses.
    """
    self._origins = frozenset(origins)
    return Starlette(
      routes=[
        Route("/", self._page),
        Route("/health", self._health),
        Route("/runs", self._runs),
        Route("/translate", self._translate, methods=["POST"]),
        Route("/parse", self._parse, methods=["POST"]),
        Route("/inspect", self._inspect, methods=["POST"]),
        Mount("/static", StaticFiles(directory=PAGE)),
      ],
      middleware=[
        Middleware(HeadersMiddleware),
        # Prevents DNS rebinding, where a page's host name leads to this server.
        Middleware(TrustedHostMiddleware, allowed_hosts=hosts),
        Middleware(
          CORSMiddleware,
          allow_origins=origins,
          allow_methods=["GET", "POST"],
          allow_headers=["Content-Type"],
          expose_headers=["Retry-After"],
        ),
      ],
      exception_handlers=ERROR_HANDLERS,
    )

  def close(self) -> Future[None]:
    """Rejects new jobs; returns a future to await the current batch's end."""
    self.state = "ending"
    self._parsers.shutdown(wait=False, cancel_futures=True)
    for run in self.runs.values():
      run.readers.close()
    return self.worker.close()

  async def _page(self, request: Request) -> Response:
    return FileResponse(PAGE / "index.html")

  async def _health(self, request: Request) -> Response:
    return json_response(
      {"status": self.state}, 200 if self.state == "ok" else 503
    )

  async def _runs(self, request: Request) -> Response:
    return json_response(
      {
        "version": jaxsyn.__version__,
        "limits": dataclasses.asdict(self.limits),
        "runs": [run.description for run in self.runs.values()],
      }
    )

  async def _translate(self, request: Request) -> Response:
    fields = await self._read(
      request, "text", "conllu", "target_prefix", "requests", "nbest", "stream"
    )
    run = self._run(fields.run)
    if fields.nbest > run.max_nbest:
      raise HTTPException(
        422,
        f"nbest is {fields.nbest}, and {run.name!r} finds {run.max_nbest} "
        "translations of a sentence: the server's --beam.",
      )
    job = self._submit(Job(run, fields.sentences))
    results = self._results(job, fields.nbest)
    if fields.stream:
      return StreamingResponse(
        _json_lines(results),
        media_type="application/x-ndjson",
        # nginx must forward each line immediately.
        headers={"X-Accel-Buffering": "no"},
      )
    work = _collect(results, len(job.sentences))
    translations = await self._wait(request, work)
    return json_response({"run": run.name, "translations": translations})

  async def _parse(self, request: Request) -> Response:
    fields = await self._read(request, "text")
    readers = self._run(fields.run).readers
    if readers.why_no_parser:
      raise InputError(readers.why_no_parser)
    work = self._parsers.submit(readers.parse, fields.sentences[0].source)
    parse = await self._wait(request, asyncio.wrap_future(work))
    spans = zip(parse.start_W, parse.end_W)
    return json_response(
      {
        "text": parse.text,
        "conllu": conllu.to_text(parse, "1", is_complete=True),
        "words": [parse.text[start:end] for start, end in spans],
        "heads": list(parse.head_W),
        "relations": list(parse.relation_W),
        "parsed": parse.parsed,
      }
    )

  async def _inspect(self, request: Request) -> Response:
    fields = await self._read(request, "text", "conllu")
    run = self._run(fields.run)
    job = self._submit(Job(run, fields.sentences, inspects=True))
    try:
      result = asyncio.wrap_future(job.sentences[0].result)
      body = await self._wait(request, result)
    finally:
      self.worker.cancel(job)
    return Response(body, media_type="application/json")

  async def _read(self, request: Request, *names: str) -> ServiceRequest:
    """Reads and checks a request body, which may have the fields in `names`."""
    self._check_origin(request)
    if self.state != "ok":
      raise _busy(f"the server is {self.state}.")
    body, max_bytes = bytearray(), self.limits.max_bytes
    async for part in request.stream():
      body += part
      if len(body) > max_bytes:
        raise HTTPException(
          413,
          f"the body has more than {max_bytes:,} bytes. Send less at a time.",
        )
    try:
      # Parsing a megabyte takes seconds, in which the event loop must not stop.
      return await asyncio.to_thread(read_body, bytes(body), names, self.limits)
    except InputError as error:
      status = _STATUSES.get(type(error), 400)
      raise HTTPException(status, str(error)) from None

  def _check_origin(self, request: Request) -> None:
    """Raises HTTPException for requests from web pages on other hosts.

    CORS only hides the response from the page: its request would occupy the device.
    """
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    same = (f"http://{host}", f"https://{host}")
    if origin is not None and origin not in {*same, *self._origins}:
      raise HTTPException(
        403,
        f"pages of {origin[:80]!r} may not send requests. Start the server with "
        "--origins to allow them.",
      )

  def _run(self, name: str) -> ServedRun:
    if not name:
      return next(iter(self.runs.values()))
    if name not in self.runs:
      raise HTTPException(
        422, f"no run {name[:80]!r}. {did_you_mean(name[:80], self.runs)}"
      )
    return self.runs[name]

  def _submit(self, job: Job) -> Job:
    try:
      self.worker.submit(job)
    except QueueFullError:
      raise _busy(
        f"more than {self.limits.queue:,} sentences would wait; try again later."
      ) from None
    return job

  async def _results(self, job: Job, nbest: int) -> Results:
    """Yields each sentence's result as soon as it is translated.

    It has its "index", and an "error" if it cannot be translated.

    Raises:
      HTTPException: The translation takes too long.
    """
    tasks = [
      asyncio.ensure_future(_sentence_fields(sentence, nbest))
      for sentence in job.sentences
    ]
    try:
      for result in asyncio.as_completed(tasks, timeout=self.limits.timeout):
        yield await result
    except TimeoutError:
      raise self._timeout_error() from None
    finally:
      for task in tasks:
        task.cancel()
      self.worker.cancel(job)

  async def _wait(self, request: Request, work: Awaitable[T]) -> T:
    """Awaits a result, and cancels the work if the client disconnects.

    Raises:
      HTTPException: The work takes too long.
      ClientDisconnect: The client closed the connection.
    """
    working = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
      await asyncio.wait(
        {working, disconnected},
        timeout=self.limits.timeout,
        return_when=asyncio.FIRST_COMPLETED,
      )
      if working.done():
        return working.result()
      if disconnected.done():
        raise ClientDisconnect
      raise self._timeout_error()
    finally:
      disconnected.cancel()
      working.cancel()
      await asyncio.wait({working})  # so that it has left the queue

  def _timeout_error(self) -> HTTPException:
    return _busy(
      f"no response within {self.limits.timeout:g} seconds: the server is busy, "
      "or it compiles programs for sentences of this length. Send less at a "
      "time, or try again later."
    )


async def _sentence_fields(sentence: Sentence, nbest: int) -> dict[str, Any]:
  """Waits for a sentence's translation; returns its response fields."""
  try:
    found, cut = await asyncio.wrap_future(sentence.result)
  except InputError as error:
    return {"index": sentence.index, "error": str(error)}
  translations = found[:nbest] or [EMPTY_TRANSLATION]
  return {
    "index": sentence.index,
    "text": translations[0].text,
    "cut": cut,
    "nbest": nbest_fields(translations),
  }


async def _collect(results: Results, count: int) -> list[dict[str, Any]]:
  """Waits for the results of all sentences; returns them in input order.

  Raises:
    InputError: A sentence cannot be translated.
  """
  collected: dict[int, dict[str, Any]] = {}
  async with contextlib.aclosing(results):
    async for result in results:
      index = result.pop("index")
      if "error" in result:
        where = f"sentence {index + 1}: " if count > 1 else ""
        raise InputError(f"{where}{result['error']}")
      collected[index] = result
  return [collected[index] for index in range(count)]


async def _json_lines(results: Results) -> AsyncGenerator[bytes, None]:
  """Yields each result as a line of JSON; an error line ends the stream."""
  try:
    async with contextlib.aclosing(results):
      async for result in results:
        yield json_bytes(result) + b"\n"
  except HTTPException as error:
    yield json_bytes({"error": error.detail}) + b"\n"
  except Exception:
    _LOG.exception("internal error in a stream")
    yield json_bytes({"error": INTERNAL_ERROR}) + b"\n"


async def _wait_for_disconnect(request: Request) -> None:
  while (await request.receive())["type"] != "http.disconnect":
    pass


def _busy(message: str) -> HTTPException:
  """Returns an HTTP 503 error that asks the client to retry in 5 seconds."""
  return HTTPException(503, message, {"Retry-After": "5"})
