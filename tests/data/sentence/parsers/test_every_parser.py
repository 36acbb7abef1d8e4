"""Behavior that all parsers share: difficult lines and identity."""

from __future__ import annotations

import pickle

import parsers_under_test
import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.parsers import PARSERS, Parser
from jaxsyn.data.sentence.parsers.parser import Identity
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


@pytest.fixture(params=parsers_under_test.KINDS, scope="module")
def spec(request, shared_data, made_once, tmp_path_factory):
  at = ROOT / "prepare" / "parse" / "source" / request.param
  spec = parsers_under_test.spec_of(request.param, shared_data, made_once)
  return spec.resolve(at, "en", tmp_path_factory.mktemp("models"), {})


@pytest.fixture(scope="module")
def parser(spec, shared_data):
  if spec.kind == "udpipe":
    return parsers_under_test.udpipe(shared_data, "english")
  return spec.open()


def test_each_line_has_one_parse(parser):
  parses = parser.parses(LINES)
  for i, (parse, line) in enumerate(zip(parses, LINES, strict=True)):
    assert parse.text == line
    assert parse.parsed == (i not in UNPARSED), line
    assert visible("".join(words(parse))) == visible(line) or len(line) > 5000
    for word in range(len(parse.head_W)):  # all words lead to a root
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
  alone = [parser(line) for line in LINES]
  assert parses == alone
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


def test_identity_is_recorded_and_reopens(spec, parser, tmp_path):
  identity = parser.identity
  assert identity.kind == spec.kind and PARSERS[identity.kind] is type(spec)
  assert Identity.of({**identity.entry(), "file": "x"}) == identity
  assert identity.name in str(identity)
  again = pickle.loads(pickle.dumps(spec)).open(identity.sha256)
  assert again.identity == identity and again.key == parser.key
  assert again(LINES[0]) == parser(LINES[0])
  with pytest.raises(InputError) as error:
    spec.at(str(tmp_path / "nowhere")).open()
  assert "\n" not in str(error.value) and "nowhere" in str(error.value)


class AnswerParser(Parser):
  """A parser that gives the same trees for all lines."""

  identity = Identity("udpipe", "answers")

  def __init__(self, *forms: str):
    heads = ["0", *("1" for _ in forms)]
    self.tree = "".join(
      f"{i}\t{form}\t_\t_\t_\t_\t{head}\tx\t_\t_\n"
      for i, (form, head) in enumerate(zip(forms, heads), 1)
    )

  def _texts(self, lines):
    return [f"# newdoc\n{self.tree}\n"] * len(lines)


@pytest.mark.parametrize(
  "forms, expected, is_parsed",
  [
    (["a", "man"], ["a", "man"], True),
    (["a"], ["a", "man"], False),  # characters are lost
    (["a", "\tman"], ["a", "man"], False),  # malformed
  ],
)
def test_trees_that_do_not_match_the_line_are_dropped(
  forms, expected, is_parsed
):
  parser = AnswerParser(*forms)
  parse, (text,) = parser("a man"), parser.conllu_all(["a man"], ["3"])
  assert words(parse) == expected and parse.parsed == is_parsed
  assert ("# parsed = no" in text) == (not is_parsed)
  assert "# sent_id = 3\n" in text and "newdoc" not in text
