"""Input of `jaxsyn translate`, as a stream of requests.

It is raw text or CoNLL-U, optionally with a file of prefixes, or JSON lines
(`jaxsyn.decode.requests`). Each line is a request with its index in the input.
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
  check: Callable[[Request], object] = lambda request: None,
) -> Iterator[Request | Faulty | None]:
  """Yields the requests of the input of a command.

  Args:
    values: Flags --input, --conllu, --json, --prefix and --errors.
    faults: List to which messages about faulty lines are appended.
    check: Function that raises InputError for a prefix that cannot be written;
      not called with --errors strict, where the translation raises it.

  Raises:
    InputError: A line cannot be read, with --errors strict; or a file cannot be
      read, or has fewer lines than the other.
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
  indices = itertools.count()
  for item in items:
    if isinstance(item, Faulty):
      if strict:
        raise InputError(
          f"{item.message} Or use --errors skip (an empty line) or --errors "
          "replace (the readable part)."
        )
      faults.append(item.message)
    if item is PAUSE:
      yield item
      continue
    index = next(indices)
    if isinstance(item, Faulty) and item.text is None:
      yield item
      continue
    source: Any = item.text if isinstance(item, Faulty) else item
    indexed = dataclasses.replace(request(source), index=index)
    if not strict and indexed.prefix:
      try:
        check(indexed)
      except InputError as error:
        fault = Faulty(f"line {index + 1} of the input: {error}")
        faults.append(fault.message)
        yield fault
        continue
    yield indexed


def requests(
  path: str | os.PathLike[str], errors: str
) -> Iterator[Request | Faulty | None]:
  """Yields the requests of JSON lines; an invalid line is a Faulty."""
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
  """Yields items with the lines of a file as their prefixes.

  Args:
    items: Sources, requests, Faulty and PAUSE.
    path: File of prefixes; an empty line means no prefix.
    other: Path of the input, for messages.

  Raises:
    InputError: The file and the input have different numbers of lines.
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
