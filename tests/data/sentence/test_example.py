"""Arrays of parsed pairs: worked examples, difficult and real sentences."""

from __future__ import annotations

import control_trees
import numpy as np
import pytest
import tree_references
from numpy.testing import assert_array_equal

from jaxsyn.data import schema
from jaxsyn.data.schema import EOS, NO_WORD, OTHER_TREE
from jaxsyn.data.sentence import align, conllu, example
from jaxsyn.data.sentence.controls import TREES
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


def encode(source, vocabulary, target=None, **options):
  both = (vocabulary, vocabulary)
  return control_trees.encode(
    source, target, vocabularies=both, relations=RELATIONS, **options
  )


def test_arrays_of_the_worked_example(whole_words):
  arrays = encode(MONKEY, whole_words, "a banana", line=7)
  features = schema.features({"sides": ["source"]})
  assert {name: array.dtype for name, array in arrays.items()} == {
    name: feature.dtype for name, feature in features.items()
  }
  assert (arrays["line"], arrays["source_parsed"]) == (7, 1)
  assert len(arrays["source_id"]) == 6
  assert arrays["source_id"][-1] == arrays["target_id"][-1] == EOS
  assert arrays["source_word"].tolist() == [0, 1, 2, 3, 4, -1]
  assert arrays["source_head"].tolist() == [1, 2, 2, 4, 2]
  # det 1, nsubj 2, obj 3, root 4
  assert arrays["source_relation"].tolist() == [1, 2, 4, 1, 3]
  assert arrays["source_parent_mid"].tolist() == [1, 2, 2, 4, 2, 5]
  assert arrays["source_tree_distance"].reshape(5, 5).tolist() == [
    [0, 1, 2, 4, 3],
    [1, 0, 1, 3, 2],
    [2, 1, 0, 2, 1],
    [4, 3, 2, 0, 1],
    [3, 2, 1, 1, 0],
  ]


def test_words_of_several_subwords(tmp_path):
  # Characters, each word with its blank: ▁The = 0..3, ▁monkey = 4..10,
  # ▁eats = 11..15, ▁a = 16 17, ▁banana = 18..24, EOS = 25.
  options = Subwords(size=99, type="char")
  arrays = encode(MONKEY, train([MONKEY.text], tmp_path / "v", options))
  sizes = [4, 7, 5, 2, 7, 1]
  expected = np.repeat([0, 1, 2, 3, 4, -1], sizes)
  assert_array_equal(arrays["source_word"], expected)
  # Middles: monkey 7, eats 13, banana 21.
  expected = np.repeat([7, 13, 13, 21, 13, 25], sizes)
  assert_array_equal(arrays["source_parent_mid"], expected)


def test_features_of_each_side(whole_words):
  both = encode(MONKEY, whole_words, conllu.unparsed("a banana"))
  assert {*both} == {*schema.features({"sides": ["source", "target"]})}
  assert both["target_parsed"] == 0
  assert both["target_relation"].tolist() == [1, 1]
  neither = encode(MONKEY.text, whole_words, "a banana")
  assert {*neither} == {*schema.features({"sides": []})} == {*schema.ALWAYS}
  single = encode(MONKEY, whole_words)
  features = schema.features({"sides": ["source"]})
  assert {*single, "target_id"} == {*features}


def test_lines_without_words_or_tree(whole_words):
  for tag in (None, 77):  # no tags, so that the translation stays empty
    arrays = encode(conllu.unparsed(""), whole_words, "", tag=tag)
    assert arrays["source_id"].tolist() == arrays["target_id"].tolist() == [EOS]
    assert arrays["source_word"].tolist() == [NO_WORD]
    assert arrays["source_parent_mid"].tolist() == [0]
    for name in ("head", "relation", "tree_distance"):
      assert arrays[f"source_{name}"].shape == (0,)
    assert arrays["source_parsed"] == 0
  arrays = encode(conllu.unparsed("The monkey"), whole_words)
  assert arrays["source_parsed"] == 0
  assert arrays["source_head"].tolist() == [0, 1]
  assert arrays["source_parent_mid"].tolist() == [0, 1, 2]
  assert arrays["source_tree_distance"].tolist() == [0, 255, 255, 0]


