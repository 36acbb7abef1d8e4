"""Manifests of prepared folders that `preprocess.build` did not make."""

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
from jaxsyn.data.store.tfrecord import records_sha256
from jaxsyn.storage import checksums

SHA256 = "5" * 64
SIDES = ("source",)


def data_of(tree: str = "parsed", **second: Any) -> Data:
  """config.data as it is unless asked, with some trees and second task."""
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
  """A split as it is opened to train on, unless something else is asked."""
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
  """Examples that are in no dataset directory."""
  return ExamplesInMemory(Rows.of(examples, tuple(examples[0])))


def values(examples: Rows, feature: str, i: int) -> np.ndarray:
  """What an example has of a feature."""
  start = examples.start[feature]
  return examples.flat[feature][start[i] : start[i + 1]]


def manifest_of(
  folder: pathlib.Path | None = None, **fields: Any
) -> dict[str, Any]:
  """A manifest of a data set without splits, but for the fields given.

  Args:
    folder: where the files are; those that are missing are made, empty.
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
  # As JSON gives it back: lists, no tuples.
  return json.loads(json.dumps({**manifest, "files": sums, **fields}))


def write(folder: pathlib.Path, fields: Mapping[str, Any]) -> None:
  """Writes the manifest of a folder whose records are there."""
  manifests.write(folder, manifest_of(folder, **fields))


def example(i: int) -> dict[str, np.ndarray]:
  """Sentence i has 2 + i % 3 words of one subword each; values are arbitrary."""
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


def same(
  found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> None:
  """Asserts that two examples are equal in features, values and types."""
  assert found.keys() == expected.keys()
  for name in found:
    np.testing.assert_array_equal(found[name], expected[name])
    assert found[name].dtype == expected[name].dtype, name


def with_texts(example: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """An example as a record has it."""
  line = int(example["line"])
  return {**example, **{name: f"{name} {line}" for name in schema.TEXTS}}


def write_shard(path: pathlib.Path, payloads: Iterable[bytes]) -> None:
  """Writes a TFRecord file."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(b"".join(map(tfrecord.frame, payloads)))


def write_records(
  folder: pathlib.Path,
  *,
  name: str,
  version: str,
  features: Any,
  splits: Mapping[str, tuple[int, Sequence[Mapping[str, Any]]]],
  shards: int = 1,
) -> dict[str, dict[str, Any]]:
  """Writes shards, indexes and TFDS metadata; returns the manifest's splits."""
  folder = folder / name / version
  stored = [feature for feature in features if feature in schema.FEATURES]
  facts = {}
  for split, (count, examples) in splits.items():
    number = max(1, min(shards, count))
    cuts = [shard * count // number for shard in range(number + 1)]
    written, entries = [], []
    for shard, (begin, end) in enumerate(itertools.pairwise(cuts)):
      part = examples[begin:end]
      texts = {n: [one.get(n, "") for one in part] for n in schema.TEXTS}
      rows = Rows.of(part, stored)
      payloads = records.encode(rows, texts)
      file = manifests.shard_file(name, split, shard, number)
      write_shard(folder / file, payloads)
      entries.append(tfrecord.index_entries(payloads, rows))
      written.append(
        {
          "file": file,
          "examples": len(part),
          "bytes": (folder / file).stat().st_size,
          "sha256": checksums.sha256_of(folder / file),
        }
      )
    tfrecord.save_index(folder / f"index-{split}.npy", entries)
    facts[split] = {
      "examples": count,
      "shards": written,
      "records_sha256": records_sha256([one["sha256"] for one in written]),
    }
  tfds_metadata.write_metadata(
    folder,
    name=name,
    version=version,
    features=features,
    splits=facts,
  )
  return facts


def prepare(folder: pathlib.Path) -> pathlib.Path:
  """A prepared folder of `example`: splits of 11, 1 and 0 pairs, in 3 shards."""
  examples = [with_texts(example(i)) for i in range(11)]
  splits = {"train": (11, examples), "test": (1, examples[:1]), "none": (0, [])}
  features = tfds_metadata.tfds_features(
    {
      "sides": SIDES,
      "relations": {side: list("abcdefgh") for side in SIDES},
    }
  )
  facts = write_records(
    folder,
    name="toy",
    version="1.0.0",
    features=features,
    splits=splits,
    shards=3,
  )
  for name, split in facts.items():
    for side in schema.SIDES:
      lines = (f"{name} {side} {i}\n" for i in range(split["examples"]))
      paths = manifests.sentence_files(
        folder, {"splits": facts}, "text", name, side
      )
      for path, shard in zip(paths, split["shards"]):
        path.parent.mkdir(exist_ok=True)
        text = "".join(itertools.islice(lines, shard["examples"]))
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
  write(folder, {"sides": SIDES, "splits": facts})
  return folder
