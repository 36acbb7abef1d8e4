"""Shards of TensorFlow Datasets (TFDS) as raw text, without TensorFlow.

An entry of config.prepare.splits is ("tfds:NAME", SPLIT) for a dataset in the
data directory of TFDS, or ("tfds:FOLDER", SPLIT) for a folder that a TFDS
builder has made. Each shard becomes one `Source` for each side.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.preprocess.readers import FIELDS_REMEDY, Source
from jaxsyn.storage import files, remote

PREFIX = "tfds:"
_INFO = "dataset_info.json"
_FORMATS = ("tfrecord", "array_record")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_MAX_DEPTH = 3  # folders of name, config and version


def sources(
  entry: str, split: str, *, raw_dir: str, wanted: Mapping[str, str]
) -> dict[str, tuple[Source, ...]]:
  """Returns the shards of a TFDS split as raw text sources of each side.

  Args:
    entry: "tfds:NAME", "tfds:NAME/CONFIG:VERSION", or "tfds:FOLDER".
    split: TFDS split, which may be a slice such as "train[:10%]".
    raw_dir: folder of the raw files, which may contain FOLDER.
    wanted: side -> name of its text feature, or its language code.

  Raises:
    InputError: the dataset, split or text feature does not exist.
  """
  import tensorflow_datasets as tfds

  folder = _folder(entry, raw_dir)
  try:
    info = tfds.builder_from_directory(folder).info
  except Exception as error:  # of many kinds: JSON, protobuf, imports
    what = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise InputError(
      f"{entry}: {folder} cannot be opened by TFDS ({what}). Build the dataset"
      " again, or copy the folder again."
    ) from None
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
  found: dict[str, list[Source]] = {side: [] for side in fields}
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
      found[side].append(source)
  return {side: tuple(of_side) for side, of_side in found.items()}


def _folder(entry: str, raw_dir: str) -> pathlib.Path:
  """Returns the folder of the newest version of a TFDS dataset."""
  name = entry.removeprefix(PREFIX)
  if remote.is_remote(name):
    return files.path_of(name)
  data_dir = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
  places = [
    pathlib.Path(raw_dir, name).expanduser(),
    pathlib.Path(name).expanduser(),
    pathlib.Path(data_dir, name.replace(":", "/")).expanduser(),
  ]
  place = next((place for place in places if place.is_dir()), None)
  if place is None:
    raise InputError(
      f"{entry}: there is no dataset {name}, neither as a folder nor in"
      f" {pathlib.Path(data_dir).expanduser()}. Build it with `tfds build` or"
      f' `tensorflow_datasets.builder("{name}", file_format="array_record")'
      ".download_and_prepare()`; TFDS_DATA_DIR names another data directory."
    )
  folders: list[pathlib.Path] = []
  for depth in range(_MAX_DEPTH + 1):
    folders += [path.parent for path in place.glob("*/" * depth + _INFO)]
  newest = {folder.parent: folder for folder in sorted(folders, key=_version)}
  if not newest:
    raise InputError(
      f"{entry}: {place} has no {_INFO}; name a folder that a TFDS builder has"
      " made, as in data/NAME/1.0.0."
    )
  if len(newest) > 1:
    listed = ", ".join(str(path) for path in sorted(newest.values()))
    raise InputError(
      f"{entry}: {place} has several datasets: {listed}. Name one of them."
    )
  (folder,) = newest.values()
  return folder


def _version(folder: pathlib.Path) -> tuple[int, ...]:
  if not _VERSION.fullmatch(folder.name):
    return ()
  return tuple(map(int, folder.name.split(".")))


def _text_features(features: Any, prefix: str = "") -> list[str]:
  """Returns the names of all text features in an example, nested with "/"."""
  import tensorflow_datasets as tfds

  names = []
  for name, feature in features.items():
    if isinstance(feature, tfds.features.FeaturesDict):
      names += _text_features(feature, f"{prefix}{name}/")
    elif isinstance(feature, tfds.features.Text) and feature.encoder is None:
      names.append(f"{prefix}{name}")
  return names


def _field(entry: str, side: str, names: list[str], wanted: str) -> str:
  """Returns the name of a side's text feature, such as "translation/de"."""
  candidates = [name for name in names if name == wanted]
  candidates = candidates or [n for n in names if n.endswith(f"/{wanted}")]
  if len(candidates) == 1:
    return candidates[0]
  what = "several text features" if candidates else "no text feature"
  raise InputError(
    f"{entry} has {what} {wanted!r} for the {side}; its text features are"
    f" {', '.join(names) or 'none'}. {FIELDS_REMEDY}"
  )
