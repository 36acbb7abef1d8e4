"""Trees of lines: stored parses, given trees, warnings, and the report."""

import gzip
import itertools
import re

import numpy as np
import pytest
import stage_runs

from jaxsyn.data import schema
from jaxsyn.data.options import SideParser, Trees
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.data.sentence.vocabulary import Subwords
from jaxsyn.data.store.rows import Rows
from jaxsyn.data.store.tfrecord import ENTRY
from jaxsyn.preprocess import report, trees
from jaxsyn.preprocess.outputs import Outputs
from jaxsyn.preprocess.tree_warnings import count, find_warnings


def test_runs_cover_all_lines_and_change_little():
  lines = [f"Sentence number {i} is here ." for i in range(2000)]
  runs = trees.runs_of_lines(lines)
  assert [i for run in runs for i in run] == list(range(2000))
  assert len(runs) > 8

  def texts(lines):
    return {tuple(lines[i] for i in run) for run in trees.runs_of_lines(lines)}

  edited = [*lines[:700], "One more line .", *lines[700:]]
  assert len(texts(edited) - texts(lines)) <= 2
  assert trees.runs_of_lines([]) == []
  same = trees.runs_of_lines(["same"] * 1025)
  assert same == [range(0, 512), range(512, 1024), range(1024, 1025)]


@pytest.fixture(scope="module")
def parser(prepared):
  """The quickstart's parser."""
  return UDPipe(prepared / "parser.source.udpipe")


LONG = "ten thousand words " * 3333
# The parser splits the third line into two sentences.
SENTENCES = "A dog cried. The old king slept."
TEXT = ["The king slept.", "", SENTENCES, "a\x00b", LONG]


@pytest.fixture
def out(tmp_path):
  with Outputs(tmp_path / "work").new("trees/0") as output:
    yield output


def test_parses_lines(parser, tmp_path, out):
  texts = trees.parse_lines(TEXT, parser, tmp_path, out)
  blocks = conllu.blocks_of_text("".join(texts), "trees")
  found = list(conllu.match(blocks, TEXT, "text"))
  assert [p.text for p in found] == TEXT
  assert [p.parsed for p in found] == [True, False, True, False, False]
  assert found[4].head_W == (0,)  # no 100 million distances
  assert (found[4].start_W, found[4].end_W) == ((0,), (len(LONG) - 1,))
  assert found[0].head_W == parser(TEXT[0]).head_W
  assert [bool(text) for text in texts] == [True, False, True, True, True]


def trees_of(tmp_path, texts, model, **prepare):
  """Returns the result, rows, CoNLL-U and parses of the first chunk."""
  sides = SideParser(UDPipeSpec(model)), SideParser(UDPipeSpec())
  job = stage_runs.job_of(
    tmp_path, {"train": texts}, parse=Trees(("source",), *sides), **prepare
  )
  stages = (*stage_runs.SELECTION, "vocabulary", "trees")
  (result,) = stage_runs.run(job, stages)
  text = job.outputs.read("trees/0", "conllu.source")
  sizes = job.outputs.read_array("trees/0", "sizes.conllu.source")
  assert sizes.sum() == len(text)
  examples, _ = trees.examples_of(job, 0)
  return result, examples.rows, text.decode(), examples.parses["source"]


def test_trees_are_named_by_the_kept_lines(parser, tmp_path):
  lines = ["", "The king slept.", "", LONG]
  lines += [f"The dog of the {i} kings cried." for i in range(700)]
  result, rows, text, parses = trees_of(
    tmp_path,
    (lines, ["x"] * len(lines)),
    model=str(parser.path),
    vocabulary=Subwords(size=60),
  )
  assert rows == [1, *range(4, 704)]
  dropped = {
    reason: n for reason, n in result["counts"]["dropped"].items() if n
  }
  assert dropped == {"empty": 2, "max_words": 1}
  # Several runs of lines have been parsed.
  assert len([*tmp_path.glob("out/work/parse/*.gz")]) > 1
  blocks = conllu.blocks_of_text(text, "trees")
  assert [block.name for block in blocks] == [f"train-{i + 1}" for i in rows]
  assert parses[:3] == [parser(lines[i]) for i in rows[:3]]
  labels = {label for one in parses for label in one.relation_W}
  assert result["relations"]["source"] == sorted(labels)


class CountingParser:
  """A parser that records the lines it has parsed."""

  def __init__(self, parser, key="one"):
    self.parser, self.lines, self.key = parser, [], key

  def conllu_all(self, lines, names):
    self.lines += lines
    return self.parser.conllu_all(lines, names)


def test_parses_each_line_once(parser, tmp_path, out):
  counting = CountingParser(parser)
  text = trees.parse_lines(TEXT, counting, tmp_path, out)
  assert trees.parse_lines(TEXT, counting, tmp_path, out) == text
  assert counting.lines == TEXT
  other = CountingParser(parser, "two")
  trees.parse_lines(TEXT, other, tmp_path, out)
  assert other.lines == TEXT
  trees.parse_lines(TEXT[:2], counting, tmp_path, out)
  assert counting.lines == TEXT + TEXT[:2]
  assert len([*tmp_path.glob("*.gz")]) == 3


