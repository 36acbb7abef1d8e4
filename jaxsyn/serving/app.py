"""The paths of the server: docs/serving.md has each with its fields.

Before this file: `service`, `body`. After it: `guard`, around all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from jaxsyn.errors import InputError
from jaxsyn.serving import metrics, request_fields
from jaxsyn.serving.body import read
from jaxsyn.serving.http_error import HTTPError
from jaxsyn.serving.limits import ServiceLimits, seconds
from jaxsyn.serving.request_fields import Fields
from jaxsyn.serving.service import PendingTranslation, Service

T = TypeVar("T")
PAGE = pathlib.Path(__file__).parent / "page"
_LOG = logging.getLogger("jaxsyn.serve")
_NEVER = {"Cache-Control": "no-store"}
_KINDS = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".ico": "image/x-icon",
  ".woff2": "font/woff2",
}


def app_of(service: Service, page: pathlib.Path = PAGE) -> Starlette:
  """The paths of a service.

  Args:
    service: that answers.
    page: folder of the page and its files.
  """
  files = _Files(directory=page, check_dir=False)
  paths = _Paths(service, files)
  return Starlette(
    routes=[
      Route("/", paths.page),
      Route("/health", paths.health),
      Route("/metrics", paths.metrics),
      Route("/runs", paths.runs),
      Route("/translate", paths.translate, methods=["POST"]),
      Route("/parse", paths.parse, methods=["POST"]),
      Route("/inspect", paths.inspect, methods=["POST"]),
      Mount("/static", files),
    ],
    exception_handlers={
      HTTPException: _http,
      HTTPError: _refused,
      InputError: _impossible,
      ClientDisconnect: _gone,
      Exception: _fault,
    },
  )


class _Paths:
  """A method a path."""

  def __init__(self, service: Service, files: StaticFiles):
    self._service, self._files = service, files

  async def page(self, request: Request) -> Response:
    try:
      return await self._files.get_response("index.html", request.scope)
    except HTTPException:
      raise HTTPException(404, "there is no page here; see /runs.") from None

  async def health(self, request: Request) -> Response:
    status = self._service.health
    return as_json(status, 200 if status["status"] == "ok" else 503)

  async def metrics(self, request: Request) -> Response:
    return Response(
      self._service.metrics.text(),
      headers={"Content-Type": metrics.CONTENT_TYPE} | _NEVER,
    )

  async def runs(self, request: Request) -> Response:
    return as_json(self._service.described())

  async def translate(self, request: Request) -> Response:
    wanted = await self._read(request, request_fields.translate)
    translating = self._service.translate(wanted)
    if wanted.stream:
      return _Stream(request, translating)
    try:
      answers = await _while_connected(request, _all(translating))
    finally:
      translating.cancel()
    return as_json({"run": translating.run, "translations": answers})

  async def parse(self, request: Request) -> Response:
    wanted = await self._read(request, request_fields.parse)
    return as_json(await _while_connected(request, self._service.parse(wanted)))

  async def inspect(self, request: Request) -> Response:
    wanted = await self._read(request, request_fields.inspect)
    body = await _while_connected(request, self._service.inspect(wanted))
    return Response(body, media_type="application/json", headers=_NEVER)

  async def _read(
    self, request: Request, understand: Callable[[Fields, ServiceLimits], T]
  ) -> T:
    self._service.check_ready()
    return await read(request, self._service.limits, understand)


class _Files(StaticFiles):
  """Files of the page; a browser asks each time whether they have changed."""

  async def check_config(self) -> None:
    """A folder that is not there has no files."""
    if not pathlib.Path(str(self.directory)).is_dir():
      raise HTTPException(404)

  async def get_response(self, path: str, scope: Scope) -> Response:
    response = await super().get_response(path, scope)
    response.headers["Cache-Control"] = "no-cache"
    if kind := _KINDS.get(pathlib.PurePath(path).suffix):
      # Not as this machine's list of types has it: browsers are strict.
      response.headers["Content-Type"] = kind
    return response


class _Stream(Response):
  """Lines of JSON, each sent as it is found."""

  media_type = "application/x-ndjson"

  def __init__(self, request: Request, translating: PendingTranslation):
    # A proxy is not to wait for more (nginx).
    super().__init__(headers=_NEVER | {"X-Accel-Buffering": "no"})
    del self.headers["Content-Length"]
    self._request, self._translating = request, translating

  async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
    try:
      await _while_connected(self._request, self._send_line(send))
    except ClientDisconnect:
      pass
    finally:
      self._translating.cancel()

  async def _send_line(self, send: Send) -> None:
    await send(
      {
        "type": "http.response.start",
        "status": self.status_code,
        "headers": self.raw_headers,
      }
    )
    try:
      async for line in self._translating.results():
        await send(_line(line))
    except HTTPError as refused:
      await send(_line({"error": refused.message}))
    except Exception as error:
      await send(_line({"error": _logged(error)}))
    await send({"type": "http.response.body", "body": b""})


async def _all(translating: PendingTranslation) -> list[dict[str, Any]]:
  """The answers to all sentences, in order; raises InputError for one's."""
  by_index: dict[int, dict[str, Any]] = {}
  async for one in translating.results():
    index = one.pop("index")
    if "error" in one:
      where = f"sentence {index + 1}: " if translating.sentences > 1 else ""
      raise InputError(f"{where}{one['error']}")
    by_index[index] = one
  return [by_index[index] for index in sorted(by_index)]


