"""Parses of runs of lines, their reuse, and trees given as CoNLL-U."""

import gzip

import pytest
import stage_runs
from raw_corpora import chain

from jaxsyn.data.options import Clean, SideParser, Trees
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.data.sentence.vocabulary import Subwords
from jaxsyn.preprocess import trees
from jaxsyn.preprocess.outputs import Outputs, TaskOutput

LINES = [f"Sentence number {i} is here ." for i in range(2000)]


def test_runs_cover_all_lines():
  result = trees.runs_of_lines(LINES)
  assert [i for chunk in result for i in chunk] == list(range(2000))
  assert len(result) > 8
  assert trees.runs_of_lines([]) == []
  assert trees.runs_of_lines(["same"] * 1025) == [
    range(0, 512),
    range(512, 1024),
    range(1024, 1025),
  ]


def test_a_new_line_changes_one_run():
  def texts(lines):
    return {
      tuple(lines[i] for i in chunk) for chunk in trees.runs_of_lines(lines)
    }

  edited = [*LINES[:700], "One more line .", *LINES[700:]]
  assert len(texts(edited) - texts(LINES)) <= 2


@pytest.fixture(scope="module")
def parser(shared_data):
  path = shared_data / "udpipe" / "english.udpipe"
  if not path.is_file():
    pytest.skip(f"no parser at {path}")
  return UDPipe(path)


LONG = "ten thousand words " * 3333
TEXT = ["Two men play.", "", "I can't. You can!", "nul\x00 line", LONG]


def output(tmp_path):
  return TaskOutput(Outputs(tmp_path / "work"), "trees/0")


def test_parses_lines(parser, tmp_path):
  text = trees.parse_lines(TEXT, parser, tmp_path, output(tmp_path))
  blocks = conllu.blocks_of_text(text, "trees")
  result = list(conllu.match(blocks, TEXT, "text"))
  assert [p.text for p in result] == TEXT
  assert [p.parsed for p in result] == [True, False, True, False, False]
  assert result[4].head_W == (0,)  # no 100 million distances
  assert (result[4].start_W, result[4].end_W) == ((0,), (len(LONG) - 1,))
  assert result[0].head_W == parser(TEXT[0]).head_W
  ids = [
    comment.removeprefix("# sent_id = ")
    for block in blocks
    for comment in block.comments
    if comment.startswith("# sent_id")
  ]
  assert ids == ["0", "2", "3", "4"]


def trees_options(model="", **options):
  sides = SideParser(UDPipeSpec(model)), SideParser(UDPipeSpec())
  return Trees(("source",), *sides, **options)


def trees_of(context):
  """The rows, CoNLL-U and parses that the stage leaves of the first chunk."""
  before = (*stage_runs.SELECTION, "sample", "vocabulary")
  (facts,) = stage_runs.run(context, (*before, "trees"))
  rows = context.outputs.read_array("trees/0", "rows").tolist()
  text = context.outputs.read("trees/0", "conllu.source").decode()
  lines = (
    context.outputs.read("trees/0", "text.source").decode().split("\n")[:-1]
  )
  parses = trees.parses_of(context, 0, "source", lines)
  return facts, rows, text, parses


def test_trees_are_named_by_the_kept_lines(parser, tmp_path):
  lines = ["", "Two men play.", "", LONG, "I can't. You can!"]
  context = stage_runs.context_of(
    tmp_path,
    {"train": (lines, ["x"] * 5)},
    parse=trees_options(model=str(parser.path)),
    vocabulary=Subwords(size=30),
  )
  facts, rows, text, parses = trees_of(context)
  assert rows == [1, 4]
  assert facts["dropped"] == {"empty": 0, "max_subwords": 0}
  blocks = conllu.blocks_of_text(text, "trees")
  assert [block.name for block in blocks] == ["train-2", "train-5"]
  assert parses == [parser(lines[1]), parser(lines[4])]
  labels = {label for one in parses for label in one.relation_W}
  assert facts["relations"]["source"] == sorted(labels)
  sizes = context.outputs.read_array("trees/0", "sizes.conllu.source")
  assert sizes.sum() == len(text.encode())


class Counting:
  """A parser that tells which lines it has parsed."""

  def __init__(self, parser, beam=0):
    self.parser, self.lines = parser, []
    self.key = f"{parser.identity.sha256}:{beam}:5000"

  def conllu_all(self, lines, names):
    self.lines += lines
    return self.parser.conllu_all(lines, names)


def test_parses_are_used_again(parser, tmp_path):
  counting, out = Counting(parser), output(tmp_path)
  text = trees.parse_lines(TEXT, counting, tmp_path, out)
  assert trees.parse_lines(TEXT, counting, tmp_path, out) == text
  assert counting.lines == TEXT
  # Another beam is another parser; other lines are others.
  trees.parse_lines(TEXT, Counting(parser, beam=1), tmp_path, out)
  trees.parse_lines(TEXT[:2], counting, tmp_path, out)
  assert counting.lines == TEXT + TEXT[:2]
  assert len([*tmp_path.glob("*.gz")]) == 3


DAMAGE = {
  "cut": lambda data: data[:40],
  "empty": lambda data: b"",
  "flipped": lambda data: data[:90] + bytes([data[90] ^ 4]) + data[91:],
  "another one": lambda data: gzip.compress(b"# chunk = 0.conllu.gz\n"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_corrupt_parses_are_made_again(parser, tmp_path, how):
  out = output(tmp_path)
  expected = trees.parse_lines(TEXT, parser, tmp_path, out)
  (path,) = tmp_path.glob("*.gz")
  original = path.read_bytes()
  path.write_bytes(DAMAGE[how](original))
  assert trees.parse_lines(TEXT, parser, tmp_path, out) == expected
  assert path.read_bytes() == original
  assert out.messages == [f"corrupt: {path} is parsed again"]


def test_given_trees_are_read_for_the_kept_lines(tmp_path):
  lines = ["a b", "c", "", "d e"]
  (tmp_path / "all.conllu").write_text("".join(map(chain, lines)))
  context = stage_runs.context_of(
    tmp_path,
    {"train": (lines, ["x", "x y z", "x", "x"])},
    clean=Clean(max_words=2),
    parse=trees_options(source_conllu={"train": "all.conllu"}),
    vocabulary=Subwords(size=20),
    max_subwords=9,
  )
  facts, rows, _, parses = trees_of(context)
  assert rows == [0, 3]
  assert facts["relations"] == {"source": ["dep", "root"]}
  assert [p.head_W for p in parses] == [(0, 0), (0, 0)]
