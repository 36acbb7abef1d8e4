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
from typing import Any

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source, parses_of_text
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.storage import files

NAMES = ("text", "conllu", "target_prefix")
MAX_CHARACTERS = 2000  # of a sentence, and of a prefix


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


def as_request(source: Source | Request, index: int) -> Request:
  """Converts a source sentence to a request; sets its index if it has none."""
  result = source if isinstance(source, Request) else Request(source)
  if result.index is not None:
    return result
  return dataclasses.replace(result, index=index)


def parse_json(text: str, name: str) -> Any:
  """Parses JSON; rejects duplicate keys and strings that are invalid Unicode.

  Args:
    text: JSON.
    name: Name for messages, such as "the body".

  Raises:
    InputError: It is not valid.
  """
  try:
    return files.parse_json(text)
  except ValueError as error:
    raise InputError(f"{name} is not valid JSON ({error}).") from None


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
    InputError: It is no string, or has a line break or NUL.
  """
  check_string(value, field)
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


def check_string(value: Any, field: str) -> None:
  """Raises InputError if a value is no string or contains NUL."""
  if not isinstance(value, str):
    raise wrong_type(field, "a string", value)
  if "\0" in value:
    raise InputError(f"{field!r} has NUL (\\u0000). Remove it.")


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
  # Lists and objects are not shown, since they may be nested deeply.
  if isinstance(value, list | dict):
    shown = "a list" if isinstance(value, list) else "an object"
  else:
    shown = json.dumps(value, ensure_ascii=False)[:80]
  return InputError(f"{field!r} must be {expected}, got {shown}.")


def _tree(value: Any, field: str, max_characters: float) -> Parse:
  """Parses CoNLL-U text that must contain exactly one sentence."""
  check_string(value, field)
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
