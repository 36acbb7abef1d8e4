"""Warnings about trees: none for gold trees, some for trees of a wrong model."""

from __future__ import annotations

import gzip
import itertools
import re

import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.preprocess.tree_warnings import count, find_warnings


def parse_of(words, head_W, relation_W=None, parsed=True):
  ends = list(itertools.accumulate(len(word) + 1 for word in words))
  starts = (0, *ends[:-1])
  end_W = tuple(start + len(word) for start, word in zip(starts, words))
  relation_W = relation_W or ("nsubj",) * len(words)
  return Parse(
    " ".join(words), starts, end_W, tuple(head_W), relation_W, parsed
  )


WORDS, TREE = list("abcdefgh"), [0, 0, 0, 2, 2, 2, 2, 2]
LABELS = ("root", "case", "det", "obj", "nsubj", "mark", "amod", "obl")


def test_counts_by_hand():
  result = count(
    [
      parse_of(WORDS, [0] * 8),
      parse_of(WORDS, [0, 0, 1, 2, 3, 4, 5, 6]),
      parse_of(["\u3042", "b" * 21], [0, 0], ("root", "dep:x")),
      parse_of(["x"], [0], parsed=False),
      Parse(" ", (), (), (), (), parsed=False),
    ]
  )
  assert result == {
    "lines": 4,
    "unparsed": 1,
    "trees": 2,
    "flat": 1,
    "chains": 1,
    "characters": 8 + 8 + 22,
    "uncut": 21,
    "relation dep": 1,
    "relation nsubj": 16,
    "relation root": 1,
  }
  assert find_warnings(result) == []  # too few


@pytest.mark.parametrize(
  ("parses", "message"),
  [
    ([parse_of(["x"], [0], parsed=False)] * 3, "lines have no tree"),
    ([parse_of(WORDS, [0] * 8)] * 5, "trees have all words on one"),
    (
      [parse_of(WORDS, [0, 0, 1, 2, 3, 4, 5, 6])],
      "trees have each word on a neighbor",
    ),
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


@pytest.mark.parametrize("language", ["en", "de", "fr", "cs", "tr", "zh", "ja"])
def test_gold_trees_cause_no_warning(shared_data, language):
  blocks = conllu.read(shared_data / "ud" / f"{language}_pud.conllu.gz")
  parses = [
    conllu.attach([block], block.text)
    for block in itertools.islice(blocks, 300)
  ]
  assert find_warnings(count(parses)) == []


def test_a_model_of_another_language_causes_a_warning(shared_data):
  parser = UDPipe(shared_data / "udpipe" / "german.udpipe")
  files = {
    "de": "multi30k/val.de.gz",
    "cs": "multi30k/val.cs.gz",
    "fr": "multi30k/val.fr.gz",
    "ja": "enja/train.ja.gz",
  }
  for language, name in files.items():
    with gzip.open(shared_data / name, "rt", encoding="utf-8") as file:
      lines = [line.rstrip("\n") for line in itertools.islice(file, 80)]
    warnings = find_warnings(count(parser.parses(lines)))
    assert bool(warnings) == (language != "de"), warnings
