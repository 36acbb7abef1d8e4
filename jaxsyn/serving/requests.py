"""Limits of the service, and the checks of request bodies.

This module does not import Starlette: `jaxsyn serve --help` needs the limits, and
must work without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source, parses_of_text
from jaxsyn.decode.requests import (
  MAX_CHARACTERS,
  MalformedTree,
  Request,
  TooLarge,
  check_tree,
  from_object,
  parse_json,
  sentence,
  wrong_type,
)
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import option
from jaxsyn.options.bounds import Range

T = TypeVar("T")
Fields = Mapping[str, Any]
# Fields with the sentences of POST /translate; a request has exactly one of them.
SENTENCE_FIELDS = ("text", "texts", "conllu", "requests")
MAX_NAME = 1000  # characters of a run's name
MAX_LAYERS = 1000


@dataclasses.dataclass(frozen=True)
class ServiceLimits:
  """Limits of the service; each field is a flag of `jaxsyn serve`."""

  max_characters: Annotated[int, Range(1, 1_000_000)] = option(
    MAX_CHARACTERS,
    "Maximum length of a sentence, and of a target prefix; 413 beyond.",
    unit="characters",
  )
  max_sentences: Annotated[int, Range(1, 1_000_000)] = option(
    100,
    "Maximum number of sentences in a request; 413 beyond.",
    unit="sentences",
  )
  max_bytes: Annotated[int, Range(1, 2**31)] = option(
    1_000_000, "Maximum size of a request's body; 413 beyond.", unit="bytes"
  )
  queue: Annotated[int, Range(1, 10_000_000)] = option(
    1000, "Maximum number of waiting sentences; 503 beyond.", unit="sentences"
  )
  timeout: Annotated[float, Range(0.01, 86_400)] = option(
    60.0, "Maximum time until the response; 503 beyond.", unit="seconds"
  )
  connections: Annotated[int, Range(1, 1_000_000)] = option(
    1000, "Maximum number of open connections; 503 beyond."
  )


class HTTPError(Exception):
  """An error response.

  Attributes:
    status: HTTP status.
    message: Message for the client, with a remedy.
    retry_after: Seconds after which the same request may succeed; None: never.
  """

  def __init__(
    self, status: int, message: str, *, retry_after: int | None = None
  ):
    super().__init__(message)
    self.status, self.message = status, message
    self.retry_after = retry_after


@dataclasses.dataclass(frozen=True)
class TranslateRequest:
  """Fields of POST /translate; the run "" is the first."""

  run: str
  requests: tuple[Request, ...]
  nbest: int
  stream: bool


@dataclasses.dataclass(frozen=True)
class ParseRequest:
  """Fields of POST /parse."""

  run: str
  text: str


@dataclasses.dataclass(frozen=True)
class InspectRequest:
  """Fields of POST /inspect; `layers` None: all layers."""

  run: str
  source: Source
  layers: frozenset[int] | None


def parse_body(
  body: bytes,
  limits: ServiceLimits,
  read_fields: Callable[[Fields, ServiceLimits], T],
) -> T:
  """Parses the body of a request.

  Args:
    body: JSON object in UTF-8.
    limits: Limits of its fields.
    read_fields: One of the following functions.

  Raises:
    HTTPError: The body is malformed, or a field is wrong.
  """
  try:
    text = body.decode("utf-8").removeprefix("\ufeff")
    fields = parse_json(text, "the body")
    if not isinstance(fields, dict):
      raise InputError(
        'the body is not an object, as in {"text": "A dog runs."}.'
      )
    return read_fields(fields, limits)
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


# The following functions raise the errors of `jaxsyn.decode.requests.from_object`.


def read_translate(fields: Fields, limits: ServiceLimits) -> TranslateRequest:
  """Returns the checked fields of POST /translate."""
  _check_names(fields, ("run", *SENTENCE_FIELDS, "nbest", "stream"))
  name = _one_of(fields, SENTENCE_FIELDS)
  value, longest = fields[name], limits.max_characters
  if name == "text":
    requests = [Request(sentence(value, name, longest))]
  elif name == "conllu":
    requests = [Request(parse) for parse in _parses(value, limits)]
  else:
    if not isinstance(value, list):
      raise wrong_type(name, "a list", value)
    _check_count(len(value), name, limits)
    requests = []
    for index, item in enumerate(value):
      field = f"{name}[{index}]"
      if name == "texts":
        requests.append(Request(sentence(item, field, longest)))
      else:
        requests.append(from_object(item, field, longest, longest))
  nbest = fields.get("nbest")
  if nbest is None:
    nbest = 1
  elif not (_is_index(nbest) and nbest >= 1):
    raise wrong_type("nbest", "a whole number from 1", nbest)
  stream = fields.get("stream", False)
  if not isinstance(stream, bool):
    raise wrong_type("stream", "true or false", stream)
  return TranslateRequest(_run(fields), tuple(requests), nbest, stream)


def read_parse(fields: Fields, limits: ServiceLimits) -> ParseRequest:
  """Returns the checked fields of POST /parse."""
  _check_names(fields, ("run", "text"))
  if "text" not in fields:
    raise InputError('"text" is missing: the sentence to be parsed.')
  line = sentence(fields["text"], "text", limits.max_characters)
  return ParseRequest(_run(fields), line)


def read_inspect(fields: Fields, limits: ServiceLimits) -> InspectRequest:
  """Returns the checked fields of POST /inspect."""
  _check_names(fields, ("run", "text", "conllu", "layers"))
  source: Source
  if _one_of(fields, ("text", "conllu")) == "text":
    source = sentence(fields["text"], "text", limits.max_characters)
  else:
    parses = _parses(fields["conllu"], limits)
    if len(parses) != 1:
      raise MalformedTree(
        f"one sentence is inspected at a time, and the CoNLL-U has {len(parses)}."
      )
    source = parses[0]
  layers = fields.get("layers")
  if layers is not None:
    if not isinstance(layers, list) or not all(map(_is_index, layers)):
      raise wrong_type("layers", "a list of numbers from 0", layers)
    if len(layers) > MAX_LAYERS:
      raise TooLarge(
        f"'layers' has {len(layers):,} numbers; at most {MAX_LAYERS:,} are "
        "allowed."
      )
    layers = frozenset(layers)
  return InspectRequest(_run(fields), source, layers)


def _parses(value: Any, limits: ServiceLimits) -> list[Parse]:
  if not isinstance(value, str):
    raise wrong_type("conllu", "a string", value)
  try:
    parses = parses_of_text(value, "conllu")
  except InputError as error:
    raise MalformedTree(str(error)) from None
  if not parses:
    raise MalformedTree("the CoNLL-U has no sentence in it.")
  _check_count(len(parses), "conllu", limits)
  for parse in parses:
    check_tree(parse, "conllu", limits.max_characters)
  return parses


def _check_names(fields: Fields, known: Collection[str]) -> None:
  for name in fields:
    if name not in known:
      raise InputError(
        f"unknown name {name[:80]!r}. {did_you_mean(name[:80], known)}"
      )


def _one_of(fields: Fields, names: Collection[str]) -> str:
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


def _run(fields: Fields) -> str:
  return sentence(fields.get("run", ""), "run", MAX_NAME)


def _is_index(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool) and value >= 0
