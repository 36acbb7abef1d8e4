"""Tests behavior that all parsers share: difficult lines and identity."""

from __future__ import annotations

import pickle

import parsers_under_test
import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.parsers import PARSERS
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT

LINES = [
  "Two young men are playing football in the park.",
  "",
  " \u200b ",
  "He sleeps. She reads a book. They eat.",
  "I can't go  home, can I?",
  "私は学生です。これは本です。",
  "donaudampfschifffahrtsgesellschaftskapitän " * 3,
  "e\u0301te\u0301 \u200b nin\u0303o, \u1100\u1161\u11a8 done",
  "a man\u2028in\x85the park\x0b.",
  "He sleeps.\rShe reads.",
  "nul\x00 line",
  "one two " * 750,  # 6,000 characters
  "a b " * 40,
  "# text = not a comment",
  "1\t2\t3\t4\t5\t6\t7\t8\t9\t10",
  "-LRB- ( ) [ ] \" ' \\ &amp; %s {}",
  "👩\u200d👩\u200d👧 likes 👍🏽.",
  "x" * 5000,
  "\ufffe\U0010ffff \ue000",
  "-- _ ' \\n",
]
UNPARSED = {1, 2, 10, 11}


def words(parse):
  return [parse.text[s:e] for s, e in zip(parse.start_W, parse.end_W)]


@pytest.fixture(scope="module")
def spec_of(shared_data, made_once):
  """A function kind -> what a config says of a real parser of that kind."""
  english = shared_data / "udpipe" / "english.udpipe"
  if not english.is_file():
    pytest.skip(f"no parser at {english}")

  def make(kind):
    parsers_under_test.needs(kind)
    if kind == "udpipe":
      return PARSERS[kind](str(english))
    if kind == "spacy":
      pipeline = made_once(
        "spacy_pipeline",
        lambda path: parsers_under_test.spacy_pipeline(path, shared_data),
      )
      return PARSERS[kind](str(pipeline))
    models = made_once(
      "stanza_models",
      lambda path: parsers_under_test.stanza_models(path, shared_data),
    )
    return PARSERS[kind](folder=str(models))

  return make


@pytest.fixture(params=parsers_under_test.KINDS, scope="module")
def found(request, spec_of, tmp_path_factory):
  at = ROOT / "prepare" / "parse" / "source" / request.param
  spec = spec_of(request.param)
  return spec.resolve(at, "en", tmp_path_factory.mktemp("own"), {})


@pytest.fixture(scope="module")
def parser(found):
  return found.open()


def test_each_line_has_one_parse(parser):
  parses = parser.parses(LINES)
  for i, (parse, line) in enumerate(zip(parses, LINES, strict=True)):
    assert parse.text == line
    assert parse.parsed == (i not in UNPARSED), line
    found = visible("".join(words(parse)))
    assert found == visible(line) or len(line) > 5000
    # A tree, or several: all words lead to a root.
    for word in range(len(parse.head_W)):
      for _ in parse.head_W:
        word = parse.head_W[word]
      assert parse.head_W[word] == word
  assert parses[0].relation_W.count("root") == 1
  assert parses[11].head_W == (0,)
  assert words(parses[11]) == [LINES[11].strip()]
  assert words(parses[10]) == ["nul", "line"]
  assert words(parses[4])[0] == "I"
  assert parses[1].head_W == parses[2].head_W == ()
  assert len(words(parses[3])) >= 8


def test_lines_parsed_together_equal_lines_alone(parser):
  assert parser.parses(LINES) == [parser(line) for line in LINES]
  assert parser.parses([]) == parser.conllu_all([], []) == []


def test_written_conllu_reads_back(parser):
  names = [str(i) for i in range(len(LINES))]
  texts = parser.conllu_all(LINES, names)
  blocks = conllu.blocks_of_text("".join(texts), "all")
  again = list(conllu.match(blocks, LINES, "raw"))
  assert again == parser.parses(LINES)
  for name, text in zip(names, texts):
    each = conllu.blocks_of_text(text, "one")
    assert {block.name for block in each} <= {name}
    assert bool(each) == (name not in ("1", "2"))
    comments = {c.split(" = ")[0] for block in each for c in block.comments}
    assert comments <= {"# sent_id", "# text", "# parsed"}
  assert "# parsed = no" in texts[10]


def test_identity_is_recorded_and_reopens(found, parser, tmp_path):
  identity = parser.identity
  assert identity.kind == found.kind and PARSERS[identity.kind] is type(found)
  assert identity.entry()["name"] in str(identity)
  again = pickle.loads(pickle.dumps(found)).open(identity.sha256)
  assert again.identity == identity and again.key == parser.key
  assert again(LINES[0]) == parser(LINES[0])
  with pytest.raises(InputError) as error:
    found.at(str(tmp_path / "nowhere")).open()
  assert "\n" not in str(error.value) and "nowhere" in str(error.value)


def test_different_parsers_have_different_keys(spec_of):
  specs = spec_of("udpipe"), spec_of("spacy")
  assert len({spec.open().key for spec in specs}) == 2
