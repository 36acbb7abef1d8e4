"""Prepared folders of random pairs, of any size: columns alone, no records.

For measuring how a split is read. Beyond a million pairs the blocks are there
again and again: the lengths name the same places in the files.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.options import Prepare
from jaxsyn.data.sentence import controls
from jaxsyn.data.sentence import tree as trees
from jaxsyn.data.store import layout, manifests
from jaxsyn.data.store.blocks import LONGEST, write_blocks
from jaxsyn.data.store.lengths import Block, write_lengths
from jaxsyn.data.store.manifest_format import records_sha256
from jaxsyn.data.store.rows import Example, Rows
from jaxsyn.options import config_dict
from jaxsyn.storage import checksums, files

DISTINCT = 256  # blocks
SIDES = ("source",)
VOCABULARY = 8000


def pool(size: int = 4000) -> list[Example]:
  """Pairs of 4 to 30 words, a subword each, and random trees."""
  rng = np.random.default_rng(0)
  made = []
  for seed in range(size):
    words = int(rng.integers(4, 31))
    head_W = controls.random(words, seed)
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
      "target_id": [*rng.integers(4, VOCABULARY, target - 1), schema.EOS],
    }
    made.append(
      {k: np.asarray(v, schema.FEATURES[k].dtype) for k, v in values.items()}
    )
  return made


def blocks(count: int) -> Iterator[Rows]:
  """So many pairs of the pool, in random order, a block at a time."""
  rng = np.random.default_rng(1)
  drawn = Rows.of(pool(), schema.features(SIDES))
  for begin in range(0, count, LONGEST):
    size = min(LONGEST, count - begin)
    rows = drawn.take(rng.integers(len(drawn), size=size))
    rows.flat["line"][:] = np.arange(begin + 1, begin + size + 1)
    yield rows


def _repeated(written: Sequence[Block], count: int) -> list[Block]:
  """Blocks again and again, as many whole ones as so many pairs have."""
  every: list[Block] = []
  for block in itertools.cycle(written):
    count -= len(block.lengths.source)
    if count < 0:
      return every
    every.append(block)
  return every


def make(directory: pathlib.Path, count: int) -> None:
  """Writes a prepared folder with a split "train" of so many pairs."""
  (directory / "columns").mkdir(parents=True)
  digest = "0" * 64
  shard: dict[str, Any] = {
    "file": "made-train.tfrecord-00000-of-00001",
    "bytes": 0,
    "examples": count,
    "sha256": digest,
  }
  facts: dict[str, Any] = {
    "examples": count,
    "shards": [shard],
    "records_sha256": records_sha256([digest]),
  }
  entry = {"file": "vocabulary.model", "sha256": "0" * 64, "size": VOCABULARY}
  manifest = {
    "name": "made",
    "version": "1.0.0",
    "sides": list(SIDES),
    "splits": {"train": facts},
    "vocabulary": dict.fromkeys(schema.SIDES, entry),
    "relations": {"source": ["dep"]},
    "parser": {"source": None},
    "options": config_dict(Prepare).to_dict(),
  }
  (columns,) = layout.columns_files(directory, manifest, "train")
  with files.publish(columns) as file:
    distinct = blocks(min(count, DISTINCT * LONGEST))
    written = write_blocks(file, schema.features(SIDES), distinct)
  lengths = layout.lengths_file(directory, "train")
  every = _repeated(written, count)
  with files.publish(lengths) as file:
    write_lengths(file, [every])
  for about in (shard, facts):
    about["examples"] = sum(len(block.lengths.source) for block in every)
  for name in layout.names(manifest):  # no text, no trees, no records
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
  manifest["files"] = checksums.file_checksums(
    directory, layout.names(manifest)
  )
  manifests.write(directory, manifest)
