"""Datasets that `preprocess.build` did not make, and loaders of their batches."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import pathlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.config import as_dict, read_config
from jaxsyn.configs import base
from jaxsyn.data import schema
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.loader import (
  SINGLE_HOST,
  DataLoader,
  HostShard,
  open_loader,
)
from jaxsyn.data.loader.transforms import ExamplesInMemory
from jaxsyn.data.options import Data
from jaxsyn.data.store import (
  manifests,
  records,
  tfds_metadata,
  tfrecord,
)
from jaxsyn.data.store.dataset import Split
from jaxsyn.data.store.rows import Rows
from jaxsyn.storage import checksums

SHA256 = "5" * 64
SIDES = ("source",)


def data_of(tree: str = "parsed", **second: Any) -> Data:
  """Returns the default config.data with given trees and auxiliary task."""
  config = base.get_config()
  config.data.tree = tree
  config.data.second.update(second)
  return read_config(config).data


def opened(
  split: Split,
  required: Collection[str],
  *,
  data: Data | None = None,
  seed: int = 0,
  training: bool = True,
  share: HostShard = SINGLE_HOST,
  **batch: Any,
) -> DataLoader:
  """Returns a loader for a split, by default one of training batches."""
  return open_loader(
    split,
    required,
    data=data or data_of(),
    batch=dataclasses.replace(read_config(base.get_config()).batch, **batch),
    seed=seed,
    training=training,
    shard=share,
  )


def stored(examples: Sequence[Mapping[str, np.ndarray]]) -> ExamplesInMemory:
  """Returns examples that are in no dataset directory."""
  return ExamplesInMemory(Rows.of(examples, tuple(examples[0])))


def values(examples: Rows, feature: str, i: int) -> np.ndarray:
  """Returns the values of a feature in example i."""
  start = examples.start[feature]
  return examples.flat[feature][start[i] : start[i + 1]]


def manifest_of(
  folder: pathlib.Path | None = None, **fields: Any
) -> dict[str, Any]:
  """Returns the manifest of a dataset without splits, with given fields.

  Args:
    folder: Dataset directory; files that are missing are created, empty.
    fields: Fields of the manifest.
  """
  sides = fields.get("sides", ["source"])
  vocabulary = {"file": "vocabulary.model", "sha256": SHA256, "size": 1000}
  parser = {"file": "", "sha256": "", "name": "", "trees": "CoNLL-U"}
  options = read_config(base.get_config()).prepare
  manifest = {
    "name": "toy",
    "version": "1.0.0",
    "sides": list(sides),
    "splits": {},
    "vocabulary": {"source": vocabulary, "target": vocabulary},
    "parser": dict.fromkeys(sides, parser),
    "relations": {side: list("abcdefgh") for side in sides},
    "options": as_dict(options),
    "files": {},
    **fields,
  }
  if folder is None:
    nothing = {"bytes": 0, "crc32c": "00000000"}
    sums = dict.fromkeys(manifests.file_names(manifest), nothing)
  else:
    for name in manifests.file_names(manifest):
      path = folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.touch()
    existing = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    sums = checksums.file_checksums(
      folder, sorted(path.as_posix() for path in existing)
    )
  return json.loads(json.dumps({**manifest, "files": sums, **fields}))


def example(i: int) -> dict[str, np.ndarray]:
  """Returns an example of 2 + i % 3 words of one subword each."""
  words = 2 + i % 3
  values = {
    "line": i + 1,
    "source_id": [*range(10, 10 + words), schema.EOS],
    "source_word": [*range(words), -1],
    "source_head": [0] * words,
    "source_relation": list(range(words)),
    "source_parent_mid": [0.5] * words + [words],
    "source_tree_distance": list(range(words * words)),
    "source_parsed": 1,
    "source_word_end": [10 * (word + 1) for word in range(words)],
    "target_id": [300 + i] * (i % 4) + [schema.EOS],
  }
  features = schema.features({"sides": SIDES})
  return {k: np.asarray(v, features[k].dtype) for k, v in values.items()}


def _empty() -> dict[str, np.ndarray]:
  values = {"source_id": [schema.EOS], "target_id": [schema.EOS]}
  values |= {"source_word": [-1], "source_parent_mid": [0]}
  values |= {"line": 1, "source_parsed": 0}
  features = schema.features({"sides": SIDES})
  return {k: np.asarray(values.get(k, []), features[k].dtype) for k in features}


EMPTY = _empty()  # an example without words


def same(
  found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> None:
  """Asserts that two examples are equal in features, values and types."""
  assert found.keys() == expected.keys()
  for name in found:
    np.testing.assert_array_equal(found[name], expected[name])
    assert found[name].dtype == expected[name].dtype, name


def with_texts(example: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Returns an example with its texts."""
  line = int(example["line"])
  return {**example, **{name: f"{name} {line}" for name in schema.TEXTS}}


