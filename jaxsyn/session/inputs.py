"""Input of `jaxsyn translate`, as a stream of requests.

It is raw text, CoNLL-U, or JSON lines (`jaxsyn.decode.requests`). Each line is a
request with its index in the input.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from absl import flags

from jaxsyn.data.sentence import stream, text
from jaxsyn.data.sentence.conllu import unparsed
from jaxsyn.data.sentence.text import PAUSE, Faulty
from jaxsyn.decode.requests import Request, as_request, from_json
from jaxsyn.errors import InputError

JSON = (".jsonl", ".jsonl.gz")


def of_flags(
  values: flags.FlagValues,
  faults: list[str],
  check: Callable[[Request], object] = lambda request: None,
) -> Iterator[Request | None]:
  """Yields translation requests from the file or stream that --input names.

  Args:
    values: Flags --input, --conllu, --json and --errors.
    faults: List to which messages about skipped lines are appended.
    check: Function that raises InputError for a prefix that cannot be written.

  Yields:
    A request, with an empty sentence for a line that is skipped; or PAUSE.

  Raises:
    InputError: A line cannot be read, with --errors strict; or the input cannot
      be read.
  """
  indices = itertools.count()
  for item in _items(values):
    if item is PAUSE:
      yield PAUSE
      continue
    index = next(indices)
    if not isinstance(item, Faulty):
      item = as_request(item, index)
      try:
        check(item)
      except InputError as error:
        item = Faulty(f"line {index + 1} of the input: {error}")
    if isinstance(item, Faulty):
      if values.errors == "strict":
        raise InputError(
          f"{item.message} Or use --errors skip, which writes an empty line."
        )
      faults.append(item.message)
      # A parse, since the run may have no parser.
      item = Request(unparsed(""), index=index)
    yield item


def _items(values: flags.FlagValues) -> Iterable[Any]:
  """Returns sentences or requests, and markers for invalid lines and pauses."""
  if values.json or values.input.endswith(JSON):
    if values.conllu:
      raise InputError("--json and --conllu: the input is one of them.")
    return _json_requests(values.input)
  trees = values.conllu or stream.is_conllu(values.input)
  return stream.sentences(values.input, trees)


def _json_requests(
  path: str | os.PathLike[str],
) -> Iterator[Request | Faulty | None]:
  """Yields a request per JSON line, or a `Faulty` item if it is invalid."""
  indices = itertools.count(1)
  for line in text.arriving_lines(path):
    if line is PAUSE:
      yield PAUSE
      continue
    index = next(indices)
    if isinstance(line, Faulty):
      yield line
      continue
    try:
      yield from_json(line)
    except InputError as error:
      yield Faulty(f"{text.name_of(path)}:{index}: {error}")
