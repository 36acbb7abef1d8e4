"""The report's numbers."""

import numpy as np

from jaxsyn.data.store.rows import Rows
from jaxsyn.preprocess import report


def example(ids, word, head, parsed=1):
  return {
    "source_id": np.array(ids),
    "source_word": np.array(word),
    "source_head": np.array(head, np.int32),
    "source_parsed": np.uint8(parsed),
    "target_id": np.array([9, 3]),
  }


def counted():
  counts = report.ReportCounts(["source"])
  # Words 0 1 2, of 2, 1 and 1 subwords; 2 depends on 0 depends on 1.
  counts.add(example([5, 6, 1, 8, 3], [0, 0, 1, 2, -1], [1, 1, 0]))
  counts.add(example([3], [-1], [], parsed=0))
  return counts


def test_counts():
  counts = counted()
  assert counts.subwords["source"] == {5: 1, 1: 1}
  assert counts.subwords["target"] == {2: 2}
  assert counts.words["source"] == {3: 1}
  assert counts.pieces["source"] == {2: 1, 1: 2}
  assert counts.depth["source"] == {2: 1}
  assert counts.unparsed == 1
  assert counts.unknown == {"source": 1, "target": 0}


def test_many_at_once_count_as_each_alone():
  examples = [
    example([5, 6, 1, 8, 3], [0, 0, 1, 2, -1], [1, 1, 0]),
    example([3], [-1], [], parsed=0),
    example([4, 4, 3], [0, 1, -1], [0, 1], parsed=0),
    example([7, 7, 7, 3], [1, 1, 0, -1], [1, 1]),
  ]
  single, combined = (
    report.ReportCounts(["source"]),
    report.ReportCounts(["source"]),
  )
  for one in examples:
    single.add(one)
  combined.add_all(Rows.of(examples, examples[0]))
  assert vars(combined) == vars(single)
  # Words of 2, 1, 1 and of 1, 2 subwords; not those of what was not parsed.
  assert combined.pieces["source"] == {1: 3, 2: 2}


def test_words_without_a_subword_are_counted():
  counts = report.ReportCounts(["source"])
  # As in Japanese: the first subword covers word 1 as well.
  counts.add(example([5, 8, 3], [0, 2, -1], [1, 1, 1]))
  fact = {"lines": 1, "examples": 1, "unparsed": 0, "dropped": {}, "blank": {}}
  text = report.text_report("toy", {"train": fact}, {"train": counts})
  assert "most 1, 1 words without any\n" in text


def test_files(tmp_path):
  fact = {
    "lines": 5,
    "examples": 2,
    "unparsed": 1,
    "dropped": {"empty": 3},
    "blank": {"source": 1, "target": 0},
  }
  counts = {"train": counted(), "test": report.ReportCounts([])}
  facts = {"train": fact, "test": {**fact, "examples": 0, "dropped": {}}}
  report.write(
    tmp_path, "toy: en to de", facts, counts=counts, train="train", left_out={}
  )
  text = (tmp_path / "report.txt").read_text()
  assert "train: 2 of 5 pairs\n  dropped    empty 3\n  unparsed   1" in text
  # Of 5 and 1: mean 3, half are at most 1.
  assert "subwords a sentence mean 3.00, median 1, 99 % 5, most 5" in text
  assert (
    "subwords a word mean 1.33, median 1, 99 % 2, most 2, 0 words without any\n"
  ) in text
  # Subwords of 4 and 0 without EOS, one of them unknown; of 1 and 1, none.
  assert "most 5, 1 unknown (25.00 %)\n" in text
  assert "target     subwords a sentence mean 2.00" in text
  assert "most 2, 0 unknown (0.00 %)\n" in text
  assert "sentence none, 0 unknown (0.00 %)\n" in text  # test is empty
  assert "test: 0 of 5 pairs\n  dropped    none" in text
  assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_plot_without_trees(tmp_path):
  counts = report.ReportCounts([])
  counts.add(example([3], [-1], []))
  fact = {"lines": 1, "examples": 1, "unparsed": 0, "dropped": {}, "blank": {}}
  report.write(
    tmp_path,
    "toy",
    {"train": fact},
    counts={"train": counts},
    train="train",
    left_out={},
  )
  assert (tmp_path / "report.png").stat().st_size > 1000
