"""What requests ask: fields of JSON, checked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Any

from jaxsyn.data.sentence.conllu_text import Parse
from jaxsyn.data.sentence.stream import Source, parses_of_text
from jaxsyn.decode import requests
from jaxsyn.decode.requests import Request
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.serving.limits import Limits
from jaxsyn.serving.refusal import Refused

# How sentences to be translated are given.
GIVEN = ("text", "texts", "conllu", "requests")


@dataclasses.dataclass(frozen=True)
class Translate:
  """What POST /translate asks.

  Attributes:
    run: name of the run; "": the first.
    requests: of each sentence.
    nbest: translations of each; None: one.
    stream: whether each is told as it is found.
  """

  run: str
  requests: tuple[Request, ...]
  nbest: int | None
  stream: bool


@dataclasses.dataclass(frozen=True)
class Inspect:
  """What POST /inspect asks; `layers` None: all."""

  run: str
  source: Source
  layers: frozenset[int] | None


def translate(told: Mapping[str, Any], limits: Limits) -> Translate:
  """Raises Refused."""
  _check_names(told, ("run", *GIVEN, "nbest", "stream"))
  way = _one_of(told, GIVEN)
  given = told[way]
  if way == "text":
    found = [Request(_line(given, "text"))]
  elif way == "texts":
    found = [
      Request(_line(one, f"texts[{i}]"))
      for i, one in enumerate(_list(given, "texts", limits))
    ]
  elif way == "conllu":
    parses = _parses(_text(given, "conllu"), limits)
    found = [Request(parse) for parse in parses]
  else:
    found = [
      _request(one, f"requests[{i}]")
      for i, one in enumerate(_list(given, "requests", limits))
    ]
  if len(found) > limits.max_sentences:
    raise _too_many(len(found), limits)
  for i, request in enumerate(found):
    _check_length(request.source, f"sentence {i + 1}", limits)
  return Translate(
    run=_run(told),
    requests=tuple(found),
    nbest=_nbest(told),
    stream=_stream(told),
  )


def parse(told: Mapping[str, Any], limits: Limits) -> tuple[str, str]:
  """(run, text) of POST /parse; raises Refused."""
  _check_names(told, ("run", "text"))
  if "text" not in told:
    raise Refused(400, '"text" is missing: the sentence to be parsed.')
  line = _line(told["text"], "text")
  _check_length(line, "the text", limits)
  return _run(told), line


def inspect(told: Mapping[str, Any], limits: Limits) -> Inspect:
  """Raises Refused."""
  _check_names(told, ("run", "text", "conllu", "layers"))
  way = _one_of(told, ("text", "conllu"))
  source: Source
  if way == "text":
    source = _line(told["text"], "text")
  else:
    parses = _parses(_text(told["conllu"], "conllu"), limits)
    if len(parses) != 1:
      raise Refused(
        422,
        f"one sentence is inspected at a time, and the CoNLL-U has {len(parses)}.",
      )
    (source,) = parses
  _check_length(source, "the sentence", limits)
  layers = told.get("layers")
  if layers is not None:
    if not isinstance(layers, list) or not all(map(_is_whole, layers)):
      raise _wrong("layers", "a list of numbers from 0", layers)
    layers = frozenset(layers)
  return Inspect(_run(told), source, layers)


def _request(told: Any, where: str) -> Request:
  """A request of a list."""
  if not isinstance(told, dict):
    raise _wrong(where, 'an object with "text" or "conllu"', told)
  if "text" in told:
    _line(told["text"], f"{where}.text")
  for name, value in told.items():
    if name == "conllu" and isinstance(value, str):
      continue
    if name in requests.NAMES:
      _check_lines(value, f"{where}.{name}")
  tree = told.get("conllu")
  try:
    return requests.from_object(told)
  except InputError as error:
    # What JSON says is not understood; what CoNLL-U says cannot be done.
    is_tree = isinstance(tree, str) and str(error).startswith(
      ("conllu:", "its 'conllu' must be one")
    )
    raise Refused(422 if is_tree else 400, f"{where}: {error}") from None


def _parses(text: str, limits: Limits) -> list[Parse]:
  try:
    parses = parses_of_text(text, "conllu")
  except InputError as error:
    raise Refused(422, str(error)) from None
  if not parses:
    raise Refused(422, "the CoNLL-U has no sentence in it.")
  return parses


def _check_names(told: Mapping[str, Any], known: Collection[str]) -> None:
  for name in told:
    if name not in known:
      raise Refused(
        400, f"unknown name {name[:80]!r}. {did_you_mean(name[:80], known)}"
      )


def _one_of(told: Mapping[str, Any], ways: Collection[str]) -> str:
  given = [way for way in ways if way in told]
  if len(given) != 1:
    had = " and ".join(map(repr, given)) or "none"
    raise Refused(
      400, f"exactly one of {', '.join(map(repr, ways))} is needed, got {had}."
    )
  return given[0]


def _list(value: Any, name: str, limits: Limits) -> list[Any]:
  if not isinstance(value, list):
    raise _wrong(name, "a list", value)
  if len(value) > limits.max_sentences:
    raise _too_many(len(value), limits)
  return value


def _text(value: Any, name: str) -> str:
  if not isinstance(value, str):
    raise _wrong(name, "a text", value)
  return value


def _line(value: Any, name: str) -> str:
  """A text of one line."""
  _check_lines(_text(value, name), name)
  return value


def _check_lines(value: Any, name: str) -> None:
  for text in value if isinstance(value, list) else [value]:
    if isinstance(text, str) and ("\n" in text or "\r" in text):
      raise Refused(
        400,
        f'{name} has a line break in it: a text is one sentence. "texts" takes '
        "several.",
      )


def _check_length(source: Source, what: str, limits: Limits) -> None:
  text = source if isinstance(source, str) else source.text
  words = 0 if isinstance(source, str) else len(source.head_W)
  if max(len(text), words) > limits.max_characters:
    raise Refused(
      413,
      f"{what} has {len(text):,} characters; at most "
      f"{limits.max_characters:,} are translated. Cut it into sentences.",
    )


def _too_many(number: int, limits: Limits) -> Refused:
  return Refused(
    413,
    f"{number:,} sentences are too many for a request; at most "
    f"{limits.max_sentences:,}.",
  )


def _run(told: Mapping[str, Any]) -> str:
  return _text(told.get("run", ""), "run")


def _nbest(told: Mapping[str, Any]) -> int | None:
  nbest = told.get("nbest")
  if nbest is not None and not (_is_whole(nbest) and nbest >= 1):
    raise _wrong("nbest", "a whole number from 1", nbest)
  return nbest


def _stream(told: Mapping[str, Any]) -> bool:
  stream = told.get("stream", False)
  if not isinstance(stream, bool):
    raise _wrong("stream", "true or false", stream)
  return stream


def _is_whole(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _wrong(name: str, what: str, value: Any) -> Refused:
  told = json.dumps(value, ensure_ascii=False)
  return Refused(400, f"{name!r} must be {what}, got {told[:80]}.")
