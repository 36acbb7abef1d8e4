"""Parsed sentence pairs to the arrays of `jaxsyn.data.schema`.

The one place where they are made: `preprocess` stores what `encode_all` returns
of hundreds of pairs, `jaxsyn.translate` batches what `encode` returns of one, which
is the same code, so training and translation agree.
`retree` makes the examples of the control systems out of stored ones, `tagged`
those of a system that is told by a tag what to do.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.schema import (
  EOS,
  FEATURES,
  NO_RELATION,
  NO_WORD,
  OF_HEADS,
  SIDES,
)
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.controls import Parsed, TreeControl
from jaxsyn.data.sentence.tree import parent_mid, tree_distances
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store.rows import Rows

PARSED = Parsed()
# side -> open annotation -> label -> id.
Labels = Mapping[str, Mapping[str, Mapping[str, int]]]


def encode(
  source: Parse | str,
  target: Parse | str | None,
  *,
  vocabularies: tuple[Vocabulary, Vocabulary],
  relations: Mapping[str, Mapping[str, int]],
  annotations: Sequence[str] = (),
  labels: Labels | None = None,
  line: int = 0,
  tree: TreeControl = PARSED,
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
    labels: of the open ones among them.
    line: number of the pair in the raw files, from 1.
    tree: which tree is to be given: see `retree`.
    seed: of the run, for random trees.
    tag: symbol to put around the source, see `tagged`; None: none.

  Returns:
    the features of `schema.features`, by name. A line that could not be parsed
    has `*_parsed` 0, and words that are each their own root.
  """
  rows = encode_all(
    [source],
    None if target is None else [target],
    lines=[line],
    vocabularies=vocabularies,
    relations=relations,
    annotations=annotations,
    labels=labels,
    tree=tree,
    seed=seed,
  )
  example = rows.examples()[0]
  return example if tag is None else tagged(example, tag)


def encode_all(
  sources: Sequence[Parse | str],
  targets: Sequence[Parse | str] | None,
  *,
  lines: Iterable[int],
  vocabularies: tuple[Vocabulary, Vocabulary],
  relations: Mapping[str, Mapping[str, int]],
  annotations: Sequence[str] = (),
  labels: Labels | None = None,
  tree: TreeControl = PARSED,
  seed: int = 0,
) -> Rows:
  """The arrays of some hundreds of pairs: `encode`, a quarter of the time.

  Args:
    sources, targets: at least one; on a side all are parses, or all texts.
    lines: number of each pair.
    vocabularies, relations, annotations, labels, tree, seed: see `encode`.
  """
  flat, sizes = {}, {}
  flat["line"] = np.fromiter(lines, FEATURES["line"].dtype, len(sources))
  sizes["line"] = np.ones(len(sources), np.int64)
  for side, sentences, vocabulary in zip(
    SIDES, (sources, targets), vocabularies
  ):
    parses = [one for one in sentences or () if not isinstance(one, str)]
    if parses:
      made = _encode_trees(
        parses,
        vocabulary,
        relations[side],
        annotations={
          n: (labels or {}).get(side, {}).get(n) for n in annotations
        },
        tree=tree,
        seed=seed,
      )
    elif sentences:
      texts = [one for one in sentences if isinstance(one, str)]
      made = {"id": _ids(map(vocabulary.ids, texts))}
    else:
      continue
    for name, (values, size) in made.items():
      feature = f"{side}_{name}"
      flat[feature] = np.asarray(values, FEATURES[feature].dtype)
      sizes[feature] = size
  start = {name: np.append(0, np.cumsum(size)) for name, size in sizes.items()}
  return Rows(flat, start)


Ragged = tuple[Any, np.ndarray]  # values of all sentences; how many each has