def test_tags_belong_to_no_word(whole_words):
  arrays = encode(MONKEY, whole_words, "a", line=4, tag=77)
  ids = encode(MONKEY, whole_words)["source_id"].tolist()
  assert arrays["source_id"].tolist() == [77, *ids[:-1], 77, EOS]
  assert arrays["source_word"].tolist() == [-1, 0, 1, 2, 3, 4, -1, -1]
  # One place further on than [1, 2, 2, 4, 2]; tags and EOS are their own.
  assert arrays["source_parent_mid"].tolist() == [0, 2, 3, 3, 5, 3, 6, 7]
  text = encode(MONKEY.text, whole_words, tag=77)
  assert text["source_id"].tolist() == arrays["source_id"].tolist()


def test_random_trees_depend_only_on_words_and_seed(whole_words):
  def heads(parse, **options):
    arrays = encode(parse, whole_words, tree=TREES["random"](), **options)
    return tuple(arrays["source_head"].tolist())

  other = conllu.Parse(
    MONKEY.text, MONKEY.start_W, MONKEY.end_W, (0, 0, 0, 0, 0), ("dep",) * 5
  )
  one = heads(MONKEY, target="a", line=3)
  assert heads(other, line=9, tag=77) == one
  texts = ("a a a a", "a a a The", "The a a a")
  assert len({heads(conllu.unparsed(t)) for t in texts}) > 1
  seeds = [heads(MONKEY, seed=seed) for seed in range(8)]
  assert seeds[0] == one and len({*seeds}) > 5


@pytest.mark.parametrize("kind", ["linear", "random", "wrong_parents"])
def test_control_trees_on_both_sides(whole_words, kind):
  target, trees = conllu.unparsed("a banana The monkey"), TREES[kind]()
  direct = encode(MONKEY, whole_words, target, tree=trees)
  replaced = encode(MONKEY, whole_words, target)
  for side in schema.SIDES:
    replaced = control_trees.replace_trees(replaced, side, tree=trees, seed=0)
  for name, array in replaced.items():
    assert_array_equal(array, direct[name])
  # Those of a side depend on its own ids only.
  single = encode(MONKEY, whole_words, target.text, tree=trees)
  for name in single:
    assert_array_equal(single[name], direct[name])
  swapped = encode(target, whole_words, tree=trees)
  assert swapped["source_head"].tolist() == direct["target_head"].tolist()


def parsed(text: str, *words: str) -> conllu.Parse:
  """The parse of a text with words "id form head relation upos"."""
  rows = []
  for word in words:
    id_, form, head, relation, upos = word.split(" ")
    rows.append("\t".join([id_, form, "_", upos, *"__", head, relation, *"__"]))
  blocks = conllu.blocks_of_text("\n".join(rows) + "\n\n", "x")
  return conllu.attach(blocks, text)


LONG = " ".join(map(str, range(300)))
DIFFICULT = [
  MONKEY,
  conllu.unparsed(""),
  conllu.unparsed("\u200b"),
  conllu.unparsed("no tree\there\r"),
  # One word in the text, two in the tree; an empty node.
  parsed(
    "zum Bahnhof",
    "1-2 zum _ _ _",
    "1 zu 3 case ADP",
    "2 dem 3 det DET",
    "2.1 gehen _ _ VERB",
    "3 Bahnhof 0 root NOUN",
  ),
  # Words that outnumber subwords: "自然" is one.
  parsed(
    "自然自然",
    "1 自 2 compound NOUN",
    "2 然 0 root NOUN",
    "3 自 2 dep NOUN",
    "4 然 3 dep NOUN",
  ),
  # Combining marks, and a character that normalization spells out.
  parsed("e\u0301te\u0301 ½", "1 e\u0301te\u0301 0 root NOUN", "2 ½ 1 dep NUM"),
  # Zero-width characters: in a word, and as a complete word.
  parsed(
    "\u200bfoo \u200d bar",
    "1 foo 0 root X",
    "2 \u200d 1 dep X",
    "3 bar 2 obj X",
  ),
  # Two roots, blanks beyond ASCII, a label that training lacks.
  parsed(" a\u3000b\xa0", "1 a 0 root X", "2 b 0 strange Y"),
  # A chain beyond FAR, and a comb.
  parsed(LONG, *(f"{i + 1} {i} {i} dep NUM" for i in range(300))),
  parsed(LONG, *(f"{i + 1} {i} {i and 1} dep NUM" for i in range(300))),
]


