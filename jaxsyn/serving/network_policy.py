"""Checks of hosts and origins, security headers, and handling of unread bodies.

Starlette's TrustedHostMiddleware is not used: it cannot allow any numeric address,
as `--host 0.0.0.0` does, and its errors are not JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import socket
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jaxsyn.serving.app import create_app, error_response
from jaxsyn.serving.requests import HTTPError
from jaxsyn.serving.service import Service

# A client that is still sending when its connection is closed sees a reset instead
# of the response. Therefore more of a rejected body is read before.
LINGER = 1.0  # seconds
_COUNTED_PATHS = [
  "/",
  "/health",
  "/metrics",
  "/runs",
  "/translate",
  "/parse",
  "/inspect",
]
_SECURITY_HEADERS = {
  "Content-Security-Policy": "default-src 'self'; base-uri 'none'; "
  "form-action 'none'; frame-ancestors 'none'; object-src 'none'",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclasses.dataclass(frozen=True)
class NetworkPolicy:
  """Hosts and origins that are allowed.

  Attributes:
    host: Address at which the server listens.
    allowed_hosts: Further names of the server; "*.example.org" for subdomains.
    origins: Web pages on other hosts that may send requests, such as
      "https://example.org".
  """

  host: str = "127.0.0.1"
  allowed_hosts: Sequence[str] = ()
  origins: Sequence[str] = ()

  def check(self, headers: Headers) -> None:
    """Raises HTTPError unless host and origin of a request are allowed."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if not self._is_host(host):
      raise HTTPError(
        400,
        f"the server is not called {host[:80]!r}; --allowed_hosts names it so.",
      )
    # CORS alone lets other pages send requests whose responses they cannot read.
    if origin and not self._is_origin(origin, host):
      raise HTTPError(
        403,
        f"pages of {origin[:80]!r} may not ask; --origins names those that may.",
      )

  def _is_host(self, header: str) -> bool:
    """Whether a Host header names this server.

    This prevents DNS rebinding, in which a page's host name resolves to this
    server. A numeric address cannot be rebound.
    """
    try:
      name = urlsplit(f"//{header}").hostname or ""
    except ValueError:
      return False
    if name in ("localhost", "127.0.0.1", "::1", self.host.lower()):
      return True
    for allowed in map(str.lower, self.allowed_hosts):
      if allowed in (name, "*"):
        return True
      if allowed.startswith("*.") and name.endswith(allowed[1:]):
        return True
    listens = _address(self.host)
    if self.host and not (listens and listens.is_unspecified):
      return False
    return bool(_address(name)) or name == socket.gethostname().lower()

  def _is_origin(self, origin: str, host: str) -> bool:
    if origin in self.origins or "*" in self.origins:
      return True
    try:
      return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # such as "http://["
      return False


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
  try:
    return ipaddress.ip_address(name)
  except ValueError:
    return None


class Guard:
  """The application inside its checks of requests, headers and metrics.

  It surrounds Starlette's handler of internal errors, so that their responses are
  counted and get the headers too.
  """

  def __init__(self, service: Service, policy: NetworkPolicy):
    self._metrics, self._policy = service.metrics, policy
    self._app: ASGIApp = create_app(service)
    if policy.origins:
      self._app = CORSMiddleware(
        self._app,
        allow_origins=policy.origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Content-Type"],
        expose_headers=["Retry-After"],
      )

  async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
      return
    began, status = time.perf_counter(), 0
    body = _RequestBody(scope, receive)

    async def send_with_headers(message: Message) -> None:
      nonlocal status
      if message["type"] == "http.response.start":
        status = message["status"]
        headers = MutableHeaders(scope=message)
        for name, value in _SECURITY_HEADERS.items():
          headers.setdefault(name, value)
        if not body.is_read:
          await body.discard()
          # Otherwise uvicorn reads the rest after the response.
          headers["Connection"] = "close"
      await send(message)

    try:
      await self._respond(scope, body, send_with_headers)
    except Exception:
      # Starlette raises internal errors again after it has logged and sent them.
      if not status:
        raise
    finally:
      path = scope["path"]
      if path not in _COUNTED_PATHS:
        path = "/static" if path.startswith("/static/") else "other"
      seconds = time.perf_counter() - began
      self._metrics.count_request(path, status or 499, seconds)

  async def _respond(
    self, scope: Scope, body: _RequestBody, send: Send
  ) -> None:
    try:
      if body.is_chunked:
        # Chunks of one byte would occupy the event loop for a minute.
        raise HTTPError(
          411,
          "a body without Content-Length (Transfer-Encoding: chunked) is not "
          "read. Send its length.",
        )
      self._policy.check(Headers(scope=scope))
    except HTTPError as error:
      await error_response(error)(scope, body.receive, send)
    else:
      await self._app(scope, body.receive, send)


class _RequestBody:
  """The body of a request.

  Attributes:
    is_chunked: Whether its length is unknown.
    is_read: Whether its end was received.
  """

  def __init__(self, scope: Scope, receive: Receive):
    headers = Headers(scope=scope)
    self._receive = receive
    self.is_chunked = "transfer-encoding" in headers
    has_body = self.is_chunked or headers.get("content-length", "0") != "0"
    self.is_read = not has_body

  async def receive(self) -> Message:
    message = await self._receive()
    self.is_read = self.is_read or not message.get("more_body")
    return message

  async def discard(self) -> None:
    """Reads and ignores the rest, for a limited time."""
    reads = 1 if self.is_chunked else 1000  # not a flood of tiny chunks
    with contextlib.suppress(TimeoutError):
      async with asyncio.timeout(LINGER):
        while reads and not self.is_read:
          await self.receive()
          reads -= 1
