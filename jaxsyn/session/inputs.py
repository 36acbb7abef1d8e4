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

JSON = (".jsonl", ".jsonl.gz")


def of_flags(
  values: flags.FlagValues,
  faults: list[str],
  check: Callable[[Request], object] = lambda request: None,
) -> Iterator[Request | Faulty | None]:
  """Yields translation requests from the file or stream that --input names.

  Args:
    values: Flags --input, --conllu, --json, --prefix and --errors.
    faults: List to which messages about faulty lines are appended.
    check: Function that raises InputError for a prefix that cannot be written.

  Yields:
    A request; a Faulty for a line that is skipped; or PAUSE.

  Raises:
    InputError: A line cannot be read, with --errors strict; or a file cannot be
      read, or has fewer lines than the other.
  """
  is_strict = values.errors == "strict"
  indices = itertools.count()
  for item in _items(values, "skip" if is_strict else values.errors):
    if item is PAUSE:
      yield PAUSE
      continue
    index = next(indices)
    if not isinstance(item, Faulty):
      item = dataclasses.replace(request(item), index=index)
      if item.prefix:
        try:
          check(item)
        except InputError as error:
          item = Faulty(f"line {index + 1} of the input: {error}")
    if isinstance(item, Faulty):
      if is_strict:
        raise InputError(
          f"{item.message} Or use --errors skip (an empty line) or --errors "
          "replace (the readable part)."
        )
      faults.append(item.message)
      if item.text is not None:
        item = Request(item.text, index=index)
    yield item


def _items(values: flags.FlagValues, errors: str) -> Iterable[Any]:
  """Returns the items of the input: sentences or requests, faults, pauses."""
  if values.json or values.input.endswith(JSON):
    if values.conllu:
      raise InputError("--json and --conllu: the input is one of them.")
    if values.prefix:
      raise InputError(
        "--prefix is for text and CoNLL-U; a line of JSON has its own: "
        '"target_prefix".'
      )
    return _json_requests(values.input, errors)
  trees = values.conllu or stream.is_conllu(values.input)
  sources = stream.sentences(values.input, trees, errors)
  if values.prefix:
    return _with_prefixes(sources, values.prefix, values.input)
  return sources


def _json_requests(
  path: str | os.PathLike[str], errors: str
) -> Iterator[Request | Faulty | None]:
  """Yields the requests in JSON lines, and a `Faulty` for each invalid line."""
  indices = itertools.count(1)
  for line in text.handle_errors(text.arriving_lines(path), errors):
    if line is PAUSE:
      yield PAUSE
      continue
    index = next(indices)
    if isinstance(line, Faulty):
      yield dataclasses.replace(line, text=None)
      continue
    try:
      yield from_json(line)
    except InputError as error:
      yield Faulty(f"{text.name_of(path)}:{index}: {error}")


def _with_prefixes(
  sources: Iterable[Any], path: str | os.PathLike[str], input_path: str
) -> Iterator[Any]:
  """Yields a request for each source, with its prefix from a second file.

  An empty line means no prefix.

  Raises:
    InputError: The file and the input have different numbers of lines.
  """
  lines, name = text.lines_of(path), text.name_of(input_path)
  rule = "line N of one is the prefix of line N of the other."
  index = 0
  for item in sources:
    if item is PAUSE:
      yield PAUSE
      continue
    index += 1
    prefix = next(lines, None)
    if prefix is None:
      raise InputError(f"{path} has {index - 1} lines, and {name} more: {rule}")
    if not isinstance(item, Faulty):
      try:
        item = Request(item, sentence(prefix, "prefix"))
      except InputError as error:
        item = Faulty(f"{path}:{index}: {error}")
    yield item
  if next(lines, None) is not None:
    raise InputError(
      f"{path} has more lines than {name}, which has {index}: {rule}"
    )
