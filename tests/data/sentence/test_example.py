"""Tests the arrays of parsed pairs with worked examples and real sentences."""

from __future__ import annotations

import itertools

import control_trees
import numpy as np
import pytest

from jaxsyn.data import schema
from jaxsyn.data.schema import EOS, NO_WORD, OTHER_TREE, UNK
from jaxsyn.data.sentence import (
  align,
  conllu,
  example,
  tree,
)
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.sentence.vocabulary import Subwords, Vocabulary, train

MONKEY = conllu.Parse(
  "The monkey eats a banana",
  start_W=(0, 4, 11, 16, 18),
  end_W=(3, 10, 15, 17, 24),
  head_W=(1, 2, 2, 4, 2),
  relation_W=("det", "nsubj", "root", "det", "obj"),
)
RELATIONS = {
  "source": schema.relation_ids(MONKEY.relation_W),
  "target": {"root": 1},
}


@pytest.fixture(scope="module")
def whole_words(tmp_path_factory) -> Vocabulary:
  """A vocabulary in which each word of MONKEY is one subword."""
  path = tmp_path_factory.mktemp("vocabulary") / "words.model"
  return train([MONKEY.text] * 3, path, Subwords(size=99, type="word"))


@pytest.fixture(scope="module")
def characters(tmp_path_factory) -> Vocabulary:
  path = tmp_path_factory.mktemp("vocabulary") / "characters.model"
  return train([MONKEY.text, "½ ﬁ"], path, Subwords(size=99, type="char"))


def encode(source, vocabulary, target=None, **options):
  both = (vocabulary, vocabulary)
  return control_trees.encode(
    source, target, vocabularies=both, relations=RELATIONS, **options
  )


def test_arrays_of_the_worked_example(whole_words):
  facts = encode(MONKEY, whole_words, "a banana", line=7)
  assert {name: array.dtype for name, array in facts.items()} == {
    name: feature.dtype
    for name, feature in schema.features({"sides": ["source"]}).items()
  }
  assert facts["line"] == 7
  assert facts["source_parsed"] == 1
  assert len(facts["source_id"]) == 6
  assert facts["source_id"][-1] == facts["target_id"][-1] == EOS
  assert facts["source_word"].tolist() == [0, 1, 2, 3, 4, -1]
  assert facts["source_head"].tolist() == [1, 2, 2, 4, 2]
  # det 1, nsubj 2, obj 3, root 4
  assert facts["source_relation"].tolist() == [1, 2, 4, 1, 3]
  assert facts["source_parent_mid"].tolist() == [1, 2, 2, 4, 2, 5]
  assert facts["source_tree_distance"].reshape(5, 5).tolist() == [
    [0, 1, 2, 4, 3],
    [1, 0, 1, 3, 2],
    [2, 1, 0, 2, 1],
    [4, 3, 2, 0, 1],
    [3, 2, 1, 1, 0],
  ]


def test_words_of_several_subwords(characters):
  # Characters, each word with its blank: ▁The = 0..3, ▁monkey = 4..10,
  # ▁eats = 11..15, ▁a = 16 17, ▁banana = 18..24, EOS = 25.
  facts = encode(MONKEY, characters)
  expected = [[0] * 4, [1] * 7, [2] * 5, [3] * 2, [4] * 7, [-1]]
  assert facts["source_word"].tolist() == list(itertools.chain(*expected))
  # Middles: monkey 7, eats 13, banana 21.
  expected = [[7] * 4, [13] * 7, [13] * 5, [21] * 2, [13] * 7, [25]]
  assert facts["source_parent_mid"].tolist() == list(itertools.chain(*expected))


def test_whole_words_include_adjacent_punctuation(whole_words):
  # None of them is in the vocabulary: they stay apart and keep their places.
  # ( and ) depend on "old", "." on "sleeps".
  parse = conllu.Parse(
    "The (old) fox sleeps.",
    start_W=(0, 4, 5, 8, 10, 14, 20),
    end_W=(3, 5, 8, 9, 13, 20, 21),
    head_W=(4, 2, 4, 2, 5, 5, 5),
    relation_W=("det", "x", "x", "x", "nsubj", "root", "x"),
  )
  facts = encode(parse, whole_words)
  the = whole_words.encode("The").id[0]
  assert facts["source_id"].tolist() == [the, UNK, UNK, UNK, EOS]
  # Each is the word of its first character: The, (, fox, sleeps.
  assert facts["source_word"].tolist() == [0, 1, 4, 5, -1]
  # The parent of "(" is "old", which begins no piece; its parent is "fox".
  assert facts["source_parent_mid"].tolist() == [2, 2, 3, 3, 4]


def test_features_of_each_side(whole_words):
  both = encode(MONKEY, whole_words, conllu.unparsed("a banana"))
  assert set(both) == set(schema.features({"sides": ["source", "target"]}))
  assert both["target_parsed"] == 0
  assert both["target_relation"].tolist() == [1, 1]
  neither = encode(MONKEY.text, whole_words, "a banana")
  assert (
    set(neither) == set(schema.features({"sides": []})) == set(schema.ALWAYS)
  )
  single = encode(MONKEY, whole_words)
  assert set(single) == set(schema.features({"sides": ["source"]})) - {
    "target_id"
  }


