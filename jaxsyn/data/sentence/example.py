"""A parsed sentence pair to the arrays of `jaxsyn.data.schema`.

The one place where they are made: `preprocess` stores what `encode` returns,
`jaxsyn.translate` batches it at once, so training and translation agree.
`retree` makes the examples of the control systems out of stored ones, `tagged`
those of a system that is told by a tag what to do.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from jaxsyn.data.schema import EOS, FEATURES, NO_RELATION, NO_WORD, SIDES
from jaxsyn.data.sentence import tree as trees
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.vocabulary import Vocabulary

TREES = ("parsed", "linear", "random")


def encode(
  source: Parse | str,
  target: Parse | str | None,
  vocabularies: tuple[Vocabulary, Vocabulary],
  relations: Mapping[str, Mapping[str, int]],
  line: int = 0,
  tree: str = "parsed",
  seed: int = 0,
  tag: int | None = None,
) -> dict[str, np.ndarray]:
  """The arrays of one sentence pair.

  Args:
    source: the parse of the source; or only its text, where the data set has
      no trees on this side.
    target: the same for the target; None when there is nothing but a source
      to translate.
    vocabularies: of the source and the target; twice the same if joint.
    relations: side ("source", "target") -> relation label -> id, from
      `schema.relation_ids`; needed for sides that are parses.
    line: number of the pair in the raw files, from 1.
    tree: "parsed", or the control "linear" or "random": see `retree`.
    seed: of the run, for random trees.
    tag: symbol to put around the source, see `tagged`; None: none.

  Returns:
    the features of `schema.features`, by name. A line that could not be parsed
    has `*_parsed` 0, and words that are each their own root.
  """
  example = {"line": np.asarray(line, FEATURES["line"].dtype)}
  for side, sentence, vocabulary in zip(SIDES, (source, target), vocabularies):
    if sentence is None:
      continue
    text = sentence if isinstance(sentence, str) else sentence.text
    pieces = vocabulary.encode(text)
    facts = {"id": [*pieces.id, EOS]}
    if not isinstance(sentence, str):
      ids = relations[side]
      word = words_of_pieces(
        text, pieces.begin, pieces.end, sentence.start_W, sentence.end_W
      )
      facts |= {
        "word": [*word, NO_WORD],
        "relation": [ids.get(r, NO_RELATION) for r in sentence.relation_W],
        "parsed": sentence.parsed,
      }
    for name, value in facts.items():
      name = f"{side}_{name}"
      example[name] = np.asarray(value, FEATURES[name].dtype)
    if not isinstance(sentence, str):
      head_W = (
        sentence.head_W
        if tree == "parsed"
        else _control(example[f"{side}_id"], len(sentence.head_W), tree, seed)
      )
      example |= _tree_facts(side, example[f"{side}_word"], head_W)
  return example if tag is None else tagged(example, tag)


def retree(
  example: Mapping[str, np.ndarray], side: str, kind: str, seed: int
) -> dict[str, np.ndarray]:
  """The same example with a control tree on one side.

  Args:
    example: of `encode`, with a tree on this side.
    side: "source" or "target".
    kind: "linear": each word hangs on the word before it; "random": a random
      tree of the same words, drawn from the seed and the subword ids alone, so
      that a sentence has the same one in training and in translation of a
      run, and another in runs of other seeds; "parsed": nothing changes.
    seed: of the run.

  Returns:
    a new dict; heads, parent middles and tree distances differ, relations and
    all else are the same arrays.
  """
  if kind == "parsed":
    return dict(example)
  words = len(example[f"{side}_head"])
  head_W = _control(example[f"{side}_id"], words, kind, seed)
  return {**example, **_tree_facts(side, example[f"{side}_word"], head_W)}


def tagged(
  example: Mapping[str, np.ndarray], tag: int
) -> dict[str, np.ndarray]:
  """The same example with a tag before the source and another before its EOS.

  A tag belongs to no word and is its own parent, as EOS is. An empty sentence
  (EOS alone) stays as it is, so that its translation stays empty.

  Args:
    example: of `encode`.
    tag: id of the tag.
  """
  id_S = example["source_id"]
  if len(id_S) == 1:
    return dict(example)
  place_S = [-1, *range(len(id_S) - 1), -1, len(id_S) - 1]
  own_S = np.full(len(place_S), tag)
  return rearranged(example, np.array(place_S), own_S)


def rearranged(
  example: Mapping[str, np.ndarray], place_S: np.ndarray, id_S: np.ndarray
) -> dict[str, np.ndarray]:
  """The same example with other subwords, or the same elsewhere, as source.

  Args:
    example: of `encode`.
    place_S: position in the example of what now stands here; -1: something
      new, which belongs to no word.
    id_S: ids of the new ones.

  Returns:
    a new dict; words, heads and relations of the sentence are as they were.
  """
  new = {**example}
  old_S = place_S >= 0
  was_S = np.where(old_S, place_S, 0)
  ids = np.where(old_S, example["source_id"][was_S], id_S)
  new["source_id"] = ids.astype(example["source_id"].dtype)
  if "source_word" in example:
    word_S = np.where(old_S, example["source_word"][was_S], NO_WORD)
    word_S = word_S.astype(example["source_word"].dtype)
    new["source_word"] = word_S
    new |= _middles("source", word_S, example["source_head"])
  return new


def _control(id_S: np.ndarray, words: int, kind: str, seed: int) -> np.ndarray:
  """Heads of a control tree."""
  if kind == "linear":
    return trees.linear(words)
  if kind == "random":
    # Side by side, so that no two (seed, sentence) share their numbers.
    sentence = zlib.crc32(id_S.astype("<i4").tobytes())
    return trees.random(words, seed << 32 | sentence)
  raise ValueError(f"tree must be one of {TREES}, got {kind!r}.")


def _tree_facts(side, word_S, head_W) -> dict[str, np.ndarray]:
  """What follows from the heads."""
  facts = {
    "head": head_W,
    "tree_distance": trees.tree_distance(head_W).reshape(-1),
  }
  return _middles(side, word_S, head_W) | {
    f"{side}_{name}": np.asarray(value, FEATURES[f"{side}_{name}"].dtype)
    for name, value in facts.items()
  }


def _middles(side, word_S, head_W) -> dict[str, np.ndarray]:
  """What follows from the heads and from where their subwords stand."""
  name = f"{side}_parent_mid"
  middle_S = trees.parent_mid(word_S, head_W)
  return {name: np.asarray(middle_S, FEATURES[name].dtype)}
