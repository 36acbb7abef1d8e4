"""Sentences that are answered while others are still to come.

What `jaxsyn.translate` reads: lines or CoNLL-U, of a file, a pipe, a terminal,
or a program that writes a line and waits for the answer. `chunks` takes what is
there, so a file is translated in full batches and a slow writer line by line.
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
  """Whether a file is CoNLL-U, by its name."""
  return os.fspath(path).endswith((".conllu", ".conllu.gz"))


def sentences(
  path: str, trees: bool, errors: str = "strict"
) -> Iterator[Source | Faulty | None]:
  """Raw lines, or the parses of CoNLL-U, as they come.

  Trees of one sent_id that follow each other are one sentence, so it is whole
  when the next begins; a tree without sent_id is one at its blank line.

  Args:
    path: of a file, a pipe, or "-".
    trees: it is CoNLL-U.
    errors: what becomes of a sentence that cannot be read. "strict": raises.
      "replace": a line is what can be read of it; a malformed tree, and with
      "skip" also a line, is nothing.

  Raises:
    InputError: with "strict"; or all of it cannot be read.
  """
  if not trees:
    return text.treated(text.arriving_lines(path), errors)
  blocks = conllu.arriving(path, replace=errors == "replace")
  return text.treated(_parses(blocks), errors)


def parses_of_text(conllu_source: str, name: str) -> list[conllu.Parse]:
  """The sentences of CoNLL-U in a string.

  Args:
    conllu_source: the CoNLL-U.
    name: stands for the file in errors.

  Raises:
    InputError: it is malformed; names the line.
  """
  return list(text.whole(_parses(conllu.blocks_of_text(conllu_source, name))))


def _parses(
  items: Iterable[conllu.Block | Faulty | None],
) -> Iterator[conllu.Parse | Faulty | None]:
  group: list[conllu.Block | Faulty] = []
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
  """One sentence of its trees."""
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
  """Lists of what is there, in order: up to a PAUSE, or so many.

  One of fewer says that nothing more is there for now; after a full one it may
  be empty. Where the items end in an exception, what came before it is given first.
  """
  chunk: list[T] = []
  full = False  # was the last one
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