def test_lines_without_words_or_tree(whole_words):
  for tag in (None, 77):  # no tags, so that the translation stays empty
    facts = encode(conllu.unparsed(""), whole_words, "", tag=tag)
    assert facts["source_id"].tolist() == facts["target_id"].tolist() == [EOS]
    assert facts["source_word"].tolist() == [NO_WORD]
    assert facts["source_parent_mid"].tolist() == [0]
    for name in ("head", "relation", "tree_distance"):
      assert facts[f"source_{name}"].shape == (0,)
    assert facts["source_parsed"] == 0
  facts = encode(conllu.unparsed("The monkey"), whole_words)
  assert facts["source_parsed"] == 0
  assert facts["source_head"].tolist() == [0, 1]
  assert facts["source_parent_mid"].tolist() == [0, 1, 2]
  assert facts["source_tree_distance"].tolist() == [0, 255, 255, 0]


def test_tags_surround_the_sentence_and_belong_to_no_word(whole_words):
  facts = encode(MONKEY, whole_words, "a", line=4, tag=77)
  ids = encode(MONKEY, whole_words)["source_id"].tolist()
  assert facts["source_id"].tolist() == [77, *ids[:-1], 77, EOS]
  assert facts["source_word"].tolist() == [-1, 0, 1, 2, 3, 4, -1, -1]
  # One place further on than [1, 2, 2, 4, 2]; tags and EOS are their own.
  assert facts["source_parent_mid"].tolist() == [0, 2, 3, 3, 5, 3, 6, 7]
  text = encode(MONKEY.text, whole_words, tag=77)
  assert text["source_id"].tolist() == facts["source_id"].tolist()


def random_heads(parse, vocabulary, **options):
  facts = encode(parse, vocabulary, tree=TREES["random"](), **options)
  return tuple(facts["source_head"].tolist())


def test_random_trees_depend_only_on_words_and_seed(whole_words):
  other = conllu.Parse(
    MONKEY.text, MONKEY.start_W, MONKEY.end_W, (0, 0, 0, 0, 0), ("dep",) * 5
  )
  one = random_heads(MONKEY, whole_words, target="a", line=3)
  assert random_heads(other, whole_words, line=9, tag=77) == one
  texts = ("a a a a", "a a a The", "The a a a")
  assert len({random_heads(conllu.unparsed(t), whole_words) for t in texts}) > 1
  seeds = [random_heads(MONKEY, whole_words, seed=seed) for seed in range(8)]
  assert seeds[0] == one and len({*seeds}) > 5


@pytest.mark.parametrize("kind", ["linear", "random", "wrong_parents"])
def test_control_trees_on_both_sides(whole_words, kind):
  target = conllu.unparsed("a banana The monkey")
  parsed = encode(MONKEY, whole_words, target)
  direct = encode(MONKEY, whole_words, target, tree=TREES[kind]())
  source = control_trees.replace_trees(
    parsed, "source", tree=TREES[kind](), seed=0
  )
  both = control_trees.replace_trees(
    source, "target", tree=TREES[kind](), seed=0
  )
  for name, array in both.items():
    np.testing.assert_array_equal(array, direct[name])
  # The source's is what it is without trees of the target.
  single = encode(MONKEY, whole_words, target.text, tree=TREES[kind]())
  for name in single:
    np.testing.assert_array_equal(single[name], direct[name])
  # The target's comes from its own ids.
  turned = encode(target, whole_words, tree=TREES[kind]())
  assert turned["source_head"].tolist() == direct["target_head"].tolist()


def block(text: str, *words: str) -> conllu.Parse:
  """A sentence of words "id form head relation upos"."""
  rows = []
  for word in words:
    id_, form, head, relation, upos = word.split(" ")
    rows.append("\t".join([id_, form, "_", upos, *"__", head, relation, *"__"]))
  blocks = conllu.blocks_of_text("\n".join(rows) + "\n\n", "x")
  return conllu.attach(blocks, text)


LONG = " ".join(map(str, range(300)))
HURTFUL = [
  MONKEY,
  conllu.unparsed(""),
  conllu.unparsed("\u200b"),
  conllu.unparsed("no tree\there\r"),
  # One word in the text, two in the tree; an empty node.
  block(
    "zum Bahnhof",
    "1-2 zum _ _ _",
    *("1 zu 3 case ADP", "2 dem 3 det DET"),
    *("2.1 gehen _ _ VERB", "3 Bahnhof 0 root NOUN"),
  ),
  # Words that outnumber subwords: "自然" is one.
  block(
    "自然自然",
    *("1 自 2 compound NOUN", "2 然 0 root NOUN"),
    *("3 自 2 dep NOUN", "4 然 3 dep NOUN"),
  ),
  # Combining marks, and what normalisation spells out.
  block("e\u0301te\u0301 ½", "1 e\u0301te\u0301 0 root NOUN", "2 ½ 1 dep NUM"),
  # Zero-width characters: in a word, and a word of nothing else.
  block(
    "\u200bfoo \u200d bar",
    *("1 foo 0 root X", "2 \u200d 1 dep X", "3 bar 2 obj X"),
  ),
  # Two roots, blanks that are none of ASCII, a label that training lacks.
  block(" a\u3000b\xa0", "1 a 0 root X", "2 b 0 strange Y"),
  # A chain beyond FAR, and a comb.
  block(LONG, *(f"{i + 1} {i} {i} dep NUM" for i in range(300))),
  block(LONG, *(f"{i + 1} {i} {i and 1} dep NUM" for i in range(300))),
]


