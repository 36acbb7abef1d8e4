"""The body of a request: read within limits, and JSON of it, strictly."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from jaxsyn.serving.refusal import Refused

SECONDS = 20.0  # for a whole body
_LINGER = (
  1.0  # seconds for which what is too large is still read, to be told so
)


async def read_object(request: Request, most: int) -> dict[str, Any]:
  """The object that a body is.

  Args:
    request: that comes.
    most: bytes.

  Raises:
    Refused: it is too large, too slow, or no object of JSON.
    ClientDisconnect: who asked has gone.
  """
  return parsed(await _read(request, most))


def parsed(body: bytes) -> dict[str, Any]:
  """The object that some bytes are.

  Raises:
    Refused: they are none; or a text in it is no text.
  """
  try:
    text = body.decode("utf-8")
  except UnicodeDecodeError as error:
    raise Refused(
      400, f"the body is not UTF-8 (byte {error.start + 1})."
    ) from None
  try:
    told = json.loads(
      text.removeprefix("\ufeff"),
      object_pairs_hook=_once,
      parse_constant=_constant,
      parse_float=_finite,
    )
  except RecursionError:
    raise Refused(400, "the body is nested too deeply.") from None
  except ValueError as error:
    raise Refused(400, f"the body is no JSON ({error}).") from None
  if not isinstance(told, dict):
    raise Refused(400, 'the body is no object, as in {"text": "A dog runs."}.')
  try:
    _check_texts(told)
  except RecursionError:
    raise Refused(400, "the body is nested too deeply.") from None
  return told


async def _read(request: Request, most: int) -> bytes:
  too_large = Refused(
    413, f"the body is too large; at most {most:,} bytes.", close=True
  )
  chunks = request.stream()
  body = bytearray()
  try:
    async with asyncio.timeout(SECONDS):
      async for chunk in chunks:
        body += chunk
        if len(body) > most:
          break
      else:
        return bytes(body)
  except TimeoutError:
    raise Refused(
      408, f"the body did not come within {SECONDS:.0f} seconds.", close=True
    ) from None
  await _linger(chunks, most)
  raise too_large


async def _linger(chunks: AsyncIterator[bytes], most: int) -> None:
  """Reads on for a moment: whose sending is cut off would see no answer."""
  try:
    async with asyncio.timeout(_LINGER):
      async for _ in chunks:
        pass
  except (TimeoutError, ClientDisconnect):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  told = dict(pairs)
  if len(told) != len(pairs):
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise Refused(400, f"the name {twice[:80]!r} stands twice in an object.")
  return told


def _constant(name: str) -> NoReturn:
  raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
  number = float(digits)
  if not math.isfinite(number):
    raise ValueError(f"{digits[:20]} is too large a number")
  return number


def _check_texts(told: Any) -> None:
  """Refuses NUL, and halves of characters."""
  if isinstance(told, str):
    if "\0" in told:
      raise Refused(400, "a text has NUL in it (\\u0000).")
    try:
      told.encode("utf-8")
    except UnicodeEncodeError as error:
      raise Refused(
        400,
        f"a text has half a character in it (\\u{ord(told[error.start]):x}).",
      ) from None
  elif isinstance(told, Mapping):
    for name, value in told.items():
      _check_texts(name)
      _check_texts(value)
  elif isinstance(told, list):
    for value in told:
      _check_texts(value)
