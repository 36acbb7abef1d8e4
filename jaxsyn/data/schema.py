"""What an example is: the names, types and axes of its arrays.

`jaxsyn.data.sentence.example` makes the arrays, the TFRecords of a prepared folder
hold them, `jaxsyn.data.loader.columns` pads them with the fill values given here.
Everything else that must agree between preparing, training and translating
stands here too: the reserved ids, and the numbers that stand for "none".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.sentence.align import NO_WORD as NO_WORD

if TYPE_CHECKING:
  import tensorflow_datasets as tfds

SIDES = ("source", "target")

# Subword ids of the special symbols, the same in every vocabulary.
PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")

# Of open annotations: side -> name -> labels in the order of their ids.
Labels = Mapping[str, Mapping[str, Sequence[str]]]

NO_RELATION = 0  # EOS, pads, and a label that training never saw
FAR = 254  # a tree distance of 254 edges or more
OTHER_TREE = 255  # no path: the two words stand in different trees
EIGENVECTORS = 16  # of a tree's Laplacian, that a batch has


@dataclasses.dataclass(frozen=True)
class Feature:
  """One array of an example.

  Attributes:
    dtype: NumPy type.
    axes: one letter an axis (`jaxsyn.shapes`): S and T subwords of the source
      and target, EOS included; W words of the side; C brackets and subwords
      of a constituency tree; L ends of the links of an alignment; P words of
      the parses beside the best, one after the other; X bytes; E eigenvectors.
      "" is a single number. "WW" is kept flat, row by row.
    fill: what pads hold.
    meaning: one line for the data set's page.
  """

  dtype: np.dtype
  axes: str
  fill: int | float
  meaning: str


def _table() -> dict[str, Feature]:
  table = {
    "line": Feature(
      np.dtype(np.int64), "", 0, "line number in the raw file, from 1"
    )
  }
  for side, pieces in zip(SIDES, "ST"):
    for name, dtype, axes, fill, meaning in (
      ("id", np.int32, pieces, PAD, "subword ids, EOS last"),
      ("word", np.int32, pieces, NO_WORD, "word of each subword; EOS: -1"),
      ("head", np.int32, "W", 0, "parent word; a root is its own"),
      ("relation", np.int32, "W", NO_RELATION, "dependency relation id"),
      (
        "parent_mid",
        np.float32,
        pieces,
        0.0,
        "middle, in subwords, of the parent word's subwords",
      ),
      (
        "tree_distance",
        np.uint8,
        "WW",
        OTHER_TREE,
        "edges between two words; 254: that or more; 255: other tree",
      ),
      ("parsed", np.uint8, "", 0, "1: has a parser's tree; 0: no tree"),
    ):
      table[f"{side}_{name}"] = Feature(np.dtype(dtype), axes, fill, meaning)
    for name, annotation in ANNOTATIONS.items():
      table[f"{side}_{name}"] = Feature(
        annotation.dtype, "W", 0, annotation.meaning
      )
    for name, fill, meaning in (
      ("other_head", 0, "the heads of more parses, one after the other"),
      ("other_relation", NO_RELATION, "the relations of the same"),
    ):
      table[f"{side}_{name}"] = Feature(np.dtype(np.int32), "P", fill, meaning)
    table[f"{side}_unit"] = Feature(
      np.dtype(np.int32),
      pieces,
      NO_WORD,
      "word between blanks of each subword; EOS: -1",
    )
    table[f"{side}_word_end"] = Feature(
      np.dtype(np.int32), "W", 0, "character offset after each word"
    )
    table[f"{side}_utf8"] = Feature(
      np.dtype(np.uint8), "X", 0, "sentence, in UTF-8"
    )
    table[f"{side}_eigenvectors"] = Feature(
      np.dtype(np.float32),
      "WE",
      0,
      "of the Laplacian of the tree, word by word",
    )
  table["source_brackets"] = Feature(
    np.dtype(np.int32),
    "C",
    0,
    "constituency tree: subword positions; -1: ); -2 - k: ( of label k, from 1",
  )
  table["links"] = Feature(
    np.dtype(np.int32),
    "L",
    0,
    "word alignment: a source and a target word between blanks, of each link",
  )
  return table


# Every feature by name, in the order in which records hold them.
FEATURES: Mapping[str, Feature] = _table()

# The raw sentences, for people and for sampling subwords.
TEXTS: Mapping[str, str] = {
  f"{side}_text": f"the {side} sentence, as it is in the raw file"
  for side in SIDES
}

# Those that every data set has; the others need the side to be parsed, the
# annotation to be asked for, or constituency trees or alignments to be given.
ALWAYS = ("line", "source_id", "target_id")
GIVEN = ("source_brackets",)
LINKED = ("source_unit", "target_unit", "links")
# What follows from the heads of a side, and those themselves.
OF_HEADS = ("head", "parent_mid", "tree_distance")
# For the loader alone, which draws among them; in no batch.
ALTERNATIVES = tuple(
  f"{side}_other_{name}" for side in SIDES for name in ("head", "relation")
)
# Bytes of the texts. Records have them as text; the loader samples subwords of them.
UTF8: Mapping[str, str] = {f"{side}_utf8": f"{side}_text" for side in SIDES}
# Read to sample subwords alone; in no batch.
SPELLING = tuple(
  f"{side}_{name}" for side in SIDES for name in ("utf8", "word_end")
)
# Neither: a batch has it, made of the feature that is named here.
MADE: Mapping[str, str] = {
  f"{side}_eigenvectors": f"{side}_head" for side in SIDES
}


def origins(names: Iterable[str]) -> tuple[str, ...]:
  """Features of a batch without those that it makes itself of the others."""
  return tuple(name for name in names if name not in MADE)


def features(
  sides: Sequence[str],
  *,
  brackets: bool = False,
  alignments: bool = False,
  alternatives: Collection[str] = (),
  annotations: Collection[str] = (),
) -> dict[str, Feature]:
  """The features of a data set, by name.

  Args:
    sides: the sides that have trees, of "source" and "target".
    brackets: constituency trees of the source were given.
    alignments: alignments of words were given.
    alternatives: sides of which more parses were given.
    annotations: of those sides, names of `jaxsyn.data.annotations`.

  Raises:
    ValueError: an unknown side.
  """
  unknown = set(sides) - set(SIDES)
  if unknown:
    raise ValueError(f"sides must be of {SIDES}, got {sorted(unknown)}.")

  def there(name: str) -> bool:
    side, _, field = name.partition("_")
    if name in GIVEN:
      return brackets
    if name in LINKED:
      return alignments
    if name in ALTERNATIVES:
      return side in alternatives
    if name in UTF8 or name in MADE:
      return False
    is_wanted = field not in ANNOTATIONS or field in annotations
    return name in ALWAYS or (side in sides and is_wanted)

  return {name: about for name, about in FEATURES.items() if there(name)}


def tfds_features(
  sides: Sequence[str],
  *,
  relations: Mapping[str, Sequence[str]],
  brackets: bool = False,
  alignments: bool = False,
  alternatives: Collection[str] = (),
  annotations: Collection[str] = (),
  labels: Labels | None = None,
) -> tfds.features.FeaturesDict:
  """`features` and `TEXTS` for TensorFlow Datasets (imported here: it is slow).

  Tree distances are stored as raw bytes: one byte a pair of words, and read
  back without a copy. Relations, and annotations with labels, are `ClassLabel`,
  which knows their names.

  Args:
    sides, brackets, alignments, alternatives, annotations: see `features`.
    relations: side -> labels of the relations in the order of their ids, from 1.
    labels: of open annotations, in the same order.
  """
  import tensorflow_datasets as tfds

  def names_of(name: str) -> Sequence[str] | None:
    side, _, field = name.partition("_")
    if field in ("relation", "other_relation"):
      return relations[side]
    if field not in ANNOTATIONS:
      return None
    return labels_of_annotation(field, side, labels) or None

  stored = features(
    sides,
    brackets=brackets,
    alignments=alignments,
    alternatives=alternatives,
    annotations=annotations,
  )
  types: dict[str, Any] = {}
  for name, feature in stored.items():
    named = names_of(name)
    if named is not None:
      classes = tfds.features.ClassLabel(names=class_names(named))
      types[name] = tfds.features.Sequence(classes, doc=feature.meaning)
      continue
    types[name] = tfds.features.Tensor(
      shape=(None,) if feature.axes else (),
      dtype=feature.dtype.type,
      encoding="bytes" if feature.axes == "WW" else "none",
      doc=feature.meaning,
    )
  texts = {name: tfds.features.Text(doc=doc) for name, doc in TEXTS.items()}
  return tfds.features.FeaturesDict(texts | types)


def labels_of_annotation(
  name: str, side: str, labels: Labels | None
) -> Sequence[str]:
  """The labels of an annotation in the order of their ids, from 1; (): numbers.

  Args:
    name: of `jaxsyn.data.annotations`.
    side: "source" or "target".
    labels: of the open ones, as a manifest has them.
  """
  if ANNOTATIONS[name].open:
    return (labels or {}).get(side, {}).get(name, ())
  return ANNOTATIONS[name].labels


def class_names(labels: Iterable[str]) -> list[str]:
  """Names of ids from 0 for TFDS, which keeps them as the lines of a file.

  Id 0 has a name too, so all are visible, without blanks at their ends, and
  differ: what is not so gets "_" appended.

  >>> class_names(["det", "nsubj", " "])
  ['<none>', 'det', 'nsubj', '_']
  """
  names: dict[str, None] = {}
  for label in ("<none>", *labels):
    name = " ".join(label.split()) or "_"
    while name in names:
      name += "_"
    names[name] = None
  return [*names]


def relation_ids(labels: Iterable[str]) -> dict[str, int]:
  """Ids of one side's relation labels: 1, 2, ... in sorted order."""
  return {label: i for i, label in enumerate(sorted(set(labels)), start=1)}
