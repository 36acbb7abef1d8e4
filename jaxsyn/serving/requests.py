"""Parses JSON request bodies and checks them against the service limits.

This module does not import Starlette, since `jaxsyn serve --help` must work
without it. The functions raise the errors of `jaxsyn.decode.requests`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source, parses_of_text
from jaxsyn.decode.requests import (
  MAX_CHARACTERS,
  MalformedTree,
  Request,
  TooLarge,
  check_string,
  check_tree,
  from_object,
  parse_json,
  sentence,
  wrong_type,
)
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import option
from jaxsyn.options.bounds import Range

SENTENCE_FIELDS = ("text", "texts", "conllu", "requests")
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
class TranslateRequest:
  """Parsed body of POST /translate; an empty run name means the first run."""

  run: str
  requests: tuple[Request, ...]
  nbest: int
  stream: bool


@dataclasses.dataclass(frozen=True)
class ParseRequest:
  """Parsed body of POST /parse: a run name and a sentence."""

  run: str
  text: str


@dataclasses.dataclass(frozen=True)
class InspectRequest:
  """Parsed body of POST /inspect: a run name and a sentence or parse."""

  run: str
  source: Source


def read_translate(body: bytes, limits: ServiceLimits) -> TranslateRequest:
  """Parses and checks the body of POST /translate."""
  fields = _fields(body, ("run", *SENTENCE_FIELDS, "nbest", "stream"))
  nbest = fields.get("nbest", 1)
  if not isinstance(nbest, int) or isinstance(nbest, bool) or nbest < 1:
    raise wrong_type("nbest", "a whole number from 1", nbest)
  stream = fields.get("stream", False)
  if not isinstance(stream, bool):
    raise wrong_type("stream", "true or false", stream)
  requests = tuple(_sentences(fields, limits))
  return TranslateRequest(_run(fields), requests, nbest, stream)


def read_parse(body: bytes, limits: ServiceLimits) -> ParseRequest:
  """Parses and checks the body of POST /parse."""
  fields = _fields(body, ("run", "text"))
  if "text" not in fields:
    raise InputError('"text" is missing: the sentence to be parsed.')
  line = sentence(fields["text"], "text", limits.max_characters)
  return ParseRequest(_run(fields), line)


def read_inspect(body: bytes, limits: ServiceLimits) -> InspectRequest:
  """Parses and checks the body of POST /inspect."""
  fields = _fields(body, ("run", "text", "conllu"))
  source: Source
  if _only_name(fields, ("text", "conllu")) == "text":
    source = sentence(fields["text"], "text", limits.max_characters)
  else:
    parses = _parses(fields["conllu"], limits)
    if len(parses) != 1:
      raise MalformedTree(
        f"'conllu' must be one sentence to inspect, got {len(parses)}."
      )
    source = parses[0]
  return InspectRequest(_run(fields), source)


def _fields(body: bytes, known: Collection[str]) -> Mapping[str, Any]:
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


def _sentences(
  fields: Mapping[str, Any], limits: ServiceLimits
) -> list[Request]:
  """Reads the sentences to translate from the fields of a JSON request."""
  name = _only_name(fields, SENTENCE_FIELDS)
  value, longest = fields[name], limits.max_characters
  if name == "text":
    return [Request(sentence(value, name, longest))]
  if name == "conllu":
    return [Request(parse) for parse in _parses(value, limits)]
  if not isinstance(value, list):
    raise wrong_type(name, "a list", value)
  _check_count(len(value), name, limits)
  if name == "texts":
    return [
      Request(sentence(item, f"texts[{index}]", longest))
      for index, item in enumerate(value)
    ]
  return [
    from_object(item, f"requests[{index}]", longest, longest)
    for index, item in enumerate(value)
  ]


def _parses(value: Any, limits: ServiceLimits) -> list[Parse]:
  check_string(value, "conllu")
  try:
    parses = parses_of_text(value, "conllu")
  except InputError as error:
    raise MalformedTree(str(error)) from None
  if not parses:
    raise MalformedTree("'conllu' has no sentence.")
  _check_count(len(parses), "conllu", limits)
  for parse in parses:
    check_tree(parse, "conllu", limits.max_characters)
  return parses


def _only_name(fields: Mapping[str, Any], names: Collection[str]) -> str:
  """Returns which of several mutually exclusive fields a request contains."""
  present = [name for name in names if name in fields]
  if len(present) != 1:
    listing = " and ".join(map(repr, present)) or "none"
    raise InputError(
      f"exactly one of {', '.join(map(repr, names))} is needed, got {listing}."
    )
  return present[0]


def _check_count(count: int, field: str, limits: ServiceLimits) -> None:
  if count > limits.max_sentences:
    raise TooLarge(
      f"{field!r} has {count:,} sentences; at most {limits.max_sentences:,} are "
      "allowed. Send several requests."
    )


def _run(fields: Mapping[str, Any]) -> str:
  return sentence(fields.get("run", ""), "run", MAX_NAME)
