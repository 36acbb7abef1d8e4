"""Generates random sentence pairs for measurements without prepared data.

The cost of a step, a search or a read depends on the lengths and sizes, not on
which subwords the sentences have.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Collection
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.annotations import ANNOTATIONS, UNKNOWN
from jaxsyn.data.loader.collate import Batch, Shape, collate
from jaxsyn.data.options import Prepare
from jaxsyn.data.schema import SIDES
from jaxsyn.data.sentence import controls
from jaxsyn.data.sentence import tree as trees
from jaxsyn.data.store import manifests, records, tfrecord
from jaxsyn.data.store.dataset import BLOCK
from jaxsyn.data.store.rows import Example, Rows
from jaxsyn.data.store.tfrecord import records_sha256
from jaxsyn.options import config_dict
from jaxsyn.storage import checksums, files

RELATIONS = [f"relation {i:02d}" for i in range(40)]
LABELS = 10_000  # of an annotation with an open label set


@dataclasses.dataclass(frozen=True)
class Text:
  """Generator of random pairs: words, lengths, trees and annotations.

  Attributes:
    longest: Maximum length of a side in subwords, including EOS.
    vocabulary: Vocabulary size of each side.
    shortest: Minimum length; 0: seven eighths of `longest`.
    distinct: Number of different pairs.
  """

  longest: int
  vocabulary: int
  shortest: int = 0
  distinct: int = 256

  def examples(self) -> list[Example]:
    rng = np.random.default_rng(0)
    return [self._pair(rng) for _ in range(self.distinct)]

  def batches(
    self, features: Collection[str], rows: int, count: int
  ) -> list[Batch]:
    """Returns batches of random sentence pairs, all of the same shape."""
    names = schema.features_for(manifest(self.vocabulary), features)
    loaded = Rows.of(self.examples(), schema.stored_names(names))
    shape = Shape(rows, *(self.longest,) * 4)
    rng = np.random.default_rng(1)
    batches = []
    for _ in range(count):
      ids = rng.integers(self.distinct, size=rows)
      batch = collate(loaded, names, ids, shape, rows=rows)
      batches.append({**batch, "weight_B": np.ones(rows, np.float32)})
    return batches

  def _pair(self, rng: np.random.Generator) -> Example:
    pair = {**self._side("source", rng), **self._side("target", rng)}
    words = min(int(pair[f"{side}_unit"].max()) for side in SIDES)
    word = np.arange(words)
    links = np.r_[np.c_[word, word], np.c_[word + 1, word]]
    line = np.ones((), np.int64)
    return {**pair, "line": line, "links": links.ravel().astype(np.int32)}

  def _side(self, side: str, rng: np.random.Generator) -> Example:
    shortest = self.shortest or self.longest - self.longest // 8
    subwords = int(rng.integers(shortest, self.longest))
    # Two of three subwords begin a word.
    word = np.cumsum(rng.integers(0, 3, subwords) > 0)
    word_S = np.r_[word - word[0], schema.NO_WORD].astype(np.int32)
    words = int(word_S.max()) + 1
    head_W = controls.random_trees(
      np.array([words]), [int(rng.integers(2**31))]
    )
    ids = rng.integers(len(schema.SPECIAL), self.vocabulary, subwords)
    values = {
      "id": np.r_[ids, schema.EOS],
      "word": word_S,
      "unit": word_S,
      "head": head_W,
      "relation": rng.integers(1, len(RELATIONS) + 1, words),
      "parent_mid": trees.parent_mid(word_S, head_W),
      "tree_distance": np.ravel(trees.tree_distance(head_W)),
      "parsed": np.ones((), np.uint8),
      "word_end": np.arange(1, words + 1),
    }
    for name, annotation in ANNOTATIONS.items():
      labels = len(annotation.labels) or LABELS
      values[name] = rng.integers(1, labels + 1, words)
    return {
      f"{side}_{name}": np.asarray(
        value, schema.FEATURES[f"{side}_{name}"].dtype
      )
      for name, value in values.items()
      if f"{side}_{name}" in schema.FEATURES
    }


def manifest(vocabulary: int) -> dict[str, Any]:
  """Returns an artificial manifest with the fields `plan.resolve` reads."""
  labels = [UNKNOWN, *(f"label {i}" for i in range(1, LABELS))]
  open_labels = {
    name: labels for name, annotation in ANNOTATIONS.items() if annotation.open
  }
  entry = {"size": vocabulary, "sha256": ""}
  return {
    "sides": list(SIDES),
    "vocabulary": dict.fromkeys(SIDES, entry),
    "relations": dict.fromkeys(SIDES, RELATIONS),
    "alignments": True,
    "annotations": [*ANNOTATIONS],
    "labels": dict.fromkeys(SIDES, open_labels),
  }


def write_dataset(directory: pathlib.Path, count: int) -> None:
  """Writes a dataset directory: a split "train" with one shard of random data.

  The source side has trees. Sentences have 5 to 31 subwords with EOS.
  """
  text = Text(longest=31, shortest=4, vocabulary=8000, distinct=4000)
  shard: dict[str, Any] = {"file": "synthetic-train.tfrecord-00000-of-00001"}
  entry = {
    "file": "vocabulary.model",
    "sha256": "0" * 64,
    "size": text.vocabulary,
  }
  made: dict[str, Any] = {
    "name": "synthetic",
    "version": "1.0.0",
    "sides": ["source"],
    "splits": {"train": {"examples": count, "shards": [shard]}},
    "vocabulary": dict.fromkeys(SIDES, entry),
    "relations": {"source": RELATIONS},
    "parser": {"source": None},
    "options": config_dict(Prepare).to_dict(),
  }
  folder = manifests.tfds_folder(directory, made)
  folder.mkdir(parents=True)
  path = folder / shard["file"]
  entries = _write_shard(path, text, count)
  tfrecord.save_index(manifests.index_file(directory, made, "train"), [entries])
  checksum = checksums.sha256_of(path)
  shard |= {
    "examples": count, "bytes": files.size_of(path), "sha256": checksum
  }  # fmt: skip
  made["splits"]["train"]["records_sha256"] = records_sha256([checksum])
  names = manifests.file_names(made)
  for name in names:  # text and vocabulary are empty
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).touch()
  made["files"] = checksums.file_checksums(directory, names)
  manifests.write(directory, made)


def _write_shard(path: pathlib.Path, text: Text, count: int) -> np.ndarray:
  """Writes a shard of random sentence pairs; returns its index entries."""
  rng = np.random.default_rng(1)
  pairs = Rows.of(
    text.examples(), tuple(schema.features({"sides": ["source"]}))
  )
  entries = []
  with files.publish(path) as file:
    for start in range(0, count, BLOCK):
      size = min(BLOCK, count - start)
      rows = pairs.take(rng.integers(len(pairs), size=size))
      rows.flat["line"][:] = np.arange(start + 1, start + size + 1)
      texts = {name: [""] * size for name in schema.TEXTS}
      payloads = records.encode(rows, texts)
      file.writelines(map(tfrecord.frame, payloads))
      entries.append(tfrecord.index_entries(payloads, rows))
  return np.concatenate(entries)
