"""What `jaxsyn.translate` reads: requests, as they come.

Raw text, CoNLL-U or JSON lines (`jaxsyn.decode.requests`), and beside the first
two a file of prefixes. Each line is a request with its place in the input.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from absl import flags

from jaxsyn.data.sentence import stream, text
from jaxsyn.data.sentence.text import PAUSE, Faulty
from jaxsyn.decode.requests import Request, from_json, request, sentence
from jaxsyn.errors import InputError

Given = Request | Faulty | None

JSON = (".jsonl", ".jsonl.gz")


def of_flags(
  values: flags.FlagValues,
  faults: list[str],
  check: Callable[[Request], object] = lambda asked: None,
) -> Iterator[Request | Faulty | None]:
  """The input of a command; what cannot be read ends it, or is told in a list.

  Args:
    values: of --input, --conllu, --json, --prefix and --errors.
    faults: is filled with what was wrong with lines.
    check: raises InputError for a request that cannot be met; called unless
      --errors is strict, for then the translation itself raises it.

  Raises:
    InputError: with --errors strict, for a line that cannot be read; or a file
      cannot be, or has fewer lines than the other.
  """
  strict = values.errors == "strict"
  errors = "skip" if strict else values.errors
  items: Iterable[Any]
  if values.json or values.input.endswith(JSON):
    if values.conllu:
      raise InputError("--json and --conllu: the input is one of them.")
    if values.prefix:
      raise InputError(
        "--prefix is for text and CoNLL-U; a line of JSON has its own: "
        '"target_prefix".'
      )
    items = requests(values.input, errors)
  else:
    trees = values.conllu or stream.is_conllu(values.input)
    items = stream.sentences(values.input, trees, errors)
  if values.prefix:
    items = prefixed(items, values.prefix, values.input)
  places = itertools.count()
  for item in items:
    if isinstance(item, Faulty):
      if strict:
        raise InputError(
          f"{item.message} Or go on: with --errors skip it is an empty line, "
          "with replace what can be read of it."
        )
      faults.append(item.message)
    if item is PAUSE:
      yield item
      continue
    place = next(places)
    if isinstance(item, Faulty) and item.text is None:
      yield item
      continue
    source: Any = item.text if isinstance(item, Faulty) else item
    placed = dataclasses.replace(request(source), place=place)
    if not strict and (placed.prefix or placed.constraints or placed.avoid):
      try:
        check(placed)
      except InputError as error:
        fault = Faulty(f"line {place + 1} of the input: {error}")
        faults.append(fault.message)
        yield fault
        continue
    yield placed


def requests(
  path: str | os.PathLike[str], errors: str
) -> Iterator[Request | Faulty | None]:
  """The requests of JSON lines, as they come; what is none is a Faulty."""
  index = 0
  for line in text.treated(text.arriving_lines(path), errors):
    if line is PAUSE:
      yield PAUSE
      continue
    index += 1
    if isinstance(line, Faulty):
      yield dataclasses.replace(line, text=None)
      continue
    try:
      yield from_json(line)
    except InputError as error:
      yield Faulty(f"{text.name_of(path)}:{index}: {error}")


def prefixed(
  items: Iterable[Any], path: str | os.PathLike[str], other: str
) -> Iterator[Any]:
  """The same items, each with a line of a file as its prefix.

  Args:
    items: sources and requests, each a Faulty, and each PAUSE, among them.
    path: of the prefixes; an empty line is none.
    other: what the input is called.

  Raises:
    InputError: the file has fewer lines than there are items, or more.
  """
  lines = text.lines_of(path)
  index = 0
  for item in items:
    if item is PAUSE:
      yield PAUSE
      continue
    index += 1
    prefix = next(lines, None)
    if prefix is None:
      raise InputError(
        f"{path} has {index - 1} lines, and {text.name_of(other)} more: line N "
        "of one is the prefix of line N of the other."
      )
    if not isinstance(item, Faulty):
      try:
        item = dataclasses.replace(
          request(item), prefix=sentence(prefix, "prefix")
        )
      except InputError as error:
        item = Faulty(f"{path}:{index}: {error}")
    yield item
  if next(lines, None) is not None:
    raise InputError(
      f"{path} has more lines than {text.name_of(other)}, which has {index}: "
      "line N of one is the prefix of line N of the other."
    )
