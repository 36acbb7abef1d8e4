"""Reads shards of TensorFlow Datasets (TFDS) as text without TensorFlow.

An entry of config.prepare.splits is ("tfds:NAME", SPLIT) for a dataset in the
data directory of TFDS, or ("tfds:FOLDER", SPLIT) for the folder of a version,
which has dataset_info.json. Each shard becomes one `Source` for each side.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from jaxsyn.data.store import tfrecord
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.preprocess.raw import FIELDS_REMEDY, Source
from jaxsyn.storage import files

PREFIX = "tfds:"
_INFO = "dataset_info.json"
_FORMATS = ("tfrecord", "array_record")
_REBUILD = "Copy the file again, or build the TFDS dataset again."
_RECORDS = 1024  # records of an ArrayRecord file to read at once


def sources(
  entry: str, split: str, *, raw_dir: str, wanted: Mapping[str, str]
) -> dict[str, tuple[Source, ...]]:
  """Returns the shards of a TFDS split as raw-text sources, by side.

  Args:
    entry: "tfds:NAME", "tfds:NAME/CONFIG:VERSION", or "tfds:FOLDER".
    split: Name of a TFDS split, which may be a slice such as "train[:10%]".
    raw_dir: Folder of the raw files, which may contain FOLDER.
    wanted: Side -> name of its text feature, or its language code.

  Raises:
    InputError: The dataset, split or text feature does not exist.
  """
  try:
    builder = _builder(entry, raw_dir)
  except InputError:
    raise
  except Exception as error:  # of many kinds: JSON, protobuf, imports
    what = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise InputError(
      f"{entry} cannot be opened by TFDS ({what}). Build the dataset again, or"
      " copy the folder again."
    ) from None
  info, folder = builder.info, builder.data_dir
  file_format = info.file_format.value if info.file_format else "tfrecord"
  if file_format not in _FORMATS:
    raise InputError(
      f"{entry}: {folder} has the format {file_format}; build the dataset in"
      f" the format {' or '.join(_FORMATS)}."
    )
  names = sorted(_text_features(info.features))
  fields = {side: _field(entry, side, names, wanted[side]) for side in wanted}
  try:
    shards = info.splits[split].file_instructions
  except (ValueError, KeyError, AssertionError) as error:
    near = did_you_mean(split, info.splits)
    raise InputError(
      f"{entry}: there is no split {split!r} in {folder}; its splits are"
      f" {', '.join(info.splits)}. {near} A slice is written as in"
      f" train[:10%]. ({str(error).splitlines()[0]})"
    ) from None
  sources: dict[str, list[Source]] = {side: [] for side in fields}
  for shard in shards:
    if not files.is_file(shard.filename):
      raise InputError(
        f"{entry}: the shard {shard.filename} is missing. Copy the folder again,"
        " or build the dataset again."
      )
    path, total = files.path_of(shard.filename), shard.examples_in_shard
    is_rest = shard.take in (-1, None)
    count = total - shard.skip if is_rest else shard.take
    for side, field in fields.items():
      source = Source(path, "tfds", field, shard.skip, count, total)
      sources[side].append(source)
  return {side: tuple(of_side) for side, of_side in sources.items()}


def _builder(entry: str, raw_dir: str) -> Any:
  """Opens a TFDS dataset in a folder, or the newest version of a named one."""
  import tensorflow_datasets as tfds
  from tensorflow_datasets.core import read_only_builder

  name = entry.removeprefix(PREFIX)
  for folder in (files.path_of(raw_dir) / name, files.path_of(name)):
    if files.is_file(folder / _INFO):
      return tfds.builder_from_directory(folder)
  data_dir = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
  data_dir = os.path.expanduser(data_dir)
  try:
    return read_only_builder.builder_from_files(name, data_dir=data_dir)
  except (tfds.core.DatasetNotFoundError, ValueError):  # or no valid name
    raise InputError(
      f"{entry}: there is no dataset {name}, neither in {data_dir} nor as a"
      f" folder with {_INFO}. Build it with `tfds build` or"
      f' `tensorflow_datasets.builder("{name}", file_format="array_record")'
      ".download_and_prepare()`; TFDS_DATA_DIR names another data directory."
    ) from None


def _text_features(features: Any, prefix: str = "") -> list[str]:
  """Returns the paths of all text features in an example, joined by "/"."""
  import tensorflow_datasets as tfds

  names = []
  for name, feature in features.items():
    if isinstance(feature, tfds.features.FeaturesDict):
      names += _text_features(feature, f"{prefix}{name}/")
    elif isinstance(feature, tfds.features.Text) and feature.encoder is None:
      names.append(f"{prefix}{name}")
  return names


def _field(entry: str, side: str, names: list[str], wanted: str) -> str:
  """Finds the text feature of a side, such as "translation/de"."""
  candidates = [name for name in names if name == wanted]
  candidates = candidates or [n for n in names if n.endswith(f"/{wanted}")]
  if len(candidates) == 1:
    return candidates[0]
  what = "several text features" if candidates else "no text feature"
  raise InputError(
    f"{entry} has {what} {wanted!r} for the {side}; its text features are"
    f" {', '.join(names) or 'none'}. {FIELDS_REMEDY}"
  )


def texts(source: Source) -> Iterator[str]:
  """Yields the texts of one side from a shard of a TFDS split.

  Raises:
    InputError: The shard is missing or corrupt, or has no such text.
  """
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
  """Yields the serialized examples of a split from a TFRecord file."""
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
  """Yields the serialized examples of a split from an ArrayRecord file."""
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
