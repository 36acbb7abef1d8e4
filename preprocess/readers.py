"""Input readers, each of which turns one raw file format into lines of text.

  text      plain text, gzip, Zstandard, or a test set in SGML or XML
  conllu    treebank in CoNLL-U; the `# text` comments are the lines
  tsv       table of two columns, source and target
  jsonl     JSON lines with a field for each side
  tfds      examples of a TensorFlow Datasets dataset, read without TensorFlow

To support another format, add a subclass of `Reader` to the table READERS.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from jaxsyn.data.sentence import conllu, text
from jaxsyn.data.sentence.stream import is_conllu
from jaxsyn.data.store import records
from jaxsyn.errors import InputError
from jaxsyn.storage import files

FIELDS_REMEDY = (
  "Set config.prepare.fields to the names of the source text and of the target"
  ' text, as in ("source_text", "target_text") or ("translation/en",'
  ' "translation/de").'
)
_RECORDS = 1024  # records of an ArrayRecord file to read at once
_PACKED = ("", ".gz", ".zst")
_TABLES = tuple(f".tsv{packing}" for packing in _PACKED)
_JSON = tuple(f".jsonl{packing}" for packing in _PACKED)


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


class Reader(abc.ABC):
  """Base class of readers, which extract lines of text from raw input files.

  Attributes:
    unit: noun in messages for the unit that becomes one line of text, such as
      "sentence"; "" if it is a line of the file.
    may_have_line_breaks: whether texts may have line breaks, which become
      blanks.
  """

  unit = ""
  may_have_line_breaks = False

  @abc.abstractmethod
  def texts(self, source: Source) -> Iterator[str]:
    """Yields the texts that become lines of one side, in file order.

    Raises:
      InputError: the file is missing, corrupt or malformed; names FILE:LINE.
    """


class PlainText(Reader):
  """Reader of plain or compressed text, and of test sets in SGML or XML."""

  def texts(self, source: Source) -> Iterator[str]:
    return text.lines_of(source.path)


class Treebank(Reader):
  """Reader of CoNLL-U treebanks, whose `# text` comments are the lines."""

  unit = "sentence"

  def texts(self, source: Source) -> Iterator[str]:
    for block in conllu.read(source.path):
      yield _sentence(block)


def _sentence(block: conllu.Block) -> str:
  """Returns the `# text` comment of a sentence in a treebank.

  Raises:
    InputError: the comment is missing or has a line break such as U+2028.
  """
  line, where = block.comment_text, f"{block.file}:{block.line}"
  if not line:
    raise InputError(
      f"{where}: this sentence has no `# text = ...` comment, so its text is not"
      " known. Give the text as a plain file in config.prepare.splits, and this"
      " file in config.prepare.parse."
    )
  if len(line.splitlines()) > 1:
    raise InputError(
      f"{where}: the text of this sentence has a line break in it:"
      f" {line[:60]!r}. Correct the file: one sentence is one line."
    )
  return line


class Table(Reader):
  """Reader of tables with a source and a target column, separated by tabs."""

  def texts(self, source: Source) -> Iterator[str]:
    column = int(source.field)
    for number, line in enumerate(text.lines_of(source.path), 1):
      columns = line.split("\t")
      if len(columns) != 2:
        raise InputError(
          f"{source.path}:{number}: {len(columns)} columns, but a pair has two,"
          " its source and its target, with a tab between them."
        )
      yield columns[column]


class JsonLines(Reader):
  """Reader of files with a JSON object on each line, with a field per side."""

  may_have_line_breaks = True

  def texts(self, source: Source) -> Iterator[str]:
    names = source.field.split("/")
    for number, line in enumerate(text.lines_of(source.path), 1):
      where = f"{source.path}:{number}"
      try:
        value: Any = json.loads(line)
      except ValueError as error:
        raise InputError(
          f"{where}: the line is not JSON ({error}). Each line must be an object"
          " with the source and the target of a pair."
        ) from None
      yield _json_text(value, names, where)


def _json_text(value: Any, names: list[str], where: str) -> str:
  """Returns the text of a field in a JSON object.

  A single name may also be a key of the nested object "translation".

  Args:
    value: parsed JSON value of a line.
    names: path of keys to the field.
    where: FILE:LINE for messages.
  """
  found = value
  for name in names:
    found = found.get(name) if isinstance(found, dict) else None
  if found is None and len(names) == 1 and isinstance(value, dict):
    nested = value.get("translation")
    found = nested.get(names[0]) if isinstance(nested, dict) else None
  if not isinstance(found, str):
    known = ", ".join(value) if isinstance(value, dict) else ""
    raise InputError(
      f"{where}: there is no text in the field {'/'.join(names)!r}; the fields"
      f" are {known or 'none'}. {FIELDS_REMEDY}"
    )
  if not found.isascii() and any("\ud800" <= c <= "\udfff" for c in found):
    raise InputError(
      f"{where}: the field {'/'.join(names)!r} has half of a surrogate pair,"
      " which is no character."
    )
  return found


class TfdsShard(Reader):
  """Reader of shards of a TFDS dataset, in TFRecord or ArrayRecord format."""

  unit = "example"
  may_have_line_breaks = True

  def texts(self, source: Source) -> Iterator[str]:
    from tensorflow_datasets.proto import tf_example_pb2

    parse = tf_example_pb2.Example.FromString
    count = 0
    for number, record in enumerate(_records(source), source.first):
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
      count += 1
    if count != source.count:
      raise InputError(
        f"{source.path} has {count} of the {source.count} examples that"
        f" dataset_info.json promises. {_REBUILD}"
      )


_REBUILD = "Copy the file again, or build the TFDS dataset again."


def _records(source: Source) -> Iterator[bytes]:
  """Yields the serialized examples of a TFDS shard that a source selects."""
  last = source.first + source.count
  if ".array_record" in source.path.name:
    yield from _array_records(source, last)
    return
  try:
    count = 0
    for count, record in enumerate(records.scan(source.path), 1):
      if source.first < count <= last:
        yield record
    if count != source.total:
      raise InputError(
        f"{source.path} has {count} examples, not {source.total} as"
        f" dataset_info.json promises. {_REBUILD}"
      )
  except InputError as error:
    message = str(error).replace(records.REMEDY, _REBUILD)
    raise InputError(message) from None


def _array_records(source: Source, last: int) -> Iterator[bytes]:
  try:
    from array_record.python import array_record_module
  except ImportError:
    raise InputError(
      f"{source.path} is an ArrayRecord file: pip install array_record, or build"
      " the TFDS dataset in the format tfrecord."
    ) from None
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


READERS: dict[str, Reader] = {
  "text": PlainText(),
  "conllu": Treebank(),
  "tsv": Table(),
  "jsonl": JsonLines(),
  "tfds": TfdsShard(),
}


def reader_of(name: str) -> str:
  """Returns the key in READERS of the reader that fits a file name."""
  if is_conllu(name):
    return "conllu"
  if name.endswith(_TABLES):
    return "tsv"
  return "jsonl" if name.endswith(_JSON) else "text"


def has_both_sides(name: str) -> bool:
  """Returns whether a raw file or TFDS dataset has both source and target."""
  return name.endswith((*_TABLES, *_JSON)) or name.startswith("tfds:")
