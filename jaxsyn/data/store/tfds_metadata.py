"""Writes the metadata that TensorFlow Datasets (TFDS) needs to read a dataset.

If TensorFlow is installed, a prepared directory can be read with

  tfds.load("multi30k_en_de", data_dir="data/multi30k_en_de")
  tfds.builder_from_directory("data/multi30k_en_de/multi30k_en_de/1.0.0")

Tree distances are flat uint8 arrays (W·W), which records store as bytes.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core import dataset_info

from jaxsyn.data import schema

VERSION = "1.0.0"


def tfds_features(manifest: schema.Manifest) -> tfds.features.FeaturesDict:
  """Returns the stored features and texts of a dataset as a `FeaturesDict`.

  Tree distances are stored as raw bytes, one for each pair of words, and are read
  without a copy. Relations, and annotations with labels, are `ClassLabel`, which
  includes the names.

  Args:
    manifest: Manifest with "sides", "relations" and the optional features.
  """
  types: dict[str, Any] = {
    name: tfds.features.Text(doc=doc) for name, doc in schema.TEXTS.items()
  }
  for name, feature in schema.features(manifest).items():
    labels = schema.labels_of(manifest, name)
    if labels or name.endswith("relation"):
      classes = tfds.features.ClassLabel(names=class_names(labels))
      types[name] = tfds.features.Sequence(classes, doc=feature.meaning)
      continue
    types[name] = tfds.features.Tensor(
      shape=(None,) if feature.axes else (),
      dtype=feature.dtype.type,
      encoding="bytes" if feature.axes == "WW" else "none",
      doc=feature.meaning,
    )
  return tfds.features.FeaturesDict(types)


def class_names(labels: Iterable[str]) -> list[str]:
  """Returns distinct TFDS class names: one for id 0, then one per label.

  TFDS stores one name per line. Names must be visible, distinct, and without spaces
  at their ends: "_" is appended where necessary.

  >>> class_names(["det", "nsubj", " "])
  ['<none>', 'det', 'nsubj', '_']
  """
  names: dict[str, None] = {}
  for label in ("<none>", *labels):
    name = " ".join(label.split()) or "_"
    while name in names:
      name += "_"
    names[name] = None
  return [*names]


def write_metadata(
  folder: pathlib.Path,
  *,
  name: str,
  version: str,
  features: tfds.features.FeaturesDict,
  splits: Mapping[str, Mapping[str, Any]],
  title: str = "",
) -> None:
  """Writes the metadata that TFDS needs to read a folder of TFRecord shards.

  Args:
    folder: Local folder NAME/VERSION; it is created if it does not exist.
    name: Name of the dataset: lower case, digits and underscores, as in TFDS.
    version: Version of three numbers, such as "1.0.0".
    features: Features of an example, from `tfds_features`.
    splits: Manifest entry of each split, with its "shards".
    title: Languages, vocabulary and parsers, in one line.
  """
  template = tfds.core.ShardedFileTemplate(
    data_dir=folder, dataset_name=name, filetype_suffix="tfrecord"
  )
  infos = [
    tfds.core.SplitInfo(
      name=split,
      shard_lengths=[shard["examples"] for shard in fact["shards"]],
      num_bytes=sum(shard["bytes"] for shard in fact["shards"]),
      filename_template=template.replace(split=split),
    )
    for split, fact in splits.items()
  ]
  sizes = ", ".join(f"{info.name} {info.num_examples:,}" for info in infos)
  info = dataset_info.DatasetInfo(
    builder=dataset_info.DatasetIdentity(
      name=name,
      version=tfds.core.Version(version),
      data_dir=str(folder),
      module_name=__name__,
    ),
    description=(
      f"{title or name}. Sentence pairs: {sizes}. Each pair has its texts and"
      " subwords, and the dependency trees of the sides with trees. Prepared by"
      " jaxsyn."
    ),
    features=features,
    supervised_keys=tuple(schema.TEXTS),
    disable_shuffling=True,  # records keep the order of the text
    homepage="none",  # TFDS invents a URL if there is none
    split_dict=tfds.core.splits.SplitDict(infos),
  )
  info.set_file_format(tfds.core.FileFormat.TFRECORD)
  folder.mkdir(parents=True, exist_ok=True)
  info.write_to_directory(folder)
