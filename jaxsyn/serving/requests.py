"""Parses JSON request bodies and checks them against the service limits.

This module does not import Starlette, since `jaxsyn serve --help` must work
without it. The functions raise the errors of `jaxsyn.decode.requests`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Annotated, Any

from jaxsyn.decode.requests import (
  MAX_CHARACTERS,
  Request,
  TooLarge,
  from_object,
  parse_json,
  sentence,
  wrong_type,
)
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import option
from jaxsyn.options.bounds import Range

SOURCES = ("text", "conllu", "requests")  # a body has exactly one of them
MAX_NAME = 1000  # characters of a run's name


@dataclasses.dataclass(frozen=True)
class ServiceLimits:
  """Limits of the service; each field is a flag of `jaxsyn serve`."""

  max_characters: Annotated[int, Range(1, 1_000_000)] = option(
    MAX_CHARACTERS,
    "Maximum length of a sentence or target prefix, in characters; HTTP 413 "
    "if exceeded.",
    unit="characters",
  )
  max_sentences: Annotated[int, Range(1, 1_000_000)] = option(
    100,
    "Maximum number of sentences in a request; HTTP 413 if exceeded.",
    unit="sentences",
  )
  max_bytes: Annotated[int, Range(1, 2**31)] = option(
    1_000_000,
    "Maximum size of a request's body, in bytes; HTTP 413 if exceeded.",
    unit="bytes",
  )
  queue: Annotated[int, Range(1, 10_000_000)] = option(
    1000,
    "Maximum number of waiting sentences; HTTP 503 if exceeded.",
    unit="sentences",
  )
  timeout: Annotated[float, Range(0.01, 86_400)] = option(
    60.0,
    "Maximum time until the response, in seconds; HTTP 503 if exceeded.",
    unit="seconds",
  )
  connections: Annotated[int, Range(1, 1_000_000)] = option(
    1000, "Maximum number of open connections; HTTP 503 if exceeded."
  )


@dataclasses.dataclass(frozen=True)
class ServiceRequest:
  """Parsed body of a POST request.

  Attributes:
    run: Name of the run; "": the first one.
    sentences: Sentences to translate, parse or inspect.
    nbest: Number of translations of each sentence.
    stream: Whether to send each translation as soon as it is finished.
  """

  run: str
  sentences: tuple[Request, ...]
  nbest: int
  stream: bool


def read_body(
  body: bytes, names: Collection[str], limits: ServiceLimits
) -> ServiceRequest:
  """Parses and checks the body of a POST request.

  Args:
    body: JSON object in UTF-8.
    names: Allowed names, in addition to "run".
    limits: Limits of the service.

  Raises:
    TooLarge, MalformedTree, InputError: See `jaxsyn.decode.requests`.
  """
  fields = _fields(body, ("run", *names))
  run = sentence(fields.pop("run", ""), "run", MAX_NAME)
  nbest = fields.pop("nbest", 1)
  if not isinstance(nbest, int) or isinstance(nbest, bool) or nbest < 1:
    raise wrong_type("nbest", "a whole number from 1", nbest)
  stream = fields.pop("stream", False)
  if not isinstance(stream, bool):
    raise wrong_type("stream", "true or false", stream)
  sources = [name for name in SOURCES if name in names]
  found = [name for name in sources if name in fields]
  if len(found) != 1:
    listing = " and ".join(map(repr, found)) or "none"
    raise InputError(
      f"exactly one of {', '.join(map(repr, sources))} is needed, got {listing}."
    )
  longest = limits.max_characters
  if "requests" not in fields:
    one = from_object(fields, "", longest, longest)
    return ServiceRequest(run, (one,), nbest, stream)
  if "target_prefix" in fields:
    raise InputError("'target_prefix' must be in an element of 'requests'.")
  items = fields["requests"]
  if not isinstance(items, list):
    raise wrong_type("requests", "a list", items)
  if len(items) > limits.max_sentences:
    raise TooLarge(
      f"'requests' has {len(items):,} sentences; at most "
      f"{limits.max_sentences:,} are allowed. Send several requests."
    )
  sentences = tuple(
    from_object(item, f"requests[{index}]", longest, longest)
    for index, item in enumerate(items)
  )
  return ServiceRequest(run, sentences, nbest, stream)


def _fields(body: bytes, known: Collection[str]) -> dict[str, Any]:
  """Parses a request body as a JSON object, and checks its field names."""
  try:
    text = body.decode("utf-8").removeprefix("\ufeff")
  except UnicodeDecodeError as error:
    raise InputError(
      f"the body is not UTF-8 (byte {error.start + 1})."
    ) from None
  fields = parse_json(text, "the body")
  if not isinstance(fields, dict):
    raise InputError(
      'the body is not an object, as in {"text": "A dog runs."}.'
    )
  for name in fields:
    if name not in known:
      raise InputError(
        f"unknown name {name[:80]!r}. {did_you_mean(name[:80], known)}"
      )
  return fields
