"""Input readers, each of which turns one raw file format into lines of text.

  text      plain text, gzip or Zstandard
  conllu    treebank in CoNLL-U; the `# text` comments are the lines
  tsv       table of two columns, source and target
  jsonl     JSON lines with a field for each side
  tfds      examples of a TensorFlow Datasets dataset, read without TensorFlow

To support another format, add a `Reader` to the table READERS.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from jaxsyn.data.sentence import conllu, text
from jaxsyn.data.store import tfrecord
from jaxsyn.errors import InputError
from jaxsyn.storage import files

FIELDS_REMEDY = (
  "Set config.prepare.fields to the names of the source text and of the target"
  ' text, as in ("source_text", "target_text") or ("translation/en",'
  ' "translation/de").'
)
_REBUILD = "Copy the file again, or build the TFDS dataset again."
_RECORDS = 1024  # records of an ArrayRecord file to read at once


@dataclasses.dataclass(frozen=True)
class Source:
  """A raw text file and its reader, for one side of a split.

  Attributes:
    path: path of the file.
    reader: key of the reader in READERS.
    field: column of a table, or name of a field in an example, for files that
      have both sides; "" otherwise.
    first: index of the first example to read from a TFDS shard.
    count: number of examples to read from a TFDS shard.
    total: number of all examples in a TFDS shard.
  """

  path: pathlib.Path
  reader: str = "text"
  field: str = ""
  first: int = 0
  count: int = 0
  total: int = 0

  def content_key(self, sha256: str) -> str:
    """Returns a string that identifies the text of this source.

    Args:
      sha256: hash of the file.
    """
    if self.reader not in ("jsonl", "tfds"):
      return sha256
    return f"{sha256} {self.field} {self.first} {self.count}"


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
        " its source and its target, with a tab between them."
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
    yield found


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


def _tfds_shard(source: Source) -> Iterator[str]:
  from tensorflow_datasets.proto import tf_example_pb2

  parse = tf_example_pb2.Example.FromString
  is_array_record = ".array_record" in source.path.name
  read = _array_records if is_array_record else _tf_records
  for number, record in enumerate(read(source), source.first):
    where = f"{source.path}: example {number}"
    try:
      values = parse(record).features.feature[source.field].bytes_list.value
      (value,) = values
      yield value.decode("utf-8")
    except UnicodeDecodeError as error:
      raise InputError(
        f"{where}: byte {error.start + 1} of {source.field!r} is not UTF-8."
        " Correct the text and build the dataset again."
      ) from None
    except Exception as error:  # protobuf's, or not exactly one text
      raise InputError(
        f"{where} is corrupt, or has no text {source.field!r}"
        f" ({type(error).__name__}). {_REBUILD}"
      ) from None


def _tf_records(source: Source) -> Iterator[bytes]:
  """Yields the serialized examples that a split reads from a TFRecord file."""
  selected = range(source.first, source.first + source.count)
  count = 0
  try:
    for index, record in enumerate(tfrecord.scan(source.path)):
      count += 1
      if index in selected:
        yield record
  except InputError as error:
    message = str(error).replace(tfrecord.REMEDY, _REBUILD)
    raise InputError(message) from None
  if count != source.total:
    raise InputError(
      f"{source.path} has {count} examples, not {source.total} as"
      f" dataset_info.json promises. {_REBUILD}"
    )


def _array_records(source: Source) -> Iterator[bytes]:
  """Yields the serialized examples that a split reads from an ArrayRecord file."""
  try:
    from array_record.python import array_record_module
  except ImportError:
    raise InputError(
      f"{source.path} is an ArrayRecord file: pip install array_record, or build"
      " the TFDS dataset in the format tfrecord."
    ) from None
  last = source.first + source.count
  try:
    if not files.is_file(source.path):
      raise FileNotFoundError("the file is missing")
    reader = array_record_module.ArrayRecordReader(str(source.path))
    if reader.num_records() != source.total:
      raise ValueError(
        f"it has {reader.num_records()} examples, not {source.total} as"
        " dataset_info.json promises"
      )
    for first in range(source.first, last, _RECORDS):
      yield from reader.read(first, min(first + _RECORDS, last))
  except (OSError, ValueError, IndexError, RuntimeError) as error:
    what = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise InputError(
      f"{source.path} is missing or corrupt: {what}. {_REBUILD}"
    ) from None


@dataclasses.dataclass(frozen=True)
class Reader:
  """A raw file format and its reader.

  Attributes:
    texts: function that yields the texts of a source, one for each line pair.
      It raises an InputError with FILE:LINE if the file is missing, corrupt or
      malformed.
    endings: endings of the names of its files.
    has_both_sides: whether a file has both source and target.
    unit: noun in messages for the unit that becomes one line of text, such as
      "sentence"; "" if it is a line of the file.
    may_have_line_breaks: whether texts may have line breaks, which become
      blanks.
  """

  texts: Callable[[Source], Iterator[str]]
  endings: tuple[str, ...] = ()
  has_both_sides: bool = False
  unit: str = ""
  may_have_line_breaks: bool = False


READERS: dict[str, Reader] = {
  "text": Reader(_plain_text),
  "conllu": Reader(_treebank, (".conllu", ".conllu.gz"), unit="sentence"),
  "tsv": Reader(_table, (".tsv", ".tsv.gz", ".tsv.zst"), has_both_sides=True),
  "jsonl": Reader(
    _json_lines,
    (".jsonl", ".jsonl.gz", ".jsonl.zst"),
    has_both_sides=True,
    may_have_line_breaks=True,
  ),
  "tfds": Reader(
    _tfds_shard, has_both_sides=True, unit="example", may_have_line_breaks=True
  ),
}


def reader_of(name: str) -> str:
  """Returns the key in READERS of the reader of a file or of "tfds:NAME"."""
  if name.startswith("tfds:"):
    return "tfds"
  readers = READERS.items()
  return next((k for k, r in readers if name.endswith(r.endings)), "text")
