"""What is asked of a translation, beside its source: one request a line.

A line of JSON is an object with the source and, where they are wanted,

  {"text": "A dog runs .",
   "target_prefix": "Ein Hu",          begins the translation
   "constraints": ["läuft", "..."],    must be in it
   "avoid": ["rennt"]}                 must not be in it

by the names of Sockeye's JSON input. What is not understood is refused, so that a
slip is no silent wish. Before this file: `jaxsyn.data.sentence`. After it:
`jaxsyn.session`, `jaxsyn.translating`, which reads files of them, and
`jaxsyn.serving`. In place of "text" stands "conllu" where the sentence comes with
its tree.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from jaxsyn.data.sentence.conllu_text import Parse
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


def from_json(line: str) -> Request:
  """The request of a line of JSON; an empty line is one of an empty source.

  Raises:
    InputError: it is no such object; says what is wrong, not where.
  """
  if not line.strip():
    return Request("")
  try:
    told = json.loads(line)
  except ValueError as error:
    raise InputError(
      f"it is no JSON ({error}). A line is an object, as in "
      '{"text": "A dog runs ."}.'
    ) from None
  return from_object(told)


def from_object(told: Any) -> Request:
  """The request of an object that JSON has told; raises as `from_json`.

  Args:
    told: of `json.loads`.
  """
  if not isinstance(told, dict) or not {"text", "conllu"} & {*told}:
    raise InputError('it is no object with "text", as in {"text": "A dog ."}.')
  if {"text", "conllu"} <= {*told}:
    raise InputError('it has both "text" and "conllu": give one of them.')
  values: dict[str, Any] = {}
  for name, value in told.items():
    if name not in NAMES:
      raise InputError(
        f"it has an unknown name {name!r}. {did_you_mean(name, NAMES)}"
      )
    several = name in ("constraints", "avoid")
    texts = value if several else [value]
    if not (
      isinstance(texts, list) and all(isinstance(one, str) for one in texts)
    ):
      raise InputError(
        f"its {name!r} must be {'a list of texts' if several else 'a text'}, "
        f"got {json.dumps(value, ensure_ascii=False)[:80]}."
      )
    if name == "conllu":
      value = _tree(value)
    values[NAMES[name]] = tuple(texts) if several else value
  return Request(**values)


def _tree(text: str) -> Parse:
  """The one sentence of some CoNLL-U."""
  parses = parses_of_text(text, "conllu")
  if len(parses) != 1:
    raise InputError(
      f"its 'conllu' must be one sentence, got {len(parses)}. Trees of one "
      "sent_id that follow each other are one."
    )
  return parses[0]
