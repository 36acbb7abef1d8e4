"""The numbers in the report of a dataset."""

import numpy as np

from jaxsyn.data.store.rows import Rows
from jaxsyn.data.store.tfrecord import ENTRY
from jaxsyn.preprocess import report

SPLIT = {
  "lines": 5,
  "examples": 4,
  "dropped": {"empty": 3, "max_words": 0},
  "unparsed": 1,
  "unknown": {"source": 2, "target": 0},
  "blank": {"source": 1, "target": 0},
  "tree_warnings": {"source": ["9.0 % of the trees are odd"]},
  "optional": {"brackets": {"used": 3, "other words": 0, "no tree": 1}},
}


def test_counts_unknown_subwords_and_sentences_without_trees():
  examples = [
    {"source_id": [5, 1, 1, 3], "target_id": [1, 3], "source_parsed": 1},
    {"source_id": [3], "target_id": [4, 3], "source_parsed": 0},
  ]
  rows = Rows.of(
    [{k: np.array(v, np.int32) for k, v in one.items()} for one in examples],
    ["source_id", "target_id"],
  )
  parsed = Rows.of(
    [{"source_parsed": np.uint8(one["source_parsed"])} for one in examples],
    ["source_parsed"],
  )
  rows = Rows({**rows.flat, **parsed.flat}, {**rows.start, **parsed.start})
  counts = {"unknown.source": 2, "unknown.target": 1, "unparsed": 1}
  assert report.count(rows, ["source"]) == counts
  assert report.count(rows, []) == counts | {"unparsed": 0}


def test_text():
  index = np.zeros(4, ENTRY)
  index["source"], index["source_words"] = [5, 1, 3, 5], [3, 0, 1, 3]
  index["target"] = [2, 2, 9, 2]
  empty = {"dropped": {}, "blank": {}, "tree_warnings": {}, "optional": {}}
  text = report.text(
    "toy: en to de",
    {"train": SPLIT, "test": SPLIT | empty | {"examples": 0}},
    {"train": index, "test": index[:0]},
    sides=["source"],
    left_out={"extra": "no file"},
  )
  train, test = text.split("\n\ntest: ")
  assert train.splitlines() == [
    "toy: en to de",
    "",
    "train: 4 of 5 pairs",
    "  dropped    empty 3",
    "  unparsed   1",
    "  no text    source 1",
    "  brackets   used 3, no tree 1",
    "  source     subwords per sentence: mean 3.50, median 3, 99 % 5, max 5; 2 "
    "unknown (20.00 %)",
    "             words per sentence: mean 1.75, median 1, 99 % 3, max 3; 1.43 "
    "subwords per word",
    "  target     subwords per sentence: mean 3.75, median 2, 99 % 9, max 9; 0 "
    "unknown (0.00 %)",
    "  warning    source: 9.0 % of the trees are odd",
    "             Is config.prepare.parse.source of this language? See "
    "docs/parsers.md.",
  ]
  assert "dropped    none" in test and "sentence: none; 2 unknown" in test
  assert test.endswith("\n\nleft out: extra (no file)\n")
