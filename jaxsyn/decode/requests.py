"""Translation requests in JSON, read by the server and by `jaxsyn translate`.

  {"text": "A dog runs .", "target_prefix": "Ein Hu"}

The names are those of Sockeye's JSON input. A sentence with its tree has "conllu"
instead of "text". Unknown and duplicate names are errors, so that a typing mistake
does not silently change the translation.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, NoReturn

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source, parses_of_text
from jaxsyn.errors import InputError, did_you_mean

NAMES = ("text", "conllu", "target_prefix")
MAX_CHARACTERS = 2000  # of a sentence, and of a prefix
MAX_DEPTH = 100  # levels of nested lists and objects
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep."


class TooLarge(InputError):
  """Error for a request field that exceeds a size limit."""


class MalformedTree(InputError):
  """Error for CoNLL-U that is not exactly one sentence with a valid tree."""


@dataclasses.dataclass(frozen=True)
class Request:
  """Request to translate one sentence, with an optional output prefix.

  Attributes:
    source: Raw line, or its parse.
    prefix: Text that the translation begins with, to the character; the last
      word may be continued, unless the prefix ends with a space.
    index: Index of the sentence in the input, on which samples depend; None:
      its index among the sentences of the call.
  """

  source: Source
  prefix: str = ""
  index: int | None = None


def request(source: Source | Request) -> Request:
  """Wraps a source in a request without prefix; returns requests unchanged."""
  return source if isinstance(source, Request) else Request(source)


def parse_json(text: str, name: str) -> Any:
  """Parses JSON strictly: without duplicate names or invalid characters.

  Args:
    text: JSON.
    name: Name for messages, such as "the body".

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
  """Parses a request from a line of JSON; empty lines are empty sentences.

  The length of the sentence is not limited: a long one is truncated later.

  Raises:
    InputError: See `from_object`; the message does not contain the line number.
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
  """Converts a parsed JSON value to a request.

  Args:
    value: Value returned by `parse_json`.
    where: Field that contains it, such as "requests[0]"; "" if no field does.
    max_characters: Maximum length of a prefix.
    max_source: Maximum length of a sentence.

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
    elif name == "text":
      fields["source"] = sentence(field_value, field, max_source)
    else:
      fields["prefix"] = sentence(field_value, field, max_characters)
  return Request(**fields)


def sentence(
  value: Any, field: str, max_characters: float = MAX_CHARACTERS
) -> str:
  """Returns the value of a field after checking that it is a one-line string.

  Args:
    value: Value of the field.
    field: Name of the field, for messages.
    max_characters: Maximum length.

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
  """Raises TooLarge if a tree has too many characters or words."""
  size, unit = max(
    (len(parse.text), "characters"), (len(parse.head_W), "words")
  )
  if size > max_characters:
    raise TooLarge(
      f"{field!r} has a sentence of {size:,} {unit}; at most "
      f"{max_characters:,} are allowed. Split it."
    )


def wrong_type(field: str, expected: str, value: Any) -> InputError:
  """Returns an error for a field whose type differs from the expected one."""
  shown = json.dumps(value, ensure_ascii=False)[:80]
  return InputError(f"{field!r} must be {expected}, got {shown}.")


class _Fault(Exception):
  """Invalid-JSON error to which the caller adds a subject like "the body"."""


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
  """Checks the strings, names and nesting depth of a JSON value.

  Args:
    value: Value of JSON.
    field: Path of the value, abbreviated; "": the root.
    levels: Number of further levels that are allowed.
  """
  if isinstance(value, str):
    _check_string(value, f"in {field[:80]!r}" if field else "in its text")
  elif isinstance(value, (dict, list)):
    if not levels:
      raise _Fault(_TOO_DEEP)
    if isinstance(value, list):
      for index, item in enumerate(value):
        if item:  # an empty one has no string
          _check_strings(item, f"{field[:80]}[{index}]", levels - 1)
      return
    for name, item in value.items():
      _check_string(name, "in a name")
      path = f"{field[:80]}.{name[:80]}" if field else name[:80]
      _check_strings(item, path, levels - 1)


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


def _tree(value: Any, field: str, max_characters: float) -> Parse:
  """Parses CoNLL-U text that must contain exactly one sentence."""
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
