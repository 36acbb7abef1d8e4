"""Checks the fields of requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source, parses_of_text
from jaxsyn.decode import requests
from jaxsyn.decode.requests import (
  MalformedTree,
  Request,
  TooLarge,
  sentence,
  wrong_type,
)
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.serving.limits import ServiceLimits

Fields = Mapping[str, Any]
# How sentences to be translated are given.
GIVEN = ("text", "texts", "conllu", "requests")
MAX_NAME = 1000  # characters of a run's name
MAX_LAYERS = 1000


@dataclasses.dataclass(frozen=True)
class Translate:
  """Fields of POST /translate.

  Attributes:
    run: name of the run; "": the first.
    requests: of each sentence.
    nbest: translations of each; None: one.
    stream: whether each is sent as soon as it is found.
  """

  run: str
  requests: tuple[Request, ...]
  nbest: int | None
  stream: bool


@dataclasses.dataclass(frozen=True)
class ParseText:
  """Fields of POST /parse."""

  run: str
  text: str


@dataclasses.dataclass(frozen=True)
class Inspect:
  """Fields of POST /inspect; `layers` None: all."""

  run: str
  source: Source
  layers: frozenset[int] | None


# The following functions raise as `jaxsyn.decode.requests.from_object`.


def translate(fields: Fields, limits: ServiceLimits) -> Translate:
  """Reads the fields of POST /translate."""
  _check_names(fields, ("run", *GIVEN, "nbest", "stream"))
  name = _one_of(fields, GIVEN)
  value, max_characters = fields[name], limits.max_characters
  if name == "text":
    decoded = [Request(sentence(value, name, max_characters))]
  elif name == "conllu":
    decoded = [Request(parse) for parse in _parses(value, limits)]
  else:
    if not isinstance(value, list):
      raise wrong_type(name, "a list", value)
    _check_count(len(value), name, limits)
    fielded = [(f"{name}[{i}]", one) for i, one in enumerate(value)]
    if name == "texts":
      decoded = [
        Request(sentence(one, field, max_characters)) for field, one in fielded
      ]
    else:
      decoded = [
        requests.from_object(one, field, max_characters, max_characters)
        for field, one in fielded
      ]
  return Translate(
    run=_run(fields),
    requests=tuple(decoded),
    nbest=_nbest(fields),
    stream=_stream(fields),
  )


def parse(fields: Fields, limits: ServiceLimits) -> ParseText:
  """Reads the fields of POST /parse."""
  _check_names(fields, ("run", "text"))
  if "text" not in fields:
    raise InputError('"text" is missing: the sentence to be parsed.')
  line = sentence(fields["text"], "text", limits.max_characters)
  return ParseText(_run(fields), line)


def inspect(fields: Fields, limits: ServiceLimits) -> Inspect:
  """Reads the fields of POST /inspect."""
  _check_names(fields, ("run", "text", "conllu", "layers"))
  source: Source
  if _one_of(fields, ("text", "conllu")) == "text":
    source = sentence(fields["text"], "text", limits.max_characters)
  else:
    parses = _parses(fields["conllu"], limits)
    if len(parses) != 1:
      raise MalformedTree(
        "one sentence is inspected at a time, and the CoNLL-U has "
        f"{len(parses)}."
      )
    (source,) = parses
  layers = fields.get("layers")
  if layers is not None:
    if not isinstance(layers, list) or not all(map(_is_whole, layers)):
      raise wrong_type("layers", "a list of numbers from 0", layers)
    if len(layers) > MAX_LAYERS:
      raise TooLarge(
        f"'layers' has {len(layers):,} numbers; at most {MAX_LAYERS:,} are "
        "allowed."
      )
    layers = frozenset(layers)
  return Inspect(_run(fields), source, layers)


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
    requests.check_tree(parse, "conllu", limits.max_characters)
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


def _nbest(fields: Fields) -> int | None:
  nbest = fields.get("nbest")
  if nbest is not None and not (_is_whole(nbest) and nbest >= 1):
    raise wrong_type("nbest", "a whole number from 1", nbest)
  return nbest


def _stream(fields: Fields) -> bool:
  stream = fields.get("stream", False)
  if not isinstance(stream, bool):
    raise wrong_type("stream", "true or false", stream)
  return stream


def _is_whole(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool) and value >= 0
