"""Metadata with which TensorFlow Datasets (TFDS) reads a dataset directory.

If TensorFlow is installed, a prepared directory can be read with

  tfds.load("multi30k_en_de", data_dir="data/multi30k_en_de")
  tfds.builder_from_directory("data/multi30k_en_de/multi30k_en_de/1.0.0")

Tree distances are flat uint8 arrays (W·W), which records store as bytes.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core import dataset_info

from jaxsyn.data import schema

VERSION = "1.0.0"


def write_metadata(
  folder: pathlib.Path,
  *,
  name: str,
  version: str,
  features: tfds.features.FeaturesDict,
  splits: Mapping[str, Mapping[str, Any]],
  title: str = "",
  citation: str = "",
  homepage: str = "none",  # TFDS invents a URL if there is none
) -> None:
  """Writes the metadata that TFDS needs to read a folder of TFRecord shards.

  Args:
    folder: Local folder NAME/VERSION; it is created if it does not exist.
    name: Name of the dataset: lower case, digits and underscores, as in TFDS.
    version: Version of three numbers, such as "1.0.0".
    features: Features of an example, from `jaxsyn.data.schema.tfds_features`.
    splits: Manifest entry of each split, with its "shards".
    title: Languages, vocabulary and parsers, in one line.
    citation: BibTeX entry of the corpus; "" for none.
    homepage: Web page of the corpus.
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
      f"{title or name}. Sentence pairs: {sizes}. Of each the text, its"
      " subwords and, where it was parsed, its dependency tree, prepared by"
      " jaxsyn."
    ),
    features=features,
    supervised_keys=tuple(schema.TEXTS),
    disable_shuffling=True,  # records keep the order of the text
    homepage=homepage,
    citation=citation,
    split_dict=tfds.core.splits.SplitDict(infos),
  )
  info.set_file_format(tfds.core.FileFormat.TFRECORD)
  folder.mkdir(parents=True, exist_ok=True)
  info.write_to_directory(folder)
