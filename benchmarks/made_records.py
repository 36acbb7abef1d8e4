"""Dataset directories of random pairs, of any size, to measure how a split is read.

Beyond a million pairs the shards are links to the first one: the system's cache holds
more of the data than it would of as many different pairs.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.options import Prepare
from jaxsyn.data.sentence import controls
from jaxsyn.data.sentence import tree as trees
from jaxsyn.data.store import index, layout, manifests, records
from jaxsyn.data.store.dataset import BLOCK
from jaxsyn.data.store.manifest_format import records_sha256
from jaxsyn.data.store.rows import Example, Rows
from jaxsyn.options import config_dict
from jaxsyn.storage import checksums, files

DISTINCT = 1_000_000  # pairs of a shard
SIDES = ("source",)
VOCABULARY = 8000


def pool(size: int = 4000) -> list[Example]:
  """Returns pairs of 4 to 30 words, one subword each, with random trees."""
  rng = np.random.default_rng(0)
  made = []
  for seed in range(size):
    words = int(rng.integers(4, 31))
    head_W = controls.random_trees(np.array([words]), [seed])
    word_S = np.r_[np.arange(words), -1].astype(np.int32)
    target = max(2, words + int(rng.integers(-3, 4)))
    values = {
      "line": seed + 1,
      "source_id": [*rng.integers(4, VOCABULARY, words), schema.EOS],
      "source_word": word_S,
      "source_head": head_W,
      "source_relation": np.ones(words),
      "source_parent_mid": trees.parent_mid(word_S, np.asarray(head_W)),
      "source_tree_distance": trees.tree_distance(head_W).reshape(-1),
      "source_parsed": 1,
      "source_word_end": np.arange(1, words + 1),
      "target_id": [*rng.integers(4, VOCABULARY, target - 1), schema.EOS],
    }
    made.append(
      {k: np.asarray(v, schema.FEATURES[k].dtype) for k, v in values.items()}
    )
  return made


def make(directory: pathlib.Path, count: int) -> None:
  """Writes a dataset directory with a split "train" of random pairs.

  Args:
    directory: Directory to make.
    count: Number of pairs; rounded down to whole shards beyond `DISTINCT`.
  """
  shards, size = max(1, count // DISTINCT), min(count, DISTINCT)
  entry = {"file": "vocabulary.model", "sha256": "0" * 64, "size": VOCABULARY}
  names = [
    f"made-train.tfrecord-{i:05d}-of-{shards:05d}" for i in range(shards)
  ]
  manifest: dict[str, Any] = {
    "name": "made",
    "version": "1.0.0",
    "sides": list(SIDES),
    "splits": {"train": {"shards": [{"file": name} for name in names]}},
    "vocabulary": dict.fromkeys(schema.SIDES, entry),
    "relations": {"source": ["dep"]},
    "parser": {"source": None},
    "options": config_dict(Prepare).to_dict(),
  }
  folder = layout.tfds_folder(directory, manifest)
  folder.mkdir(parents=True)
  entries, facts = _write_shard(folder / names[0], size)
  for name in names[1:]:
    os.link(folder / names[0], folder / name)
  index.save(
    layout.index_file(directory, manifest, "train"), [entries] * shards
  )
  manifest["splits"]["train"] = {
    "examples": size * shards,
    "shards": [{"file": name, **facts} for name in names],
    "records_sha256": records_sha256([facts["sha256"]] * shards),
  }
  for name in layout.names(
    manifest
  ):  # there is no text, and there are no trees
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
  manifest["files"] = checksums.file_checksums(
    directory, layout.names(manifest)
  )
  manifests.write(directory, manifest)


def _write_shard(
  path: pathlib.Path, count: int
) -> tuple[np.ndarray, dict[str, Any]]:
  """Writes pairs of the pool in random order; returns their index and facts."""
  rng = np.random.default_rng(1)
  features = tuple(schema.features(SIDES))
  drawn = Rows.of(pool(), features)
  entries = []
  with files.publish(path) as file:
    for begin in range(0, count, BLOCK):
      size = min(BLOCK, count - begin)
      rows = drawn.take(rng.integers(len(drawn), size=size))
      rows.flat["line"][:] = np.arange(begin + 1, begin + size + 1)
      texts = {name: [""] * size for name in schema.TEXTS}
      payloads = records.encode(rows, texts)
      file.writelines(map(records.frame, payloads))
      entries.append(index.entries(payloads, rows))
  return np.concatenate(entries), {
    "examples": count,
    "bytes": files.size_of(path),
    "sha256": checksums.sha256_of(path),
  }
