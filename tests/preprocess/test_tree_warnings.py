"""Trees that look wrong: gold ones do not, those of a wrong model do."""

from __future__ import annotations

import gzip
import itertools

import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.preprocess import tree_warnings


def counted(parses, language="en"):
  result = tree_warnings.Stats()
  for parse in parses:
    result.update(tree_warnings.count(parse, language))
  return result


def parse_of(words, head_W, relation_W=None, parsed=True):
  text = " ".join(words)
  ends = list(itertools.accumulate(len(word) + 1 for word in words))
  starts = [0, *ends[:-1]]
  end_W = tuple(s + len(w) for s, w in zip(starts, words))
  relation_W = relation_W or ("nsubj",) * len(words)
  return Parse(text, tuple(starts), end_W, tuple(head_W), relation_W, parsed)


def test_counts_by_hand():
  words = list("abcdefgh")
  flat = parse_of(words, [0] * 8)
  chain = parse_of(words, [0, 0, 1, 2, 3, 4, 5, 6])
  short = parse_of(["\u3042", "b" * 21], [0, 0], ("root", "dep:x"))
  none = parse_of(["x"], [0], parsed=False)
  blank = Parse(" ", (), (), (), (), parsed=False)
  result = counted([flat, chain, short, none, blank])
  assert result == {
    "lines": 4,
    "unparsed": 1,
    "trees": 2,
    "flat": 1,
    "chains": 1,
    "characters": 8 + 8 + 22,
    "uncut": 21,
    "letters": 8 + 8 + 22 + 1,
    "foreign": 1,
    "relation dep": 1,
    "relation nsubj": 16,
    "relation root": 1,
  }
  assert tree_warnings.find_warnings(result) == []  # too few to say


def test_each_kind_causes_a_warning():
  words = list("abcdefgh")
  cases = {
    "lines have no tree": [parse_of(["x"], [0], parsed=False)] * 3,
    "trees have all words on one": [parse_of(words, [0] * 8)] * 5,
    "trees have each word on a neighbour": [
      parse_of(words, [0, 0, 1, 2, 3, 4, 5, 6])
    ],
    "words have no relation but dep or _": [
      parse_of(words, [0, 0, 0, 2, 2, 2, 2, 2], ("dep",) * 8)
    ]
    * 5,
    "letters are of no script of its language": [parse_of(["\u3042" * 20], [0])]
    * 5,
    "characters are of words of more than 20": [parse_of(["x" * 200], [0])],
  }
  labels = ("root", "case", "det", "obj", "nsubj", "mark", "amod", "obl")
  usual = [parse_of(words, [0, 0, 0, 2, 2, 2, 2, 2], labels)] * 25
  assert tree_warnings.find_warnings(counted(usual)) == []
  for meaning, parses in cases.items():
    message = tree_warnings.find_warnings(counted(usual + parses))
    assert any(meaning in one for one in message), (meaning, message)
  same = [parse_of(words, [0, 0, 0, 2, 2, 2, 2, 2], ("compound",) * 8)] * 25
  first, second = tree_warnings.find_warnings(counted(same))
  assert (
    first == "100.0 % of the words have the same relation (usual: at most 28 %)"
  )
  assert second.startswith(
    "0.0 % of the words are function words (usual: at least"
  )


LANGUAGES = ("en", "de", "fr", "cs", "tr", "zh", "ja")


@pytest.mark.parametrize("language", LANGUAGES)
def test_gold_trees_cause_no_warning(shared_data, language):
  blocks = conllu.read(shared_data / "ud" / f"{language}_pud.conllu.gz")
  parses = [
    conllu.attach([block], block.text)
    for block in itertools.islice(blocks, 300)
  ]
  assert tree_warnings.find_warnings(counted(parses, language)) == []


def lines(shared_data, name, number=40):
  with gzip.open(shared_data / name, "rt", encoding="utf-8") as file:
    return [line.rstrip("\n") for line in itertools.islice(file, number)]


def test_a_model_of_another_language_causes_a_warning(shared_data):
  texts = {
    "de": lines(shared_data, "multi30k/val.de.gz"),
    "cs": lines(shared_data, "multi30k/val.cs.gz"),
    "fr": lines(shared_data, "multi30k/val.fr.gz"),
    "ja": lines(shared_data, "enja/train.ja.gz", 80),
  }
  parser = UDPipe(shared_data / "udpipe" / "german.udpipe")
  for language, text in texts.items():
    message = tree_warnings.find_warnings(
      counted(parser.parses(text), language)
    )
    assert bool(message) == (language != "de"), message
  # The sides were mixed up.
  japanese = UDPipe(shared_data / "udpipe" / "japanese.udpipe")
  result = counted(japanese.parses(texts["ja"]), "ja")
  assert tree_warnings.find_warnings(result) == []
  result = counted(japanese.parses(texts["ja"]), "de")
  assert any("no script" in one for one in tree_warnings.find_warnings(result))


@pytest.mark.parametrize(
  ("language", "text", "foreign"),
  [
    ("en", "caf\u00e9 \u0434\u0430", 2),
    ("sr_Latn", "da \u0434\u0430", 0),
    ("ja", "\u65e5\u3005 \uff76\u30fc \uff21 b", 2),
    ("qaa", "\u65e5\u672c", 0),  # nobody knows
    ("zh-Hant", "\u65e5\u672c 123 x", 1),
  ],
)
def test_scripts(language, text, foreign):
  parse = parse_of([text], [0])
  assert counted([parse], language)["foreign"] == foreign
