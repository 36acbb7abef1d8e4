"""A parsed sentence pair to the arrays of `jaxsyn.data.schema`.

The one place where they are made: `preprocess` stores what `encode` returns,
`jaxsyn.translate` batches it at once, so training and translation agree.
`retree` makes the examples of the control systems out of stored ones, `tagged`
those of a system that is told by a tag what to do.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.schema import EOS, FEATURES, NO_RELATION, NO_WORD, SIDES
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.controls import Parsed, Tree
from jaxsyn.data.sentence.tree import parent_mid, tree_distance
from jaxsyn.data.sentence.vocabulary import Vocabulary

PARSED = Parsed()


def encode(
  source: Parse | str,
  target: Parse | str | None,
  *,
  vocabularies: tuple[Vocabulary, Vocabulary],
  relations: Mapping[str, Mapping[str, int]],
  annotations: Sequence[str] = (),
  line: int = 0,
  tree: Tree = PARSED,
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
    annotations: names of `jaxsyn.data.annotations`, for sides that are parses.
    line: number of the pair in the raw files, from 1.
    tree: which tree is to be given: see `retree`.
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
    values: dict[str, Any] = {"id": [*pieces.id, EOS]}
    if not isinstance(sentence, str):
      ids = relations[side]
      word = words_of_pieces(
        text, pieces.begin, pieces.end, sentence.start_W, sentence.end_W
      )
      values |= {
        "word": [*word, NO_WORD],
        "relation": [ids.get(r, NO_RELATION) for r in sentence.relation_W],
        "parsed": sentence.parsed,
        "head": sentence.head_W,
        **{name: ANNOTATIONS[name]().array(sentence) for name in annotations},
      }
    example |= _features(side, values)
    if not isinstance(sentence, str):
      example = retree(example, side, tree=tree, seed=seed)
  return example if tag is None else tagged(example, tag)


def retree(
  example: Mapping[str, np.ndarray], side: str, *, tree: Tree, seed: int
) -> dict[str, np.ndarray]:
  """The same example with what follows from the heads of a tree on one side.

  Args:
    example: of `encode`, or with heads alone, on this side.
    side: "source" or "target".
    tree: of `jaxsyn.data.sentence.controls`.
    seed: of the run.

  Returns:
    a new dict; heads, parent middles and tree distances differ, relations and
    all else are the same arrays.
  """
  # From the seed and the subword ids alone, so that a sentence has the same tree
  # in training and in translation of a run, and another in runs of other seeds;
  # side by side, so that no two (seed, sentence) share their number.
  sentence = zlib.crc32(example[f"{side}_id"].astype("<i4").tobytes())
  head_W = tree.heads(example[f"{side}_head"], seed << 32 | sentence)
  return {
    **example,
    **_features(
      side,
      {
        "head": head_W,
        "parent_mid": parent_mid(example[f"{side}_word"], head_W),
        "tree_distance": tree_distance(head_W).reshape(-1),
      },
    ),
  }


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
  # The tag, the sentence, the tag again, EOS; -1 is what was not there before.
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
  new |= _features("source", {"id": ids})
  if "source_word" in example:
    word_S = np.where(old_S, example["source_word"][was_S], NO_WORD)
    middle_S = parent_mid(word_S, example["source_head"])
    new |= _features("source", {"word": word_S, "parent_mid": middle_S})
  return new


def _features(side: str, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Values of one side as its features, by name."""
  return {
    f"{side}_{name}": np.asarray(value, FEATURES[f"{side}_{name}"].dtype)
    for name, value in values.items()
  }