def _encode_trees(
  parses: Sequence[Parse],
  vocabulary: Vocabulary,
  relations: Mapping[str, int],
  *,
  annotations: Mapping[str, Mapping[str, int] | None],
  tree: TreeControl,
  seed: int,
) -> dict[str, Ragged]:
  """The features of a side with trees, by name without the side."""
  encoded = [vocabulary.encode(parse.text) for parse in parses]
  id_S, pieces = _ids(one.id for one in encoded)
  words = np.array([len(parse.head_W) for parse in parses])
  word: list[int] = []
  for parse, (_, begin, end) in zip(parses, encoded):
    word += words_of_pieces(parse.text, begin, end, parse.start_W, parse.end_W)
    word.append(NO_WORD)
  word_S = np.array(word, np.int32)
  heads = itertools.chain.from_iterable(parse.head_W for parse in parses)
  head_W = np.array([*heads], np.int32)
  if tree.replaces:
    head_W = tree.heads(head_W, words, _numbers(seed, id_S, pieces))
  relation_W = [
    relations.get(relation, NO_RELATION)
    for parse in parses
    for relation in parse.relation_W
  ]
  middle_S = parent_mid(word_S, head_W, pieces=pieces, words=words)
  one = np.ones_like(words)
  return {
    "id": (id_S, pieces),
    "word": (word_S, pieces),
    "head": (head_W, words),
    "relation": (relation_W, words),
    "parent_mid": (middle_S, pieces),
    "tree_distance": (tree_distances(head_W, words), words * words),
    "parsed": ([parse.parsed for parse in parses], one),
    "word_end": ([end for parse in parses for end in parse.end_W], words),
    **{
      name: (
        np.concatenate([one().array(parse, ids) for parse in parses]),
        words,
      )
      for name, ids in annotations.items()
      for one in (ANNOTATIONS[name],)
    },
  }


def _ids(sentences: Iterable[list[int]]) -> Ragged:
  """The subwords of sentences, each with EOS."""
  ids: list[int] = []
  ends = [0]
  for sentence in sentences:
    ids += sentence
    ids.append(EOS)
    ends.append(len(ids))
  return np.array(ids, np.int32), np.diff(ends)


def _numbers(seed: int, id_S: np.ndarray, subwords: np.ndarray) -> list[int]:
  """Returns a number for each sentence in the runs of a seed, for random trees.

  It depends on the seed and the subword ids alone, so a sentence has the same tree in
  training and translation of a run, and another one in runs of other seeds. No two
  pairs of seed and sentence share a number, unless the CRC-32 of sentences collide.

  Args:
    seed: Seed of the run.
    id_S: Subword ids of all sentences.
    subwords: Subwords of each sentence.
  """
  data = id_S.astype("<i4").tobytes()
  ends = (4 * np.cumsum(subwords)).tolist()
  return [
    seed << 32 | zlib.crc32(data[a:b])
    for a, b in itertools.pairwise([0, *ends])
  ]


def retree(rows: Rows, side: str, *, tree: TreeControl, seed: int) -> Rows:
  """Replaces the trees of one side, and what follows from them.

  Args:
    rows: Examples with ids, words and heads of this side.
    side: "source" or "target".
    tree: Kind of the new trees.
    seed: Seed of the run.

  Returns:
    Examples in which heads, and parent middles and tree distances if there are any,
    differ. Relations and all other arrays are shared.
  """
  head, middle, distance = (f"{side}_{name}" for name in OF_HEADS)
  subwords, words = rows.sizes(f"{side}_id"), rows.sizes(head)
  numbers = _numbers(seed, rows.flat[f"{side}_id"], subwords)
  head_W = tree.heads(rows.flat[head], words, numbers)
  flat = {**rows.flat, head: head_W}
  if middle in flat:
    flat[middle] = parent_mid(
      flat[f"{side}_word"], head_W, pieces=subwords, words=words
    )
  if distance in flat:
    flat[distance] = tree_distances(head_W, words)
  return Rows(flat, rows.start)


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
  tag_S = np.full(len(place_S), tag)
  return rearranged(example, np.array(place_S), tag_S)


def tagged_rows(rows: Rows, tag: int) -> Rows:
  """Applies `tagged` to many examples; they may lack any feature."""
  flat, start = {**rows.flat}, {**rows.start}
  for name in rows.flat:
    if FEATURES[name].axes != "S":
      continue
    subwords = rows.sizes(name)
    is_tagged = subwords > 1
    grown = subwords + 2 * is_tagged
    start[name] = np.append(0, np.cumsum(grown))
    is_old_S = np.ones(start[name][-1], bool)
    is_old_S[start[name][:-1][is_tagged]] = False
    is_old_S[start[name][1:][is_tagged] - 2] = False
    fill = tag if name == "source_id" else FEATURES[name].fill
    flat[name] = np.full(len(is_old_S), fill, FEATURES[name].dtype)
    flat[name][is_old_S] = rows.flat[name]
    if name == "source_parent_mid":
      position_S = np.arange(len(is_old_S)) - np.repeat(start[name][:-1], grown)
      flat[name][is_old_S] += np.repeat(is_tagged, subwords)
      for own_S in (~is_old_S, start[name][1:] - 1):  # the tags, and EOS
        flat[name][own_S] = position_S[own_S]
  return Rows(flat, start)


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
  if "source_unit" in example:
    unit_S = np.where(old_S, example["source_unit"][was_S], NO_WORD)
    new |= _features("source", {"unit": unit_S})
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
