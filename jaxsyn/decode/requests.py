"""Translation requests in JSON, as the server and `jaxsyn translate` read them.

  {"text": "A dog runs .",
   "target_prefix": "Ein Hu",          begins the translation
   "constraints": ["läuft", "..."],    must be in it
   "avoid": ["rennt"]}                 must not be in it

The names are those of Sockeye's JSON input. In place of "text" stands "conllu" where
the sentence comes with its tree. Unknown and duplicate names are errors, so that a
typing mistake does not silently change what is translated.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, NoReturn

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source, parses_of_text
from jaxsyn.errors import InputError, did_you_mean

# Name in JSON -> attribute of a request.
NAMES = {
  "text": "source",
  "conllu": "source",
  "target_prefix": "prefix",
  "constraints": "constraints",
  "avoid": "avoid",
}
MAX_CHARACTERS = 2000  # of a sentence, and of a prefix
MAX_PHRASES = 32  # in "constraints", and in "avoid"
MAX_PHRASE_CHARACTERS = 100
MAX_DEPTH = 100  # levels of nested lists and objects
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep."


class TooLarge(InputError):
  """A field that exceeds its limit."""


class MalformedTree(InputError):
  """CoNLL-U that is not one sentence, or not a tree."""


@dataclasses.dataclass(frozen=True)
class Request:
  """A sentence to be translated.

  Attributes:
    source: a raw line, or its parse.
    prefix: text that the translation begins with, to the character: what
      follows may go on in the same word, unless a blank is its end.
    constraints: words or phrases that must be in the translation.
    avoid: words or phrases that must not.
    place: in the input, from 0, on which samples depend; None: its place among
      those it is given with.
  """

  source: Source
  prefix: str = ""
  constraints: tuple[str, ...] = ()
  avoid: tuple[str, ...] = ()
  place: int | None = None


def request(source: Source | Request) -> Request:
  """A source as a request that asks nothing more."""
  return source if isinstance(source, Request) else Request(source)


def parse_json(text: str, name: str) -> Any:
  """Parses JSON that has one meaning only.

  Args:
    text: JSON.
    name: what messages call it, as in "the body".

  Raises:
    InputError: It is not JSON, is nested too deeply, or has a duplicate name, a
      number that is not finite, NUL, or half of a surrogate pair.
  """
  try:
    value = json.loads(
      text,
      object_pairs_hook=_object,
      parse_constant=_constant,
      parse_float=_finite,
    )
    _check_strings(value, "", MAX_DEPTH)
  except RecursionError:
    raise InputError(f"{name} {_TOO_DEEP}") from None
  except _Fault as fault:
    raise InputError(f"{name} {fault}") from None
  except ValueError as error:
    raise InputError(f"{name} is not JSON ({error}).") from None
  return value


def from_json(line: str) -> Request:
  """Reads the request of a line of JSON; an empty line is an empty sentence.

  The length of the sentence is not limited: the model reads its beginning.

  Raises:
    InputError: as `from_object`; the message does not say where the line is.
  """
  if not line.strip():
    return Request("")
  return from_object(parse_json(line, "the line"), max_source=math.inf)


def from_object(
  value: Any,
  where: str = "",
  max_characters: int = MAX_CHARACTERS,
  max_source: float = MAX_CHARACTERS,
) -> Request:
  """Reads a request from parsed JSON.

  Args:
    value: of `parse_json`.
    where: field that it is in, as in "requests[0]"; "": the whole.
    max_characters: limit of a prefix.
    max_source: limit of a sentence.

  Raises:
    TooLarge: A field exceeds its limit.
    MalformedTree: "conllu" is not one tree.
    InputError: A field is unknown, missing or of another type.
  """
  if not isinstance(value, dict) or not {"text", "conllu"} & {*value}:
    raise InputError(
      f'{where or "the line"} is not an object with "text" or "conllu", as in '
      '{"text": "A dog runs ."}.'
    )
  if {"text", "conllu"} <= {*value}:
    raise InputError(
      f'{where or "the line"} has both "text" and "conllu": give one of them.'
    )
  fields: dict[str, Any] = {}
  for name, field_value in value.items():
    field = f"{where}.{name}" if where else name
    if name not in NAMES:
      raise InputError(
        f"{where or 'the line'} has an unknown name {name[:80]!r}. "
        f"{did_you_mean(name[:80], NAMES)}"
      )
    if name == "conllu":
      fields["source"] = _tree(field_value, field, max_source)
    elif name in ("constraints", "avoid"):
      fields[name] = _phrases(field_value, field)
    else:
      limit = max_source if name == "text" else max_characters
      fields[NAMES[name]] = sentence(field_value, field, limit)
  return Request(**fields)


def sentence(
  value: Any, field: str, max_characters: float = MAX_CHARACTERS
) -> str:
  """Returns a string of one line, if it is one within the limit.

  Args:
    value: of a field.
    field: its name, for messages.
    max_characters: limit.

  Raises:
    TooLarge: It is longer.
    InputError: It is no string, or has a line break.
  """
  if not isinstance(value, str):
    raise wrong_type(field, "a string", value)
  if len(value) > max_characters:
    raise TooLarge(
      f"{field!r} has {len(value):,} characters; at most {max_characters:,} are "
      "allowed. Split or shorten it."
    )
  if "\n" in value or "\r" in value:
    raise InputError(
      f"{field!r} has a line break: it must be one sentence. Remove the line "
      "break, or split it."
    )
  return value


def check_tree(
  parse: Parse, field: str, max_characters: float = MAX_CHARACTERS
) -> None:
  """Raises TooLarge for a tree whose sentence exceeds the limit.

  Args:
    parse: of CoNLL-U.
    field: name of its field, for messages.
    max_characters: limit; also of words.
  """
  size, unit = max(
    (len(parse.text), "characters"), (len(parse.head_W), "words")
  )
  if size > max_characters:
    raise TooLarge(
      f"{field!r} has a sentence of {size:,} {unit}; at most "
      f"{max_characters:,} are allowed. Split it."
    )


def wrong_type(field: str, expected: str, value: Any) -> InputError:
  """Returns the error for a field of another type than expected."""
  shown = json.dumps(value, ensure_ascii=False)[:80]
  return InputError(f"{field!r} must be {expected}, got {shown}.")


class _Fault(Exception):
  """What is wrong with JSON; the message continues its name."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  fields: dict[str, Any] = {}
  for name, value in pairs:
    if name in fields:
      raise _Fault(f"has the name {name[:80]!r} twice in one object.")
    fields[name] = value
  return fields


