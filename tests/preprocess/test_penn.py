"""Penn brackets: read strictly, tied to the characters of the raw text."""

import gzip

import numpy as np
import pytest
from raw_corpora import corpus, lines_of
from toy_folders import data_of, opened

from jaxsyn.data.sentence import align, linearise
from jaxsyn.data.sentence.linearise import CLOSE, opening
from jaxsyn.data.sentence.vocabulary import Subwords, Vocabulary, train
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, penn

DUCK = "(ROOT (S (NP (DT A) (NN duck)) (VP (VBZ waits)) (. .)))"


def found_in(text, tree):
  return align.spans(map(penn.spellings, tree.words), text)


def test_a_tree_by_hand():
  tree = penn.parse(DUCK, "x:1")
  assert tree.words == ("A", "duck", "waits", ".")
  assert tree.signs == (
    *("ROOT", "S", "NP", 0, 1, CLOSE),
    *("VP", 2, CLOSE, 3, CLOSE, CLOSE),
  )
  assert found_in("A duck waits.", tree) == ([0, 2, 7, 12], [1, 6, 12, 13])


def test_removes_traces_and_empty_constituents():
  tree = penn.parse(
    "( (S (NP-SBJ (-NONE- *)) (VP (VB Go) (NP (-NONE- *T*-1)))))", "x:1"
  )
  assert tree.signs == ("", "S", "VP", 0, CLOSE, CLOSE, CLOSE)
  assert tree.words == ("Go",)


def test_keeps_words_without_parts_of_speech():
  tree = penn.parse("(S (NP a duck) waits)", "x:1")
  assert tree.signs == ("S", "NP", 0, 1, CLOSE, 2, CLOSE)


@pytest.mark.parametrize("line", ["()", "(())", "( )", "(NN duck)"])
def test_a_line_without_constituents_has_no_tree(line):
  assert penn.parse(line, "x:1") is None


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("(S (NP (DT A)", r"x:7: 2 brackets are not closed"),
    ("S (NP))", r"x:7: 'S' is outside"),
    (")", r"x:7: a bracket is closed that was not opened"),
    ("(S (X a) b))", r"x:7: '\)' comes after the end"),
    (f"{DUCK} {DUCK}", r"x:7: '\(' comes after the end .* one tree per line"),
  ],
)
def test_rejects_malformed_trees(line, message):
  with pytest.raises(InputError, match=message):
    penn.parse(line, "x:7")


@pytest.mark.parametrize(
  ("words", "text"),
  [
    ("-LRB- a -RRB- -LSB- -RSB- -LCB- -RCB-", "(a) [] {}"),
    ("`` a '' b", '"a" b'),
    ("`` a ''", "“a”"),
    ("`` a ''", "``a''"),
    ("` a '", "‘a’"),
    (r"1\/2 \*", "1/2 *"),
    ("-LRB- --", "-LRB- –"),
    ("do n't", "don't"),
    ("a b", "\u200ba \u00a0b"),
  ],
)
def test_penn_spellings_are_found_in_the_text(words, text):
  leaves = " ".join(f"(X {word})" for word in words.split())
  tree = penn.parse(f"(S {leaves})", "x:1")
  start_W, end_W = found_in(text, tree)
  assert len(start_W) == len(words.split())
  assert (np.array(start_W) < np.array(end_W)).all()
  assert (np.array(start_W[1:]) >= np.array(end_W[:-1])).all()
  saved = "".join(text[a:b] for a, b in zip(start_W, end_W))
  assert saved == text.replace(" ", "").strip("\u200b").replace("\u00a0", "")


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("A cat waits.", r"word 'duck' is not in the text .* 'cat waits\.'"),
    ("A duck", r"word 'waits' is not in the text where it reads ''"),
    ("A duck waits. Now", r"no word covers the text from 'Now'"),
  ],
)
def test_another_text_is_a_mismatch(text, message):
  with pytest.raises(align.MismatchError, match=message):
    found_in(text, penn.parse(DUCK, "x:1"))


def test_subwords_are_inside_their_constituents(tmp_path):
  """Characters as subwords: ▁ A ▁ d u c k ▁ w a i t s ."""
  vocabulary = train(
    ["A duck waits."], tmp_path / "v", Subwords(size=99, type="char")
  )
  tree = penn.parse(DUCK, "x:1")
  ids = {"NP": 1, "ROOT": 2, "S": 3, "VP": 4}
  result = penn.bracketing(tree, "A duck waits.", vocabulary, ids=ids)
  NP, ROOT, S, VP = map(opening, ids.values())
  assert result.dtype == np.int32
  assert result.tolist() == [
    *(ROOT, S, NP, *range(7), CLOSE),
    *(VP, *range(7, 13), CLOSE, 13, CLOSE, CLOSE),
  ]


def bracketed(line):
  """The first word is a noun phrase, the others are a verb phrase."""
  if not line:
    return "()"
  first, *rest = line.split()
  words = " ".join(f"(X {word})" for word in rest)
  return f"(S (NP (N {first})) (VP {words}))"


def with_brackets(tmp_path, change=lambda trees: trees):
  """A corpus with constituency trees of its training split."""
  config = corpus(tmp_path)
  trees = change([bracketed(line) for line in lines_of(config, "train.en")])
  path = tmp_path / "train.mrg.gz"
  path.write_bytes(gzip.compress("".join(f"{t}\n" for t in trees).encode()))
  config.prepare.parse.source_brackets["train"] = str(path)
  return config


def test_prepared_folders_have_constituency_trees(tmp_path, capsys):
  def change(trees):
    trees[3] = "(())"
    trees[6] = "(S (NP (N cat)) (VP (V purrs)))"
    return trees

  config = with_brackets(tmp_path, change)
  folder = build.run(config)
  output = capsys.readouterr().out
  assert "train.mrg.gz:7: left out: the word 'cat' is not in" in output
  assert "brackets   used 58, other words 1, no tree 1" in output
  manifest = manifests.read(folder)
  assert manifest["brackets"] == {"source": ["NP", "S", "VP"]}
  counts = {"used": 58, "other words": 1, "no tree": 1}
  assert manifest["splits"]["train"]["optional"] == {"brackets": counts}
  assert manifest["splits"]["test"]["optional"] == {}
  vocabulary = Vocabulary(folder / "vocabulary.model")
  names = linearise.symbols(manifest["brackets"]["source"])
  for i, one in enumerate(Dataset(folder).split("train")):
    signs = one["source_brackets"]
    if i in (3, 6):
      assert signs.tolist() == []
      continue
    # Put together again from subwords it is the tree that was given.
    text = lines_of(config, "train.en")[i]
    first, _, rest = text.partition(" ")
    shown = [names[k] for k in linearise.skeleton(signs, heads=False)]
    assert " ".join(shown) == "(S (NP ) (VP ) )"
    inside = [run for run in np.split(signs, np.flatnonzero(signs < 0))]
    runs = [run[run >= 0] for run in inside]
    words = [
      vocabulary.decode(one["source_id"][run]) for run in runs if len(run)
    ]
    assert words == [first, rest]
  for one in Dataset(folder).split("test"):
    assert one["source_brackets"].tolist() == []


def test_works_without_dependency_trees(tmp_path):
  """The second task needs the one kind only."""
  config = with_brackets(tmp_path)
  config.prepare.parse.sides = ()
  folder = build.run(config)
  data = data_of(task="source", brackets="constituency")
  both = opened(Dataset(folder).split("train"), (), data=data)
  first, _ = both.auxiliary
  assert len(both) - first == 60