@pytest.fixture(scope="module", params=["bpe", "char", "word"])
def small(request, tmp_path_factory) -> Vocabulary:
  """A vocabulary of the sentences above except for some of their words."""
  path = tmp_path_factory.mktemp("vocabulary") / "small.model"
  texts = [parse.text for parse in DIFFICULT[:-2] if "½" not in parse.text]
  options = Subwords(size=60, type=request.param)
  return train([*texts, "自然"] * 3, path, options)


@pytest.mark.parametrize("kind", ["parsed", "random"])
def test_sentences_together_equal_each_alone(small, kind):
  relations = {label: i for i, label in enumerate(["det", "dep", "root"], 1)}
  options = {
    "vocabularies": (small, small),
    "relations": dict.fromkeys(schema.SIDES, relations),
    "annotations": ("upos",),
    "tree": TREES[kind](),
    "seed": 7,
  }
  texts = [parse.text for parse in DIFFICULT]
  for sources, targets in (
    (DIFFICULT, texts),
    (DIFFICULT[::-1], DIFFICULT),
    (DIFFICULT[1:2] * 2, None),
  ):
    lines = range(5, 5 + len(sources))
    rows = example.encode_all(sources, targets, lines=lines, **options)
    pairs = zip(rows.examples(), sources, targets or [None] * 2, strict=True)
    for line, (together, source, target) in zip(lines, pairs, strict=True):
      alone = control_trees.encode(source, target, line=line, **options)
      assert together.keys() == alone.keys()
      for name, array in alone.items():
        assert together[name].dtype == schema.FEATURES[name].dtype
        assert_array_equal(together[name], array, name)


def check_definitions(parse: conllu.Parse, model: Vocabulary) -> None:
  """Compares words, middles and distances of an example with definitions."""
  arrays = encode(parse, model)
  pieces = model.encode(parse.text)
  word_S = arrays["source_word"]
  word_at = {
    position: word
    for word, span in enumerate(zip(parse.start_W, parse.end_W))
    for position in range(*span)
  }
  assert len(word_S) == len(pieces.id) + 1 and word_S[-1] == NO_WORD
  for word, begin, end in zip(word_S, pieces.begin, pieces.end):
    seen = [p for p in range(begin, end) if align.is_visible(parse.text[p])]
    assert word == word_at[seen[0]] if seen else word >= 0
  assert (np.diff(word_S[:-1]) >= 0).all()  # words follow the text
  middles = tree_references.parent_middles(word_S, parse.head_W)
  assert arrays["source_parent_mid"].tolist() == middles
  distance_WW = arrays["source_tree_distance"].reshape([len(parse.head_W)] * 2)
  assert_array_equal(distance_WW, tree_references.distances(parse.head_W))
  roots = [w for w, head in enumerate(parse.head_W) if w == head]
  assert (distance_WW == OTHER_TREE).any() == (len(roots) > 1)


def test_difficult_sentences_follow_the_definitions(small):
  for parse in DIFFICULT:
    if parse.head_W:
      check_definitions(parse, small)


def test_gold_japanese_sentences_follow_the_definitions(shared_data, tmp_path):
  """Gold trees, through a vocabulary of other sentences."""
  trees = conllu.read(shared_data / "ud" / "ja_pud.conllu.gz")
  parses = [conllu.attach([block], block.text) for block in trees]
  texts = [parse.text for parse in parses[::4]]
  options = Subwords(1300, "unigram", character_coverage=0.9995)
  model = train(texts, tmp_path / "v.model", options)
  for parse in parses[1::8]:
    check_definitions(parse, model)
