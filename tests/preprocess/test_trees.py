"""Stored parses of runs of lines, and trees given as CoNLL-U."""

import gzip

import pytest
import stage_runs
from raw_corpora import chain

from jaxsyn.data.options import Clean, SideParser, Trees
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.data.sentence.vocabulary import Subwords
from jaxsyn.preprocess import trees
from jaxsyn.preprocess.outputs import Outputs

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


@pytest.fixture
def out(tmp_path):
  with Outputs(tmp_path / "work").new("trees/0") as output:
    yield output


def test_parses_lines(parser, tmp_path, out):
  text = trees.parse_lines(TEXT, parser, tmp_path, out)
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
  """The result, rows, CoNLL-U and parses of the first chunk."""
  before = (*stage_runs.SELECTION, "vocabulary")
  (result,) = stage_runs.run(context, (*before, "trees"))
  text = context.outputs.read("trees/0", "conllu.source").decode()
  examples, _ = trees.examples_of(context, 0)
  return result, examples.rows, text, examples.parses["source"]


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
  """A parser that records the lines it has parsed."""

  def __init__(self, parser, beam=0):
    self.parser, self.lines = parser, []
    self.key = f"{parser.identity.sha256}:{beam}:5000"

  def conllu_all(self, lines, names):
    self.lines += lines
    return self.parser.conllu_all(lines, names)


def test_parses_each_line_once(parser, tmp_path, out):
  counting = Counting(parser)
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
def test_repeats_corrupt_parses(parser, tmp_path, out, how):
  expected = trees.parse_lines(TEXT, parser, tmp_path, out)
  (path,) = tmp_path.glob("*.gz")
  original = path.read_bytes()
  path.write_bytes(DAMAGE[how](original))
  assert trees.parse_lines(TEXT, parser, tmp_path, out) == expected
  assert path.read_bytes() == original
  assert out.header.messages == [f"corrupt: {path}; parsing its lines again"]


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
