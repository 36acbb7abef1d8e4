"""The quickstart's corpus, its invented language, and its parser."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess

import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.preprocess import quickstart
from jaxsyn.preprocess.toy import corpus, parser
from jaxsyn.preprocess.toy.corpus import Pair, read_out
from jaxsyn.preprocess.toy.grammar import Node
from jaxsyn.preprocess.toy.lexicon import Word

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def raw(prepared):
  """The folder of a small corpus and its parser."""
  return prepared.parent / "raw"


# Two nouns, two verbs, a tool and small words, with stems easy to see.
KING = Word("king", "person", 0, ("king",))  # gender 0: a
DOGS = Word("dog", "animal", 2, ("dog",))  # gender 2: o
SPOON = Word("spoon", "tool", 1, ("spoon",))
FEED = Word("feed", "transitive", 1, ("feed",))
SLEEP = Word("sleep", "intransitive", 2, ("sleep",))
THE = Word("the", "article", 0, ("the",))
OLD = Word("old", "adjective", 0, ("antique", "old"))
WITH = Word("with", "with", 0, ("having", "using"))
GLADLY = Word("gladly", "adverb", 0, ("glad-x", "glad-y", "glad-z"))
WILL = Word("will", "auxiliary", 0, ("will",))
THAT = Word("that", "pronoun", 0, ())
STOP = Word(".", "mark", 0, ())


def test_relative_clause_by_hand():
  dogs = Node(DOGS, "nsubj", "dogs", plural=True)
  fed = Node(FEED, "acl:relcl", "fed")
  fed.left = [Node(THAT, "obj"), Node(KING, "nsubj", left=[Node(THE, "det")])]
  spoon = Node(SPOON, "obl", left=[Node(WITH, "case"), Node(THE, "det")])
  fed.right = [spoon]
  dogs.left, dogs.right = [Node(THE, "det"), Node(OLD, "amod")], [fed]
  sleep = Node(SLEEP, "root", left=[dogs, Node(WILL, "aux")])
  sleep.right = [Node(GLADLY, "advmod"), Node(STOP, "punct")]
  pair = read_out(sleep)
  assert pair.source == (
    "The old dogs that the king fed with the spoon will sleep gladly."
  )
  # tokens: the old dogs that the king fed with the spoon will sleep gladly .
  #          0   1   2    3   4   5    6   7    8    9    10   11    12    13
  assert pair.heads == (2, 2, 11, 6, 5, 6, 2, 9, 9, 6, 11, 11, 11, 11)
  assert pair.relations[6] == "acl:relcl"
  # "sleep" has class 2: advmod third stem, subject -em, auxiliary -ol, verb
  # agrees with the dogs: gender o, t, plural in. "feed" has class 1: subject
  # -ost, place or tool -oru; its participle agrees with the dogs: o, l, in.
  # Articles and adjectives agree: dogs o + n, king a, spoon e. The adjective
  # has its second stem for an animate noun, "with" its second for a tool.
  assert pair.target == (
    "glad-z oldon dogirem theon spoonoru usinge thee kingost thea feedolin "
    "sleepotin willol."
  )
  # Each depends on the translation of its English parent; "that" (3) is gone.
  (tree,) = conllu.blocks_of_text(pair.conllu("s1", "target"), "pair")
  assert " ".join(tree.form_W) == pair.target.replace(".", " .")
  assert tree.head_W == (10, 2, 10, 2, 9, 4, 4, 9, 7, 2, 10, 10, 10)
  assert " ".join(tree.relation_W) == (
    "advmod amod nsubj det obl case det nsubj det acl:relcl root aux punct"
  )
  sources = (12, 1, 2, 0, 9, 7, 8, 5, 4, 6, 11, 10)
  assert pair.links() == [(source, i) for i, source in enumerate(sources)]


def test_parents_in_the_target_are_nearest_translated_ancestors():
  # a <- b <- c <- d, where b and c have no translation, and a is the root.
  pair = Pair(
    source="A b c d.",
    target="delta alpha.",
    tokens=("A", "b", "c", "d", "."),
    words=(STOP,) * 5,
    plurals=(False,) * 5,
    heads=(0, 0, 1, 2, 0),
    relations=("root", "x", "x", "obj", "punct"),
    translations=("alpha", "", "", "delta", ""),
    order=(3, 0, 4),
  )
  (tree,) = conllu.blocks_of_text(pair.conllu("s", "target"), "pair")
  assert tree.form_W == ("delta", "alpha", ".")
  assert tree.head_W == (1, 1, 1)
  assert tree.relation_W == ("obj", "root", "punct")


def test_same_seed_same_pairs_everywhere():
  pairs = corpus.pairs(400, seed=5)
  assert corpus.pairs(20, seed=5) == pairs[:20]
  # Pins the language, the sentences, their trees and links: a change here
  # changes every figure that was measured on the quickstart.
  text = "".join(
    f"{p.source}{p.target}{p.links()}{p.conllu('')}{p.conllu('', 'target')}"
    for p in pairs
  )
  assert hashlib.sha256(text.encode()).hexdigest()[:16] == "01693c16a7b25027"


def test_files(raw):
  for split, count in (("train", 600), ("validation", 24), ("test", 24)):
    for language in quickstart.LANGUAGES:
      lines = (raw / f"{split}.{language}").read_text().splitlines()
      trees = list(conllu.read(raw / f"{split}.{language}.conllu"))
      assert len(lines) == count
      assert [tree.comment_text for tree in trees] == lines
      ids = [f"# sent_id = {split}-{i + 1}" for i in range(count)]
      assert [tree.comments[0] for tree in trees] == ids
      for parse in conllu.match(trees, lines, "raw"):
        assert sum(i == head for i, head in enumerate(parse.head_W)) == 1


def test_model_parses_raw_text(raw):
  pairs = corpus.make_splits(1, corpus.Sizes(600, 24, 24))["test"]
  model, right = UDPipe(raw / quickstart.PARSER), []
  for pair in pairs:
    head_W = model(pair.source).head_W
    right += [a == b for a, b in zip(head_W, pair.heads, strict=True)]
  # 150 sentences make no good parser, but one much better than chance.
  assert 0.7 < sum(right) / len(right) < 1
  parse = model("Today, an old king slept.")
  words = [parse.text[a:b] for a, b in zip(parse.start_W, parse.end_W)]
  assert words == ["Today", ",", "an", "old", "king", "slept", "."]
  # The commas and the king depend on "slept" (5).
  assert parse.head_W == (5, 5, 4, 4, 5, 5, 5)


def test_training_the_parser_is_silent_and_reproducible(raw, capfd):
  model = parser.train_parser(corpus.pairs(150, seed=1))
  assert model == (raw / quickstart.PARSER).read_bytes()
  assert capfd.readouterr().err == ""


def test_the_target_side_is_prepared_with_its_gold_trees(prepared):
  manifest = manifests.read(prepared)
  assert manifest["sides"] == ["source", "target"]
  assert manifest["parser"]["source"]["trees"] == "parser"
  assert manifest["parser"]["target"]["trees"] == "CoNLL-U"
  assert manifest["parser"]["target"]["file"] == ""
  sizes = corpus.Sizes(train=600, validation=24, test=24)
  for split, pairs in corpus.make_splits(1, sizes).items():
    records = Dataset(prepared).split(split)
    for example, pair in zip(records, pairs, strict=True):
      place = {token: i for i, token in enumerate(pair.order)}
      heads = [place[pair.heads[i]] for i in pair.order]
      assert example["target_head"].tolist() == heads
      assert example["target_parsed"] == 1


def test_run_sh_generates_the_corpus_once(raw, tmp_path):
  """The programs in the environment only log their arguments."""
  for name in ("run.sh", "requirements.txt", "pyproject.toml"):
    shutil.copy(ROOT / name, tmp_path)
  copy = shutil.copytree(raw, tmp_path / "data" / "quickstart" / "raw")
  (tmp_path / "bin").mkdir()
  for name in ("pip", "python"):
    program = tmp_path / "bin" / name
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/called\n')
    program.chmod(0o755)
  environment = os.environ | {"VENV": str(tmp_path)}
  for generations in (0, 1):
    run = [tmp_path / "run.sh"]
    subprocess.run(run, env=environment, capture_output=True, check=True)
    called = (tmp_path / "called").read_text()
    assert called.count("-m preprocess.quickstart") == generations
    # Written last: without it, the work was interrupted.
    (copy / quickstart.PARSER).unlink(missing_ok=True)
