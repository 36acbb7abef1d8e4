"""Paths of the server; docs/serving.md describes each with its fields."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import pathlib
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from jaxsyn.errors import InputError
from jaxsyn.serving import metrics, requests
from jaxsyn.serving.requests import Fields, HTTPError, ServiceLimits
from jaxsyn.serving.service import Service

T = TypeVar("T")
Results = AsyncIterator[dict[str, Any]]
PAGE = pathlib.Path(__file__).parent / "page"
BODY_SECONDS = 20.0  # within which a body must arrive
PARSED_INLINE = 4096  # bytes; larger bodies are parsed in another thread
_LOG = logging.getLogger("jaxsyn.serve")
_NO_STORE = {"Cache-Control": "no-store"}


def create_app(service: Service) -> Starlette:
  """Returns the application with the paths of a service."""
  paths = _Paths(service)
  return Starlette(
    routes=[
      Route("/", paths.page),
      Route("/health", paths.health),
      Route("/metrics", paths.metrics),
      Route("/runs", paths.runs),
      Route("/translate", paths.translate, methods=["POST"]),
      Route("/parse", paths.parse, methods=["POST"]),
      Route("/inspect", paths.inspect, methods=["POST"]),
      Mount("/static", paths.files),
    ],
    exception_handlers={
      HTTPException: _on_http_exception,
      HTTPError: _on_http_error,
      InputError: _on_input_error,
      ClientDisconnect: _on_disconnect,
      Exception: _on_internal_error,
    },
  )


class _Paths:
  """The handlers of the paths."""

  def __init__(self, service: Service):
    self._service, self.files = service, _PageFiles(directory=PAGE)

  async def page(self, request: Request) -> Response:
    return await self.files.get_response("index.html", request.scope)

  async def health(self, request: Request) -> Response:
    health = self._service.health
    return json_response(health, 200 if health["status"] == "ok" else 503)

  async def metrics(self, request: Request) -> Response:
    headers = {"Content-Type": metrics.CONTENT_TYPE, **_NO_STORE}
    return Response(self._service.metrics.text(), headers=headers)

  async def runs(self, request: Request) -> Response:
    return json_response(self._service.description)

  async def translate(self, request: Request) -> Response:
    fields = await self._read(request, requests.read_translate)
    service = self._service
    job = service.translate(fields)
    results = service.results(job, fields.nbest)
    cancel = functools.partial(service.worker.cancel, job)
    if fields.stream:
      return _TranslationStream(request, results, cancel)
    try:
      work = _collect(results, len(job.requests))
      translations = await _while_connected(request, work)
    finally:
      cancel()
    return json_response({"run": job.run, "translations": translations})

  async def parse(self, request: Request) -> Response:
    fields = await self._read(request, requests.read_parse)
    work = self._service.parse(fields)
    return json_response(await _while_connected(request, work))

  async def inspect(self, request: Request) -> Response:
    fields = await self._read(request, requests.read_inspect)
    work = self._service.inspect(fields)
    body = await _while_connected(request, work)
    return Response(body, media_type="application/json", headers=_NO_STORE)

  async def _read(
    self,
    request: Request,
    read_fields: Callable[[Fields, ServiceLimits], T],
  ) -> T:
    """Reads and checks the body of a request."""
    self._service.check_ready()
    limits = self._service.limits
    body = await _read_body(request, limits.max_bytes)
    if len(body) <= PARSED_INLINE:
      return requests.parse_body(body, limits, read_fields)
    # Parsing a megabyte takes seconds, in which the event loop must not stop.
    return await asyncio.to_thread(
      requests.parse_body, body, limits, read_fields
    )


class _PageFiles(StaticFiles):
  """Files of the page; browsers revalidate them before each use."""

  async def get_response(self, path: str, scope: Scope) -> Response:
    response = await super().get_response(path, scope)
    response.headers["Cache-Control"] = "no-cache"
    return response


class _TranslationStream(StreamingResponse):
  """Response with a line of JSON per sentence, sent when it is translated."""

  media_type = "application/x-ndjson"

  def __init__(
    self, request: Request, results: Results, cancel: Callable[[], None]
  ):
    # X-Accel-Buffering: nginx must forward each line immediately.
    headers = {"X-Accel-Buffering": "no", **_NO_STORE}
    super().__init__(_lines(results), headers=headers)
    self._request, self._cancel = request, cancel

  async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
    try:
      await _while_connected(self._request, self.stream_response(send))
    except ClientDisconnect:
      pass
    finally:
      self._cancel()


async def _lines(results: Results) -> AsyncIterator[bytes]:
  try:
    async for result in results:
      yield _dump(result) + b"\n"
  except HTTPError as error:
    yield _dump({"error": error.message}) + b"\n"
  except Exception as error:
    yield _dump({"error": _log_internal_error(error)}) + b"\n"


async def _collect(results: Results, count: int) -> list[dict[str, Any]]:
  """Returns the results of all sentences, in order.

  Raises:
    InputError: A sentence cannot be translated.
  """
  collected: dict[int, dict[str, Any]] = {}
  async for result in results:
    index = result.pop("index")
    if "error" in result:
      where = f"sentence {index + 1}: " if count > 1 else ""
      raise InputError(f"{where}{result['error']}")
    collected[index] = result
  return [collected[index] for index in range(count)]


async def _read_body(request: Request, max_bytes: int) -> bytes:
  """Reads the body of a request.

  Raises:
    HTTPError: It is too large, or too slow.
    ClientDisconnect: The client closed the connection.
  """
  length = int(request.headers.get("content-length") or 0)
  body = bytearray()
  try:
    async with asyncio.timeout(BODY_SECONDS):
      while length <= max_bytes:
        message = await request.receive()
        if message["type"] == "http.disconnect":
          raise ClientDisconnect
        body += message.get("body", b"")
        if not message.get("more_body", False):
          return bytes(body)
        length = max(length, len(body))
  except TimeoutError:
    raise HTTPError(
      408, f"the body did not come within {BODY_SECONDS:.0f} seconds."
    ) from None
  raise HTTPError(
    413,
    f"the body has {length:,} bytes; at most {max_bytes:,} are allowed. Send less "
    "at a time.",
  )


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
  """Returns the result of work, which is cancelled if the client disconnects.

  Raises:
    ClientDisconnect: The client closed the connection.
  """

  async def wait_for_disconnect() -> None:
    while (await request.receive())["type"] != "http.disconnect":
      pass

  working = asyncio.ensure_future(work)
  disconnected = asyncio.ensure_future(wait_for_disconnect())
  try:
    await asyncio.wait(
      {working, disconnected}, return_when=asyncio.FIRST_COMPLETED
    )
    if working.done():
      return working.result()
    raise ClientDisconnect
  finally:
    disconnected.cancel()
    if not working.done():
      working.cancel()
      with contextlib.suppress(asyncio.CancelledError, Exception):
        await working


def json_response(
  content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
  """Returns a response in JSON, which caches do not store."""
  return Response(
    _dump(content),
    status,
    headers=_NO_STORE | (headers or {}),
    media_type="application/json",
  )


def error_response(error: HTTPError) -> Response:
  """Returns the response for an error."""
  headers = {}
  if error.retry_after is not None:
    headers["Retry-After"] = str(error.retry_after)
  return json_response({"error": error.message}, error.status, headers)


def _dump(content: Any) -> bytes:
  return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def _log_internal_error(error: Exception) -> str:
  """Logs an internal error; returns a message for the client with its id."""
  name = uuid.uuid4().hex[:12]
  _LOG.error("fault %s", name, exc_info=error)
  return f"a fault of the server; its log has it as {name}."


async def _on_http_error(request: Request, error: Any) -> Response:
  return error_response(error)


async def _on_input_error(request: Request, error: Exception) -> Response:
  return json_response({"error": str(error)}, 422)


async def _on_http_exception(request: Request, error: Any) -> Response:
  message, path = error.detail, request.url.path[:200]
  if error.status_code == 404:
    message = f"there is nothing at {path}."
  elif error.status_code == 405:
    message = f"{request.method} is not for {path}."
  headers = dict(error.headers or {})
  return json_response({"error": message}, error.status_code, headers)


async def _on_disconnect(request: Request, error: Exception) -> Response:
  return Response(status_code=499)  # not sent; counted by the metrics


async def _on_internal_error(request: Request, error: Exception) -> Response:
  return json_response({"error": _log_internal_error(error)}, 500)
