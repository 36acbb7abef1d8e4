"""Streams input sentences, which are translated as they arrive.

`jaxsyn.translate` reads lines or CoNLL-U from a file, a pipe, a terminal, or a
program that writes a line and waits for its translation. `chunks` groups the
sentences that are available, so that a file is translated in full batches and
the lines of a slow writer one by one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

from jaxsyn.data.sentence import conllu, text
from jaxsyn.data.sentence.text import PAUSE, Faulty
from jaxsyn.errors import InputError

T = TypeVar("T")
Source = str | conllu.Parse


def is_conllu(path: str | os.PathLike[str]) -> bool:
  """Returns whether a file name ends in ".conllu" or ".conllu.gz"."""
  return os.fspath(path).endswith((".conllu", ".conllu.gz"))


def sentences(path: str, trees: bool) -> Iterator[Source | Faulty | None]:
  """Yields an input's lines or parses, and the marker PAUSE before each wait.

  Consecutive trees with the same sent_id are one sentence, which is complete
  when the next one begins. A tree without sent_id is complete at its blank line.

  Args:
    path: File, pipe, or "-" for standard input.
    trees: Whether the input is CoNLL-U.

  Raises:
    InputError: The input cannot be read. For a single sentence that cannot be
      read, a Faulty is yielded instead.
  """
  if not trees:
    return text.arriving_lines(path)
  lines, name = text.raw_lines(path), text.name_of(path)
  return _parses(conllu.blocks(lines, name))


def parses_of_text(conllu_source: str, name: str) -> list[conllu.Parse]:
  """Returns the parses of the sentences in a CoNLL-U string.

  Raises:
    InputError: The text is malformed; the message has `name` and the line.
  """
  return list(
    text.strict_items(_parses(conllu.blocks_of_text(conllu_source, name)))
  )


def _parses(
  items: Iterable[conllu.Block | Faulty | None],
) -> Iterator[conllu.Parse | Faulty | None]:
  group: list[conllu.Block | Faulty] = []  # of one sent_id
  for item in itertools.chain(items, [Faulty("", name="the end")]):
    if item is PAUSE:
      yield PAUSE
      continue
    if group and not (item.name and item.name == group[0].name):
      yield _parse(group)
      group = []
    group.append(item)
    if not item.name:
      yield _parse(group)
      group = []


def _parse(group: list[conllu.Block | Faulty]) -> conllu.Parse | Faulty:
  blocks: list[conllu.Block] = []
  for item in group:
    if isinstance(item, Faulty):
      return Faulty(item.message)
    blocks.append(item)
  try:
    return conllu.attach(blocks, " ".join(block.text for block in blocks))
  except InputError as error:
    return Faulty(str(error))


def chunks(items: Iterable[T | None], max_items: int) -> Iterator[list[T]]:
  """Yields lists of up to `max_items` items; a PAUSE marker ends one early.

  A shorter list means that no more items are available for now; after a full list
  it may be empty. Items before an exception are yielded before it is raised.
  """
  chunk: list[T] = []
  full = False  # whether the last list was full
  try:
    for item in items:
      if item is not PAUSE:
        chunk.append(item)
      if len(chunk) == max_items or (item is PAUSE and (chunk or full)):
        full = len(chunk) == max_items
        yield chunk
        chunk = []
  except Exception:
    if chunk:
      yield chunk
    raise
  if chunk:
    yield chunk
