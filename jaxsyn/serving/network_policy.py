"""Around all paths: who may ask, how often, and what goes with every answer.

Before this file: `app`. After it: `server`.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import socket
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jaxsyn.serving.app import app_of, refusal
from jaxsyn.serving.body import linger
from jaxsyn.serving.http_error import HTTPError
from jaxsyn.serving.limits import RateLimiter
from jaxsyn.serving.service import Service

PATHS = (
  *("/", "/health", "/metrics", "/runs"),
  *("/translate", "/parse", "/inspect"),
)
_HEADERS = {
  "Content-Security-Policy": "default-src 'self'; base-uri 'none'; "
  "form-action 'none'; frame-ancestors 'none'; object-src 'none'",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
}
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclasses.dataclass(frozen=True)
class NetworkPolicy:
  """From where requests are taken.

  Attributes:
    host: that the server listens at.
    allowed_hosts: names by which it may be called, beside the usual.
    origins: of pages elsewhere that may ask, as in https://example.org.
  """

  host: str = "127.0.0.1"
  allowed_hosts: Sequence[str] = ()
  origins: Sequence[str] = ()

  def is_host(self, header: str) -> bool:
    """Whether a request calls the server by a name of its own.

    A page elsewhere whose name was made to lead here calls it by that name. No
    address is such a name.
    """
    name = _hostname(header)
    if name in (*_LOCAL, self.host.lower()):
      return True
    if any(_matches(name, known.lower()) for known in self.allowed_hosts):
      return True
    if not _is_any(self.host):
      return False
    return _is_address(name) or name == socket.gethostname().lower()

  def is_origin(self, origin: str, host: str) -> bool:
    """Whether a page may ask: the server's own, or one that is named."""
    if origin in self.origins or "*" in self.origins:
      return True
    try:
      return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # as in "http://["
      return False


class Guard:
  """An application that answers nobody who may not ask."""

  def __init__(self, service: Service, policy: NetworkPolicy):
    self._service, self._doors = service, policy
    self._buckets = RateLimiter(service.limits.rate)
    app: ASGIApp = app_of(service)
    if policy.origins:
      app = CORSMiddleware(
        app,
        allow_origins=policy.origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Content-Type"],
        expose_headers=["Retry-After"],
      )
    self._app = app

  async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
      return
    began, status = time.perf_counter(), 0
    sent = Headers(scope=scope)
    is_read = sent.get("content-length", "0") == "0" and not _is_chunked(sent)

    async def take() -> Message:
      nonlocal is_read
      message = await receive()
      is_read = is_read or not message.get("more_body")
      return message

    async def tell(message: Message) -> None:
      nonlocal status
      if message["type"] == "http.response.start":
        status = message["status"]
        headers = MutableHeaders(scope=message)
        for name, value in _HEADERS.items():
          headers.setdefault(name, value)
        if not is_read:
          # The chunks of a flood of tiny ones are not read.
          await linger(take, max_reads=1 if _is_chunked(sent) else 1000)
          # Otherwise uvicorn would keep reading the unread body after the
          # response.
          headers["Connection"] = "close"
      await send(message)

    try:
      try:
        self._check(scope)
      except HTTPError as refused:
        await refusal(refused)(scope, take, tell)
        return
      await self._app(scope, take, tell)
    except Exception:
      if not status:
        raise
      # The log has it already, and who asked has an answer.
    finally:
      path = scope["path"]
      if path not in PATHS:
        path = "/static" if path.startswith("/static/") else "other"
      self._service.metrics.request(
        path, status or 499, time.perf_counter() - began
      )

  def _check(self, scope: Scope) -> None:
    """Raises HTTPError."""
    headers = Headers(scope=scope)
    if _is_chunked(headers):
      # Chunks of a byte each would take a minute to read.
      raise HTTPError(
        411,
        "a body without Content-Length (Transfer-Encoding: chunked) is not "
        "read. Send its length.",
      )
    host = headers.get("host", "")
    if not self._doors.is_host(host):
      raise HTTPError(
        400,
        f"the server is not called {host[:80]!r}; --allowed_hosts names it so.",
      )
    origin = headers.get("origin")
    if origin and not self._doors.is_origin(origin, host):
      raise HTTPError(
        403,
        f"pages of {origin[:80]!r} may not ask; --origins names those that may.",
      )
    if scope["method"] == "POST":
      client: Any = scope.get("client") or ("", 0)
      if wait := self._buckets.take(client[0]):
        raise HTTPError(
          429,
          f"too many requests: {self._service.limits.rate:g} a second at most.",
          retry_after=wait,
        )


def _hostname(header: str) -> str:
  """The name of a Host header, without its port; "" if it is none."""
  try:
    return urlsplit(f"//{header}").hostname or ""
  except ValueError:
    return ""


def _is_chunked(headers: Headers) -> bool:
  return "transfer-encoding" in headers


def _matches(name: str, known: str) -> bool:
  if known.startswith("*."):
    return name.endswith(known[1:])
  return known in (name, "*")


def _is_address(name: str) -> bool:
  try:
    ipaddress.ip_address(name)
  except ValueError:
    return False
  return True


def _is_any(host: str) -> bool:
  """Whether a server listens at all addresses of its machine."""
  return not host or (
    _is_address(host) and ipaddress.ip_address(host).is_unspecified
  )
