"""Readers that convert raw file formats to lines of text.

  text      plain text, gzip, Zstandard, or a test set in SGML or XML
  conllu    treebank in CoNLL-U; the `# text` comments are the lines
  tsv       table of two columns, source and target
  jsonl     JSON lines with a field for each side
  tfds      examples of a TensorFlow Datasets dataset, read without TensorFlow

Line breaks in texts of the last two become spaces.
To support another format, add a `Reader` to the table READERS.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from jaxsyn.data.sentence import conllu, text
from jaxsyn.errors import InputError
from jaxsyn.preprocess import tfds_input
from jaxsyn.preprocess.raw import FIELDS_REMEDY, Source


def _plain_text(source: Source) -> Iterator[str]:
  return text.lines_of(source.path)


def _treebank(source: Source) -> Iterator[str]:
  for block in conllu.read(source.path):
    line, where = block.comment_text, f"{block.file}:{block.line}"
    if not line:
      raise InputError(
        f"{where}: this sentence has no `# text = ...` comment, so its text is"
        " not known. Give the text as a plain file in config.prepare.splits,"
        " and this file in config.prepare.parse."
      )
    if len(line.splitlines()) > 1:  # as at U+2028
      raise InputError(
        f"{where}: the text of this sentence has a line break in it:"
        f" {line[:60]!r}. Correct the file: one sentence is one line."
      )
    yield line


def _table(source: Source) -> Iterator[str]:
  column = int(source.field)
  for number, line in enumerate(text.lines_of(source.path), 1):
    columns = line.split("\t")
    if len(columns) != 2:
      raise InputError(
        f"{source.path}:{number}: {len(columns)} columns, but a pair has two,"
        " its source and its target, with a tab between them. To take the first"
        " two of more: cut -f1,2."
      )
    yield columns[column]


def _json_lines(source: Source) -> Iterator[str]:
  for number, line in enumerate(text.lines_of(source.path), 1):
    where = f"{source.path}:{number}"
    try:
      value = json.loads(line)
    except ValueError as error:
      raise InputError(
        f"{where}: the line is not JSON ({error}). Each line must be an object"
        " with the source and the target of a pair."
      ) from None
    found = _json_field(value, source.field)
    if not isinstance(found, str):
      known = ", ".join(value) if isinstance(value, dict) else ""
      raise InputError(
        f"{where}: there is no text in the field {source.field!r}; the fields"
        f" are {known or 'none'}. {FIELDS_REMEDY}"
      )
    if not found.isascii() and any("\ud800" <= c <= "\udfff" for c in found):
      raise InputError(
        f"{where}: the field {source.field!r} has half of a surrogate pair,"
        " which is no character."
      )
    yield _one_line(found)


def _tfds(source: Source) -> Iterator[str]:
  return map(_one_line, tfds_input.texts(source))


def _one_line(text: str) -> str:
  """Replaces line breaks by spaces."""
  return re.sub(r"\r?\n|\r", " ", text)


def _json_field(value: Any, field: str) -> Any:
  """Returns the value of a field such as "de" or "translation/de", or None.

  A single name may also be a key of the nested object "translation".
  """
  found = value
  for name in field.split("/"):
    found = found.get(name) if isinstance(found, dict) else None
  if found is None and "/" not in field:
    return _json_field(value, f"translation/{field}")
  return found


@dataclasses.dataclass(frozen=True)
class Reader:
  """Raw file format, with the function that reads texts from its files.

  Attributes:
    texts: Function that yields the texts of a source, one for each line pair.
      It raises an InputError with FILE:LINE if the file is missing, corrupt or
      malformed.
    endings: Endings of the names of its files.
    has_both_sides: Whether a file has both source and target.
    unit: Noun in messages for the unit that becomes one line of text, such as
      "sentence"; "" if it is a line of the file.
  """

  texts: Callable[[Source], Iterator[str]]
  endings: tuple[str, ...] = ()
  has_both_sides: bool = False
  unit: str = ""


READERS: dict[str, Reader] = {
  "text": Reader(_plain_text),
  "conllu": Reader(_treebank, (".conllu", ".conllu.gz"), unit="sentence"),
  "tsv": Reader(_table, (".tsv", ".tsv.gz", ".tsv.zst"), has_both_sides=True),
  "jsonl": Reader(
    _json_lines, (".jsonl", ".jsonl.gz", ".jsonl.zst"), has_both_sides=True
  ),
  "tfds": Reader(_tfds, has_both_sides=True, unit="example"),
}


def reader_of(name: str) -> str:
  """Returns the format of a file or "tfds:NAME" entry, a key of READERS."""
  if name.startswith("tfds:"):
    return "tfds"
  readers = READERS.items()
  return next((k for k, r in readers if name.endswith(r.endings)), "text")