@pytest.mark.parametrize(
  "corrupt",
  [
    lambda data: data[:40],
    lambda data: b"",
    lambda data: data[:90] + bytes([data[90] ^ 4]) + data[91:],
    lambda data: gzip.compress(b'{"key": "0", "texts": []}'),
  ],
  ids=["cut", "empty", "flipped", "another file"],
)
def test_repeats_corrupt_parses(parser, tmp_path, out, corrupt):
  expected = trees.parse_lines(TEXT, parser, tmp_path, out)
  (path,) = tmp_path.glob("*.gz")
  original = path.read_bytes()
  path.write_bytes(corrupt(original))
  assert trees.parse_lines(TEXT, parser, tmp_path, out) == expected
  assert path.read_bytes() == original
  assert out.header.messages == [f"corrupt: {path}; parsing its lines again"]


def parse_of(words, head_W, relation_W=None, parsed=True):
  text, spans = " ".join(words), []
  for word in words:
    start = spans[-1][1] + 1 if spans else 0
    spans.append((start, start + len(word)))
  relation_W = relation_W or ("nsubj",) * len(words)
  return Parse(text, *zip(*spans), tuple(head_W), relation_W, parsed)


WORDS, TREE = list("abcdefgh"), [0, 0, 0, 2, 2, 2, 2, 2]
LABELS = ("root", "case", "det", "obj", "nsubj", "mark", "amod", "obl")
FLAT, CHAIN = [0] * 8, [0, 0, 1, 2, 3, 4, 5, 6]
ZIGZAG = [1, 2, 3, 3, 3, 4, 5, 6]


def test_counts_by_hand():
  long = parse_of(["\u3042" * 20, "b" * 21], [0, 0], ("root", "dep:x"))
  parses = [parse_of(WORDS, heads) for heads in (FLAT, CHAIN, ZIGZAG)]
  parses += [long, parse_of(["x"], [0], parsed=False)]
  found = count([*parses, Parse(" ", (), (), (), (), parsed=False)])
  shapes = {"lines": 5, "unparsed": 1, "trees": 3, "flat": 1, "chains": 2}
  characters = {"characters": 8 + 8 + 8 + 41, "uncut": 21}
  relations = {"relation dep": 1, "relation nsubj": 24, "relation root": 1}
  assert found == shapes | characters | relations
  assert find_warnings(found) == []  # too few


@pytest.mark.parametrize(
  ("parses", "message"),
  [
    ([parse_of(["x"], [0], parsed=False)] * 3, "lines have no tree"),
    ([parse_of(WORDS, FLAT)] * 5, "trees have all words on one"),
    ([parse_of(WORDS, CHAIN)], "trees have each word on a neighbor"),
    ([parse_of(WORDS, TREE, ("dep",) * 8)] * 5, "have no relation but dep or"),
    ([parse_of(["x" * 200], [0])], "characters are of words of more than 20"),
    (
      [parse_of(WORDS, TREE, ("compound",) * 8)] * 80,
      r"of the words have the same relation \(usual: at most 28 %\)",
    ),
    (
      [parse_of(WORDS, TREE, ("obj", "nsubj", "obl", "amod") * 2)] * 80,
      r"of the words are function words \(usual: at least 12 %\)",
    ),
  ],
)
def test_each_kind_causes_a_warning(parses, message):
  usual = [parse_of(WORDS, TREE, LABELS)] * 25
  assert find_warnings(count(usual)) == []
  warnings = find_warnings(count(usual + parses))
  assert any(re.search(message, warning) for warning in warnings)


@pytest.mark.parametrize("language", ["en", "cs", "tr", "zh", "ja"])
def test_gold_trees_cause_no_warning(shared_data, language):
  blocks = conllu.read(shared_data / "ud" / f"{language}_pud.conllu.gz")
  first = itertools.islice(blocks, 150)
  parses = [conllu.attach([block], block.text) for block in first]
  assert find_warnings(count(parses)) == []


def test_a_model_of_another_language_causes_a_warning(shared_data):
  german = UDPipe(shared_data / "udpipe" / "german.udpipe")
  for name in ("multi30k/val.de.gz", "multi30k/val.cs.gz", "enja/train.ja.gz"):
    with gzip.open(shared_data / name, "rt", encoding="utf-8") as file:
      lines = [line.rstrip("\n") for line in itertools.islice(file, 40)]
    warnings = find_warnings(count(german.parses(lines)))
    assert bool(warnings) == ("de.gz" not in name), warnings


def test_counts_unknown_subwords_and_sentences_without_trees():
  columns = {
    "source_id": [[5, 1, 1, 3], [3]],
    "target_id": [[1, 3], [4, 3]],
    "source_parsed": [1, 0],
  }
  examples = [
    {k: np.array(v[i], schema.FEATURES[k].dtype) for k, v in columns.items()}
    for i in range(2)
  ]
  rows = Rows.of(examples, [*columns])
  unknown = {"source": 2, "target": 1}
  counts = {"unknown": unknown, "unparsed": {"source": 1}}
  assert report.count(rows, ["source"]) == counts
  assert report.count(rows, []) == {"unknown": unknown, "unparsed": {}}


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


def test_report():
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
