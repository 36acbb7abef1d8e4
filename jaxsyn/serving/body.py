"""Reads the body of a request within limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from jaxsyn.decode.requests import MalformedTree, TooLarge, parse_json
from jaxsyn.errors import InputError
from jaxsyn.serving.http_error import HTTPError
from jaxsyn.serving.limits import ServiceLimits
from jaxsyn.serving.request_fields import Fields

T = TypeVar("T")
SECONDS = 20.0  # for a whole body
INLINE = 4096  # bytes; larger bodies are parsed in another thread
# A client whose connection is closed while it sends sees a reset instead of the
# answer, so that a little more is read before.
_LINGER = 1.0  # seconds


async def read(
  request: Request,
  limits: ServiceLimits,
  understand: Callable[[Fields, ServiceLimits], T],
) -> T:
  """Reads and parses a body.

  Args:
    request: to be read.
    limits: of the server.
    understand: makes what is returned of the object in the body.

  Raises:
    HTTPError: The body is too large, too slow, not a JSON object, or
      `understand` rejects it.
    ClientDisconnect: The client has gone.
  """
  body = await _bytes(request, limits.max_bytes)
  if len(body) <= INLINE:
    return _understood(body, limits, understand)
  # A megabyte takes seconds, in which nobody else would be answered.
  return await asyncio.to_thread(_understood, body, limits, understand)


async def linger(receive: Receive, max_reads: int = 1000) -> None:
  """Reads and ignores more of a body whose request is refused.

  Args:
    receive: of the request.
    max_reads: Maximum number of reads.
  """
  try:
    async with asyncio.timeout(_LINGER):
      for _ in range(max_reads):
        if not (await receive()).get("more_body"):
          return
  except TimeoutError:
    pass


def _understood(
  body: bytes,
  limits: ServiceLimits,
  understand: Callable[[Fields, ServiceLimits], T],
) -> T:
  try:
    text = body.decode("utf-8").removeprefix("\ufeff")
    fields = parse_json(text, "the body")
    if not isinstance(fields, dict):
      raise InputError(
        'the body is not an object, as in {"text": "A dog runs."}.'
      )
    return understand(fields, limits)
  except UnicodeDecodeError as error:
    raise HTTPError(
      400, f"the body is not UTF-8 (byte {error.start + 1})."
    ) from None
  except TooLarge as error:
    raise HTTPError(413, str(error)) from None
  except MalformedTree as error:
    raise HTTPError(422, str(error)) from None
  except InputError as error:
    raise HTTPError(400, str(error)) from None


async def _bytes(request: Request, max_bytes: int) -> bytes:
  length = int(request.headers.get("content-length") or 0)
  body = bytearray()
  try:
    async with asyncio.timeout(SECONDS):
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
      408, f"the body did not come within {SECONDS:.0f} seconds."
    ) from None
  raise HTTPError(
    413,
    f"the body has {length:,} bytes; at most {max_bytes:,} are allowed. Send less at "
    "a time.",
  )
