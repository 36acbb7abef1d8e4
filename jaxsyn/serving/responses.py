"""JSON responses, error handlers and security headers of the HTTP service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jaxsyn.errors import InputError

INTERNAL_ERROR = "an internal error; see the log of the server."
_HEADERS = {
  "Cache-Control": "no-cache",
  "Content-Security-Policy": "default-src 'self'; base-uri 'none'; "
  "form-action 'none'; frame-ancestors 'none'; object-src 'none'",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
}
_CHUNKED = (
  "a body without Content-Length (Transfer-Encoding: chunked) is not read. Send "
  "its length."
)


def json_bytes(content: Any) -> bytes:
  """Returns content encoded as JSON in UTF-8."""
  return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def json_response(
  content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
  return Response(json_bytes(content), status, headers, "application/json")


class HeadersMiddleware:
  """ASGI middleware that adds security headers, and rejects chunked bodies."""

  def __init__(self, app: ASGIApp):
    self._app = app

  async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
    async def send_with_headers(message: Message) -> None:
      if message["type"] == "http.response.start":
        headers = MutableHeaders(scope=message)
        for name, value in _HEADERS.items():
          headers.setdefault(name, value)
      await send(message)

    app = self._app
    if "transfer-encoding" in Headers(scope=scope):
      # Otherwise uvicorn would parse chunks of one byte for a minute.
      app = json_response({"error": _CHUNKED}, 411, {"Connection": "close"})
    await app(scope, receive, send_with_headers)


async def _on_http_exception(request: Request, error: Any) -> Response:
  content = {"error": error.detail}
  return json_response(content, error.status_code, error.headers)


async def _on_input_error(request: Request, error: Exception) -> Response:
  return json_response({"error": str(error)}, 422)


async def _on_disconnect(request: Request, error: Exception) -> Response:
  return Response(status_code=499)  # not sent


async def _on_internal_error(request: Request, error: Exception) -> Response:
  return json_response({"error": INTERNAL_ERROR}, 500)  # uvicorn logs it


ERROR_HANDLERS: dict[Any, Any] = {
  HTTPException: _on_http_exception,
  InputError: _on_input_error,
  ClientDisconnect: _on_disconnect,
  Exception: _on_internal_error,
}