def _constant(name: str) -> NoReturn:
  raise ValueError(f"{name} is not a number of JSON")


def _finite(digits: str) -> float:
  value = float(digits)
  if not math.isfinite(value):
    raise ValueError(f"{digits[:20]} is too large a number")
  return value


def _check_strings(value: Any, field: str, levels: int) -> None:
  """Checks all strings, names included, and how deep a value is nested.

  Args:
    value: of JSON.
    field: where it is, its first characters; "": the whole.
    levels: how much deeper it may be nested.
  """
  if isinstance(value, str):
    _check_string(value, f"in {field[:80]!r}" if field else "in its text")
  elif isinstance(value, (dict, list)):
    if not levels:
      raise _Fault(_TOO_DEEP)
    if isinstance(value, list):
      for index, one in enumerate(value):
        if one:  # an empty one has no string
          _check_strings(one, f"{field[:80]}[{index}]", levels - 1)
      return
    for name, one in value.items():
      _check_string(name, "in a name")
      path = f"{field[:80]}.{name[:80]}" if field else name[:80]
      _check_strings(one, path, levels - 1)


def _check_string(value: str, where: str) -> None:
  if value.isascii() and "\0" not in value:
    return
  if "\0" in value:
    raise _Fault(f"has NUL (\\u0000) {where}. Remove it.")
  try:
    value.encode("utf-8")
  except UnicodeEncodeError as error:
    raise _Fault(
      f"has half of a surrogate pair (\\u{ord(value[error.start]):x}) {where}. "
      "Write the whole character."
    ) from None


def _phrases(value: Any, field: str) -> tuple[str, ...]:
  if not isinstance(value, list):
    raise wrong_type(field, "a list of strings", value)
  if len(value) > MAX_PHRASES:
    raise TooLarge(
      f"{field!r} has {len(value):,} phrases; at most {MAX_PHRASES} are allowed."
    )
  return tuple(
    sentence(one, f"{field}[{index}]", MAX_PHRASE_CHARACTERS)
    for index, one in enumerate(value)
  )


def _tree(value: Any, field: str, max_characters: float) -> Parse:
  """Returns the one sentence of CoNLL-U."""
  if not isinstance(value, str):
    raise wrong_type(field, "a string", value)
  try:
    parses = parses_of_text(value, field)
  except InputError as error:
    raise MalformedTree(str(error)) from None
  if len(parses) != 1:
    raise MalformedTree(
      f"{field!r} must be one sentence, got {len(parses)}. Trees of one sent_id "
      "that follow each other are one."
    )
  check_tree(parses[0], field, max_characters)
  return parses[0]