@pytest.fixture(scope="module", params=["bpe", "char", "word"])
def small(request, tmp_path_factory) -> Vocabulary:
  """A vocabulary of these sentences but for some of their words."""
  path = tmp_path_factory.mktemp("vocabulary") / "small.model"
  texts = [parse.text for parse in HURTFUL[:-2] if "½" not in parse.text]
  options = Subwords(size=60, type=request.param)
  return train([*texts, "自然"] * 3, path, options)


@pytest.mark.parametrize("kind", ["parsed", "random"])
def test_encode_all_equals_encode_of_each(small, kind):
  for parse in HURTFUL:
    check(parse, small)
  relations = {label: i for i, label in enumerate(["det", "dep", "root"], 1)}
  known = {
    "vocabularies": (small, small),
    "relations": dict.fromkeys(schema.SIDES, relations),
    "annotations": ("upos",),
    "tree": TREES[kind](),
    "seed": 7,
  }
  for sources in (HURTFUL, HURTFUL[::-1], HURTFUL[:1], [HURTFUL[1]] * 2):
    for targets in ([one.text for one in sources], sources[::-1], None):
      lines = range(5, 5 + len(sources))
      rows = example.encode_all(sources, targets, lines=lines, **known)
      assert len(rows) == len(sources)
      pairs = zip(rows.examples(), sources, targets or [None] * len(sources))
      for line, (made, source, target) in zip(lines, pairs, strict=True):
        single = control_trees.encode(source, target, line=line, **known)
        assert made.keys() == single.keys()
        for name, array in single.items():
          assert made[name].dtype == schema.FEATURES[name].dtype
          np.testing.assert_array_equal(made[name], array, name)


def check(parse: conllu.Parse, model: Vocabulary) -> None:
  """The promises of an example, from the definitions, the slow way."""
  facts = encode(parse, model)
  pieces = model.encode(parse.text)
  word_S = facts["source_word"]
  holder = {
    position: word
    for word, span in enumerate(zip(parse.start_W, parse.end_W))
    for position in range(*span)
  }
  assert len(word_S) == len(pieces.id) + 1
  assert word_S[-1] == NO_WORD
  for word, begin, end in zip(word_S, pieces.begin, pieces.end):
    seen = [p for p in range(begin, end) if align.is_visible(parse.text[p])]
    if seen:
      assert word == holder[seen[0]]
    assert word >= 0
  assert (np.diff(word_S[:-1]) >= 0).all()  # words follow the text
  positions = np.arange(len(word_S))
  for piece, word in enumerate(word_S[:-1]):
    parent = parse.head_W[word]
    while not (word_S == parent).any() and parse.head_W[parent] != parent:
      parent = parse.head_W[parent]
    middle = positions[word_S == (parent if (word_S == parent).any() else word)]
    assert facts["source_parent_mid"][piece] == np.float32(middle.mean())
  distance_WW = facts["source_tree_distance"].reshape([len(parse.head_W)] * 2)
  np.testing.assert_array_equal(distance_WW, tree.tree_distance(parse.head_W))
  np.testing.assert_array_equal(distance_WW, distance_WW.T)
  roots = [w for w, head in enumerate(parse.head_W) if w == head]
  assert (distance_WW == OTHER_TREE).any() == (len(roots) > 1)


@pytest.mark.parametrize("name", ["cs_pud", "fr_pud", "ja_pud"])
def test_gold_sentences(shared_data, tmp_path, name):
  """Gold trees, through subwords of another text's vocabulary."""
  trees = list(conllu.read(shared_data / "ud" / f"{name}.conllu.gz"))
  parses = [conllu.attach([block], block.text) for block in trees]
  model = train(
    [parse.text for parse in parses[::2]],
    tmp_path / "v.model",
    Subwords(size=4000, type="unigram", character_coverage=0.9995),
  )
  for parse in parses[::5]:
    check(parse, model)


def test_real_japanese(shared_data, tmp_path):
  lines = read_lines(shared_data / "enja" / "train.ja.gz")[:2000]
  lines = [line.strip().replace(" ", "") for line in lines]
  model = train(
    lines, tmp_path / "v.model", Subwords(size=3000, type="unigram")
  )
  udpipe = UDPipe(shared_data / "udpipe" / "japanese.udpipe")
  hard = [
    "　私は　ｶﾞｷﾞ👩\u200d👧です。",
    "㍿の①は½です。\u200b",
    "ＡＢＣ　ﬁ\u00a0か\u3099",
  ]
  for line in [*lines[::20], *hard]:
    parse = udpipe(line)
    assert parse.parsed
    check(parse, model)
