"""The report's numbers."""

import numpy as np
import pytest

from jaxsyn.data.store.rows import Rows
from jaxsyn.preprocess import report

FACTS = {"lines": 5, "examples": 2, "unparsed": 1, "dropped": {}, "blank": {}}


def example(ids, word, head, parsed=1):
  return {
    "source_id": np.array(ids),
    "source_word": np.array(word),
    "source_head": np.array(head, np.int32),
    "source_parsed": np.uint8(parsed),
    "target_id": np.array([9, 3]),
  }


EXAMPLES = [
  # Words 0 1 2, of 2, 1 and 1 subwords; 2 depends on 0 depends on 1.
  example([5, 6, 1, 8, 3], [0, 0, 1, 2, -1], [1, 1, 0]),
  example([3], [-1], [], parsed=0),
  example([4, 4, 3], [0, 1, -1], [0, 1], parsed=0),
  example([7, 7, 7, 3], [1, 1, 0, -1], [1, 1]),
  # As in Japanese: the first subword covers word 1 as well.
  example([5, 8, 3], [0, 2, -1], [1, 1, 1]),
]


def counted(examples):
  return report.count(Rows.of(examples, EXAMPLES[0]), ["source"])


def written(tmp_path, counts, sides, left_out=(), **facts):
  report.write(
    tmp_path,
    "toy: en to de",
    {"train": FACTS | facts},
    counts={"train": report.total([counts])},
    sides=sides,
    train="train",
    left_out=dict(left_out),
  )
  assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
  return (tmp_path / "report.txt").read_text()


def test_counts():
  counts = counted(EXAMPLES[:2])
  assert counts == {
    "subwords.source": {5: 1, 1: 1},
    "unknown.source": {0: 1, 1: 1},
    "words.source": {3: 1},
    "depth.source": {2: 1},
    "pieces.source": {2: 1, 1: 2},
    "subwords.target": {2: 2},
    "unknown.target": {0: 2},
  }
  assert report.unparsed(counts, ["source"]) == 1
  assert report.blank(counts, "source") == 1
  # Words of 2, 1, 1 and of 1, 2 subwords; not those of what was not parsed.
  assert counted(EXAMPLES[:4])["pieces.source"] == {1: 3, 2: 2}


@pytest.mark.parametrize("convert", [dict, report.as_json])
def test_many_at_once_count_as_each_alone(convert):
  alone = [convert(counted([one])) for one in EXAMPLES]
  assert report.total(alone) == counted(EXAMPLES)


def test_text(tmp_path):
  text = written(
    tmp_path,
    counted(EXAMPLES[:2]),
    ["source"],
    {"extra": "no file"},
    dropped={"empty": 3, "max_words": 0},
    blank={"source": 1, "target": 0},
    doubts={"source": ["9.0 % of the trees are odd"]},
  )
  assert (
    text
    == """toy: en to de

train: 2 of 5 pairs
  dropped    empty 3
  unparsed   1
  no text    source 1
  source     subwords a sentence mean 3.00, median 1, 99 % 5, most 5, 1 unknown (25.00 %)
             words a sentence mean 3.00, median 3, 99 % 3, most 3
             subwords a word mean 1.33, median 1, 99 % 2, most 2, 0 words without any
             tree depth mean 2.00, median 2, 99 % 2, most 2
  target     subwords a sentence mean 2.00, median 2, 99 % 2, most 2, 0 unknown (0.00 %)
  warning    source: 9.0 % of the trees are odd
             Is config.prepare.parse.source of this language? See docs/parsers.md.

left out: extra (no file)
"""
  )


def test_words_without_a_subword_are_counted(tmp_path):
  text = written(tmp_path, counted(EXAMPLES[4:]), ["source"])
  assert "most 1, 1 words without any\n" in text


def test_without_trees_or_examples(tmp_path):
  text = written(tmp_path, report.total([]), [])
  assert "  dropped    none\n" in text
  assert "sentence none, 0 unknown (0.00 %)\n" in text