def epoch_of(loader: DataLoader, epoch: int = 0) -> dict[int, Any]:
  """Returns the arrays of each example in an epoch, padded, by its index."""
  rows = {}
  planned_batches = loader.batch_sampler.epoch(epoch)
  for planned, one in zip(planned_batches, loader.batches(Position(epoch))):
    for row, index in enumerate(planned.ids.tolist()):
      rows[index] = {k: v[row] for k, v in one.batch.items()}
  return rows


def write_shard(path: pathlib.Path, payloads: Iterable[bytes]) -> None:
  """Writes a TFRecord file."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(b"".join(map(tfrecord.frame, payloads)))


def write_dataset(
  folder: pathlib.Path,
  splits: Mapping[str, Sequence[Mapping[str, Any]]],
  *,
  shards: int = 1,
  version: str = "1.0.0",
  **fields: Any,
) -> pathlib.Path:
  """Writes shards, indexes, TFDS metadata and the manifest of a dataset.

  Args:
    folder: Dataset directory.
    splits: Examples of each split; a missing text is "".
    shards: Number of shards of each split that has so many examples.
    version: Version of the dataset.
    fields: Fields of the manifest.
  """
  manifest = manifest_of(version=version, **fields)
  records_folder = manifests.tfds_folder(folder, manifest)
  manifest["splits"] = {
    split: _write_split(records_folder, manifest, split, examples, shards)
    for split, examples in splits.items()
  }
  tfds_metadata.write_metadata(
    records_folder,
    name="toy",
    version=version,
    features=tfds_metadata.tfds_features(manifest),
    splits=manifest["splits"],
  )
  for split, side in itertools.product(splits, schema.SIDES):
    lines = (f"{split} {side} {i}\n" for i in range(len(splits[split])))
    paths = manifests.sentence_files(folder, manifest, "text", split, side)
    for path, shard in zip(paths, manifest["splits"][split]["shards"]):
      path.parent.mkdir(exist_ok=True)
      text = "".join(itertools.islice(lines, shard["examples"]))
      path.write_bytes(gzip.compress(text.encode(), mtime=0))
  fields |= {"version": version, "splits": manifest["splits"]}
  manifests.write(folder, manifest_of(folder, **fields))
  return folder


def _write_split(
  folder: pathlib.Path,
  manifest: Mapping[str, Any],
  split: str,
  examples: Sequence[Mapping[str, Any]],
  shards: int,
) -> dict[str, Any]:
  """Writes the records of a split; returns its entry of the manifest."""
  shards = max(1, min(shards, len(examples)))
  cuts = [shard * len(examples) // shards for shard in range(shards + 1)]
  written, entries = [], []
  for shard, (begin, end) in enumerate(itertools.pairwise(cuts)):
    part = examples[begin:end]
    texts = {n: [one.get(n, "") for one in part] for n in schema.TEXTS}
    rows = Rows.of(part, schema.features(manifest))
    payloads = records.encode(rows, texts)
    path = folder / manifests.shard_file("toy", split, shard, shards)
    write_shard(path, payloads)
    entries.append(tfrecord.index_entries(payloads, rows))
    sha256 = checksums.sha256_of(path)
    sizes = {"examples": len(part), "bytes": path.stat().st_size}
    written.append({"file": path.name, "sha256": sha256, **sizes})
  tfrecord.save_index(folder / f"index-{split}.npy", entries)
  hashes = [shard["sha256"] for shard in written]
  return {
    "examples": len(examples),
    "shards": written,
    "records_sha256": tfrecord.records_sha256(hashes),
  }


def prepare(folder: pathlib.Path) -> pathlib.Path:
  """Writes a dataset of `example`: splits of 11, 1 and 0 pairs, in 3 shards."""
  examples = [with_texts(example(i)) for i in range(11)]
  splits = {"train": examples, "test": examples[:1], "none": []}
  return write_dataset(folder, splits, shards=3)
