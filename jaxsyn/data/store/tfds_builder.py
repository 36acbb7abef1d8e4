"""Writer of records as a dataset of TensorFlow Datasets (TFDS), and a builder.

`write` writes TFRecord shards, their index and the TFDS metadata, without
TensorFlow. If TensorFlow is installed, the directory can be read with

  tfds.load("multi30k_en_de", data_dir="data/multi30k_en_de")
  tfds.builder_from_directory("data/multi30k_en_de/multi30k_en_de/1.0.0")

Tree distances are flat uint8 arrays (W·W), which are stored as bytes in
records.

`SyntaxPairs` copies such a dataset to another directory or TFDS format.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core import dataset_info

from jaxsyn.data import schema
from jaxsyn.data.store import index, integrity, layout, manifests, tfrecord
from jaxsyn.data.store.encoding import serializer
from jaxsyn.data.store.lengths import lengths_of
from jaxsyn.data.store.manifest_format import records_sha256
from jaxsyn.data.store.rows import TOGETHER, Rows
from jaxsyn.errors import InputError
from jaxsyn.storage import files

VERSION = "1.0.0"

Example = Mapping[str, Any]  # arrays and texts; missing texts are ""


@dataclasses.dataclass(frozen=True)
class About:
  """Description of a dataset for its TFDS metadata.

  Attributes:
    title: Languages, vocabulary and parsers, in one line.
    citation: BibTeX entry of the corpus; "" for none.
    homepage: Web page of the corpus.
  """

  title: str = ""
  citation: str = ""
  # TFDS invents a URL if there is none.
  homepage: str = "none"


def write(
  directory: pathlib.Path,
  *,
  name: str,
  version: str,
  features: tfds.features.FeaturesDict,
  splits: Mapping[str, tuple[int, Iterable[Example]]],
  shards: int = 1,
  about: About | None = None,
) -> dict[str, dict[str, Any]]:
  """Writes the TFDS dataset in directory/name/version atomically.

  Args:
    directory: Dataset directory.
    name: Name of the dataset: lower case, digits and underscores, as in TFDS.
    version: Version of three numbers, such as "1.0.0".
    features: Features of an example, from `jaxsyn.data.schema.tfds_features`.
    splits: Split name -> (number of examples, the examples in order).
    shards: Number of files for a split; fewer if there are fewer examples.
    about: Description in the metadata.

  Returns:
    Entries of the manifest for each split: "examples", "shards" (each with
    file, examples, bytes and sha256) and "records_sha256".

  Raises:
    ValueError: A split has another number of examples than given.
  """
  directory = pathlib.Path(directory)
  with files.publish_folder(directory / name / version) as folder:
    facts = {
      split: _write_split(
        folder,
        (name, split),
        *value,
        shards=shards,
        features=features,
      )
      for split, value in splits.items()
    }
    write_metadata(
      folder,
      name=name,
      version=version,
      features=features,
      splits=facts,
      about=about or About(),
    )
  return facts


def _write_split(
  folder: pathlib.Path,
  names: tuple[str, str],
  count: int,
  examples: Iterable[Example],
  *,
  shards: int,
  features: Iterable[str],
) -> dict[str, Any]:
  name, split = names
  examples, stored = (
    iter(examples),
    [n for n in features if n in schema.FEATURES],
  )
  shards = max(1, min(shards, count))
  facts: list[dict[str, Any]] = []
  entries: list[np.ndarray] = []
  serialize = serializer(stored)
  for shard in range(shards):
    file = f"{name}-{split}.tfrecord-{shard:05d}-of-{shards:05d}"
    size = (shard + 1) * count // shards - shard * count // shards
    part = itertools.islice(examples, size)
    with tfrecord.writer(folder / file) as writer:
      while some := list(itertools.islice(part, TOGETHER)):
        texts = {n: [one.get(n, "") for one in some] for n in schema.TEXTS}
        rows = Rows.of(some, stored)
        payloads = serialize(rows, texts)
        writer.write_all(payloads)
        entries.append(index.entries(payloads, lengths_of(rows)))
    facts.append(
      {
        "file": file,
        "examples": writer.number,
        "bytes": writer.size,
        "sha256": writer.digest.hexdigest(),
      }
    )
  if sum(map(len, entries)) != count or next(examples, None) is not None:
    raise ValueError(f"{name}: split {split} does not hold {count} examples.")
  index.save(folder / f"index-{split}.npy", entries)
  digest = records_sha256([shard["sha256"] for shard in facts])
  return {"examples": count, "shards": facts, "records_sha256": digest}


def write_metadata(
  folder: pathlib.Path,
  *,
  name: str,
  version: str,
  features: tfds.features.FeaturesDict,
  splits: Mapping[str, Mapping[str, Any]],
  about: About,
) -> None:
  """Writes the metadata that TFDS needs to read a folder of TFRecord shards.

  Args:
    folder: Local folder NAME/VERSION; it is created if it does not exist.
    name, version, features, about: Arguments of `write`.
    splits: Manifest entry of each split, with its "shards".
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
      f"{about.title or name}. Sentence pairs: {sizes}. Of each the text, its"
      " subwords and, where it was parsed, its dependency tree, prepared by"
      " jaxsyn."
    ),
    features=features,
    supervised_keys=tuple(schema.TEXTS),
    disable_shuffling=True,  # records keep the order of the text
    homepage=about.homepage,
    citation=about.citation,
    split_dict=tfds.core.splits.SplitDict(infos),
  )
  info.set_file_format(tfds.core.FileFormat.TFRECORD)
  folder.mkdir(parents=True, exist_ok=True)
  info.write_to_directory(folder)