def _line(content: dict[str, Any]) -> dict[str, Any]:
  """A part of an answer: a line of JSON."""
  body = _dumped(content) + b"\n"
  return {"type": "http.response.body", "body": body, "more_body": True}


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
  """What comes of work, unless who asked goes away: then it is given up.

  Raises:
    ClientDisconnect: it went.
  """
  doing = asyncio.ensure_future(work)
  gone = asyncio.ensure_future(_gone_away(request.receive))
  try:
    await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
    if doing.done():
      return doing.result()
    raise ClientDisconnect
  finally:
    gone.cancel()
    if not doing.done():
      doing.cancel()
      with contextlib.suppress(asyncio.CancelledError, Exception):
        await doing


async def _gone_away(receive: Callable[[], Awaitable[Any]]) -> None:
  while (await receive())["type"] != "http.disconnect":
    pass


def as_json(
  content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
  """An answer."""
  return Response(
    _dumped(content),
    status,
    headers=_NEVER | (headers or {}),
    media_type="application/json",
  )


def refusal(error: HTTPError) -> Response:
  """The answer to a request that is refused."""
  headers = {}
  if error.retry_after is not None:
    headers["Retry-After"] = seconds(error.retry_after)
  return as_json({"error": error.message}, error.status, headers)


def _dumped(content: Any) -> bytes:
  return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def _logged(error: Exception) -> str:
  """What a client is told of a fault of ours, which the log has whole."""
  name = uuid.uuid4().hex[:12]
  _LOG.error("fault %s", name, exc_info=error)
  return f"a fault of the server; its log has it as {name}."


async def _refused(request: Request, error: Exception) -> Response:
  assert isinstance(error, HTTPError)
  return refusal(error)


async def _impossible(request: Request, error: Exception) -> Response:
  return as_json({"error": str(error)}, 422)


async def _http(request: Request, error: Exception) -> Response:
  assert isinstance(error, HTTPException)
  message = error.detail
  if error.status_code == 404 and message == "Not Found":
    message = f"there is nothing at {request.url.path[:200]}."
  if error.status_code == 405:
    message = f"{request.method} is not for {request.url.path[:200]}."
  headers = dict(error.headers or {})
  return as_json({"error": message}, error.status_code, headers)


async def _gone(request: Request, error: Exception) -> Response:
  return Response(status_code=499)  # which nobody reads: for the metrics


async def _fault(request: Request, error: Exception) -> Response:
  return as_json({"error": _logged(error)}, 500)
