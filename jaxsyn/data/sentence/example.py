"""Encodes parsed sentence pairs as the arrays of `jaxsyn.data.schema`.

Preparation and translation call the same `encode_all`, so they agree. Other functions
change examples: their trees, tags that mark a task, and the subwords of the source.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
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
# Side -> open annotation -> label -> id.
Labels = Mapping[str, Mapping[str, Mapping[str, int]]]
# Values of all sentences; number of values of each sentence.
Ragged = tuple[Any, np.ndarray]


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
  """Encodes sentence pairs: subword ids, words, and features of the trees.

  A line that could not be parsed has `*_parsed` 0 and words that are their own roots.

  Args:
    sources: Sentences of at least one pair: all parses, or all texts if the dataset
      has no trees on this side.
    targets: Parses or texts; None if there are only sources to translate.
    lines: Line number of each pair in the raw files, from 1.
    vocabularies: Source and target vocabulary; a joint one twice.
    relations: Ids of the relation labels by side, from `schema.relation_ids`;
      required for sides with parses.
    annotations: Names of annotations (`jaxsyn.data.annotations`) for sides with
      parses.
    labels: Label ids of the open annotations.
    tree: Type of the trees; see `replace_trees`.
    seed: Seed of the run, for random trees.
  """
  flat, sizes = {}, {}
  flat["line"] = np.fromiter(lines, FEATURES["line"].dtype, len(sources))
  sizes["line"] = np.ones(len(sources), np.int64)
  for side, sentences, vocabulary in zip(
    SIDES, (sources, targets), vocabularies
  ):
    parses = [item for item in sentences or () if not isinstance(item, str)]
    if parses:
      side_labels = (labels or {}).get(side, {})
      arrays = _encode_parses(
        parses,
        vocabulary,
        relations[side],
        annotations={name: side_labels.get(name) for name in annotations},
        tree=tree,
        seed=seed,
      )
    elif sentences:
      texts = [item for item in sentences if isinstance(item, str)]
      arrays = {"id": _with_eos(map(vocabulary.ids, texts))}
    else:
      continue
    for name, (values, size) in arrays.items():
      feature = f"{side}_{name}"
      flat[feature] = np.asarray(values, FEATURES[feature].dtype)
      sizes[feature] = size
  start = {name: np.append(0, np.cumsum(size)) for name, size in sizes.items()}
  return Rows(flat, start)


def _encode_parses(
  parses: Sequence[Parse],
  vocabulary: Vocabulary,
  relations: Mapping[str, int],
  *,
  annotations: Mapping[str, Mapping[str, int] | None],
  tree: TreeControl,
  seed: int,
) -> dict[str, Ragged]:
  """Encodes parsed sentences to arrays, keyed by feature name without the side."""
  encoded = [vocabulary.encode(parse.text) for parse in parses]
  id_S, subwords = _with_eos(pieces.id for pieces in encoded)
  words = np.array([len(parse.head_W) for parse in parses])
  word: list[int] = []
  for parse, (_, begin, end) in zip(parses, encoded):
    word += words_of_pieces(parse.text, begin, end, parse.start_W, parse.end_W)
    word.append(NO_WORD)
  word_S = np.array(word, np.int32)
  heads = itertools.chain.from_iterable(parse.head_W for parse in parses)
  head_W = np.array([*heads], np.int32)
  if tree.replaces:
    head_W = tree.heads(head_W, words, _sentence_seeds(seed, id_S, subwords))
  names = itertools.chain.from_iterable(parse.relation_W for parse in parses)
  relation_W = [relations.get(name, NO_RELATION) for name in names]
  ends = itertools.chain.from_iterable(parse.end_W for parse in parses)
  middle_S = parent_mid(word_S, head_W, pieces=subwords, words=words)
  features: dict[str, Ragged] = {
    "id": (id_S, subwords),
    "word": (word_S, subwords),
    "head": (head_W, words),
    "relation": (relation_W, words),
    "parent_mid": (middle_S, subwords),
    "tree_distance": (tree_distances(head_W, words), words * words),
    "parsed": ([parse.parsed for parse in parses], np.ones_like(words)),
    "word_end": ([*ends], words),
  }
  for name, ids in annotations.items():
    annotation = ANNOTATIONS[name]()
    values = [annotation.array(parse, ids) for parse in parses]
    features[name] = (np.concatenate(values), words)
  return features


def _with_eos(sentences: Iterable[list[int]]) -> Ragged:
  """Concatenates sentences, each with EOS; returns subword ids and lengths."""
  ids: list[int] = []
  ends = [0]
  for sentence in sentences:
    ids += sentence
    ids.append(EOS)
    ends.append(len(ids))
  return np.array(ids, np.int32), np.diff(ends)


def _sentence_seeds(
  seed: int, id_S: np.ndarray, subwords: np.ndarray
) -> list[int]:
  """Returns a seed for each sentence, which determines its random tree.

  It depends on the run's seed and the subword ids only, so a sentence has the same
  random tree in training and translation of a run, and another tree in runs of other
  seeds, unless the CRC-32 of sentences collide.
  """
  data = id_S.astype("<i4").tobytes()
  ends = (4 * np.cumsum(subwords)).tolist()
  return [
    seed << 32 | zlib.crc32(data[begin:end])
    for begin, end in itertools.pairwise([0, *ends])
  ]


def replace_trees(
  rows: Rows, side: str, *, tree: TreeControl, seed: int
) -> Rows:
  """Returns examples with one side's trees replaced by another tree type.

  Args:
    rows: Examples with ids, words and heads of this side.
    side: "source" or "target".
    tree: Type of the new trees.
    seed: Seed of the run.
  """
  head, subwords = f"{side}_head", rows.sizes(f"{side}_id")
  seeds = _sentence_seeds(seed, rows.flat[f"{side}_id"], subwords)
  head_W = tree.heads(rows.flat[head], rows.sizes(head), seeds)
  return replace_heads(rows, side, head_W, rows.flat)


def replace_heads(
  rows: Rows, side: str, head_W: np.ndarray, derived: Collection[str]
) -> Rows:
  """Returns examples with the parents of words replaced on one side.

  All other features, such as relations, are shared with the given examples.

  Args:
    rows: Examples with the heads of this side, and its words if they are needed.
    side: "source" or "target".
    head_W: Parent of each word in its sentence, for all sentences.
    derived: Names of the features of OF_HEADS that are computed from the parents.
  """
  head, middle, distance = (f"{side}_{name}" for name in OF_HEADS)
  word, words = f"{side}_word", rows.sizes(head)
  flat, start = {**rows.flat, head: head_W}, {**rows.start}
  if middle in derived:
    flat[middle] = parent_mid(
      flat[word], head_W, pieces=rows.sizes(word), words=words
    )
    start[middle] = start[word]
  if distance in derived:
    flat[distance] = tree_distances(head_W, words)
    start[distance] = np.append(0, np.cumsum(words * words))
  return Rows(flat, start)


def insert_tag(
  example: Mapping[str, np.ndarray], tag: int
) -> dict[str, np.ndarray]:
  """Returns one example with a tag before and after its source subwords."""
  return insert_tags(Rows.of([example], example), tag).examples()[0]


def insert_tags(rows: Rows, tag: int, *, at_end: bool = True) -> Rows:
  """Returns examples with a tag before, and by default after, each source.

  The second tag is before EOS. A tag belongs to no word and is its own parent,
  as EOS is. An empty sentence (only EOS) does not change, so that its translation
  stays empty. Any feature may be missing.
  """
  flat, start = {**rows.flat}, {**rows.start}
  for name in rows.flat:
    if FEATURES[name].axes != "S":
      continue
    subwords = rows.sizes(name)
    is_tagged = subwords > 1
    new_subwords = subwords + (1 + at_end) * is_tagged
    start[name] = np.append(0, np.cumsum(new_subwords))
    is_old_S = np.ones(start[name][-1], bool)
    is_old_S[start[name][:-1][is_tagged]] = False
    if at_end:
      is_old_S[start[name][1:][is_tagged] - 2] = False
    fill = tag if name == "source_id" else FEATURES[name].fill
    flat[name] = np.full(len(is_old_S), fill, FEATURES[name].dtype)
    flat[name][is_old_S] = rows.flat[name]
    if name == "source_parent_mid":
      first_S = np.repeat(start[name][:-1], new_subwords)
      position_S = np.arange(len(is_old_S)) - first_S
      flat[name][is_old_S] += np.repeat(is_tagged, subwords)
      for no_word_S in (~is_old_S, start[name][1:] - 1):  # tags and EOS
        flat[name][no_word_S] = position_S[no_word_S]
  return Rows(flat, start)


def rearrange_source(
  example: Mapping[str, np.ndarray], place_S: np.ndarray, id_S: np.ndarray
) -> dict[str, np.ndarray]:
  """Returns a copy of an example with a new sequence of source subwords.

  Subwords may be moved, removed or added.

  Words, parents and relations of the sentence do not change.

  Args:
    example: The example.
    place_S: Old position of each subword; -1 for a new subword, which belongs to no
      word.
    id_S: Ids of the new subwords.
  """
  is_old_S = place_S >= 0
  index_S = np.where(is_old_S, place_S, 0)
  values = {"id": np.where(is_old_S, example["source_id"][index_S], id_S)}
  for name in ("unit", "word"):
    if f"source_{name}" in example:
      old_S = example[f"source_{name}"][index_S]
      values[name] = np.where(is_old_S, old_S, NO_WORD)
  if "word" in values:
    values["parent_mid"] = parent_mid(values["word"], example["source_head"])
  new = dict(example)
  for name, value in values.items():
    feature = f"source_{name}"
    new[feature] = np.asarray(value, FEATURES[feature].dtype)
  return new