@dataclasses.dataclass(eq=False)
class Prepared(tfds.core.BuilderConfig):  # type: ignore[misc]  # untyped
  """Configuration of the `SyntaxPairs` builder, with the dataset to copy.

  Attributes:
    directory: Path of the dataset directory.
  """

  directory: str = ""


class SyntaxPairs(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]  # untyped
  """TFDS builder that copies a dataset to another directory or TFDS format.

    SyntaxPairs(prepared="data/multi30k_en_de", data_dir="data/arrays",
      file_format="array_record").download_and_prepare()

  From the shell, where TensorFlow is installed:

    tfds build jaxsyn/data/store/tfds_builder.py --file_format=array_record \\
      --config='{"name": "multi30k", "directory": "data/multi30k_en_de"}'
  """

  VERSION = tfds.core.Version(VERSION)
  BUILDER_CONFIGS: ClassVar = [
    Prepared(name="prepared", description="a prepared folder")
  ]

  def __init__(self, *, prepared: str = "", **options: Any):
    """Makes a builder for a dataset directory.

    Args:
      prepared: Dataset directory; "" if `config` names it.
      **options: Options of every TFDS builder: data_dir, config, ...
    """
    if prepared:
      name = manifests.read(prepared)["name"]
      options["config"] = Prepared(name=name, directory=str(prepared))
    super().__init__(**options)

  def _info(self) -> tfds.core.DatasetInfo:
    directory = self.builder_config.directory
    if not directory:
      raise InputError(
        "which prepared folder? SyntaxPairs(prepared=FOLDER), or --config="
        '\'{"name": NAME, "directory": FOLDER}\'.'
      )
    folder = layout.tfds_folder(directory, manifests.read(directory))
    info = tfds.builder_from_directory(folder).info
    return tfds.core.DatasetInfo(
      builder=self,
      description=info.description,
      features=info.features,
      supervised_keys=info.supervised_keys,
      disable_shuffling=True,
      homepage=info.homepage,
      citation=info.citation,
    )

  def _split_generators(
    self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Any]:
    splits = manifests.read(self.builder_config.directory)["splits"]
    return {split: self._generate_examples(split) for split in splits}

  def _generate_examples(self, split: str) -> Iterator[tuple[int, Example]]:
    directory = self.builder_config.directory
    manifest = manifests.read(directory)
    for shard in manifests.split(manifest, split)["shards"]:
      path = layout.tfds_folder("", manifest) / shard["file"]
      integrity.check(directory, manifest, path)
      for payload in tfrecord.scan(pathlib.Path(directory) / path):
        example = self.info.features.deserialize_example_np(payload)
        yield int(example["line"]), example
