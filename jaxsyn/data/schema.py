"""Features of an example: their names, types, axes and reserved ids.

`jaxsyn.data.sentence.example` makes the arrays, the TFRecords of a dataset directory
store them, and `jaxsyn.data.loader.collate` pads them with the fill values given here.
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

# Labels of open annotations: side -> name -> labels in the order of their ids.
Labels = Mapping[str, Mapping[str, Sequence[str]]]

NO_RELATION = 0  # EOS, padding, and relations that the training data lacks
FAR = 254  # tree distance of 254 edges or more
OTHER_TREE = 255  # no path: the two words are in different trees
EIGENVECTORS = 16  # eigenvectors of a tree's Laplacian in a batch


@dataclasses.dataclass(frozen=True)
class Feature:
  """Feature of an example: type, axes and padding value of one array.

  Attributes:
    dtype: NumPy type.
    axes: Letters of the axes (`jaxsyn.shapes`): S and T source and target
      subwords, EOS included; W words of the side; C brackets and subwords of a
      constituency tree; L ends of the links of a word alignment; P words of the
      alternative parses, one after the other; X bytes; E eigenvectors. "" is a
      single number. "WW" is stored flat, row by row.
    fill: Value of padding.
    meaning: One-line description for the documentation of the dataset.
  """

  dtype: np.dtype
  axes: str
  fill: int | float
  meaning: str


_INT32, _UINT8 = np.dtype(np.int32), np.dtype(np.uint8)
_FLOAT32 = np.dtype(np.float32)

# Features of the source, named without the side; those of the target are the same.
_OF_SIDE = {
  "id": Feature(_INT32, "S", PAD, "subword ids, EOS last"),
  "word": Feature(_INT32, "S", NO_WORD, "word of each subword; EOS: -1"),
  "head": Feature(_INT32, "W", 0, "parent word; a root is its own"),
  "relation": Feature(_INT32, "W", NO_RELATION, "dependency relation id"),
  "parent_mid": Feature(
    _FLOAT32, "S", 0.0, "middle, in subwords, of the parent word's subwords"
  ),
  "tree_distance": Feature(
    _UINT8,
    "WW",
    OTHER_TREE,
    "edges between two words; 254: that or more; 255: other tree",
  ),
  "parsed": Feature(_UINT8, "", 0, "1: has a parser's tree; 0: no tree"),
  **{
    name: Feature(annotation.dtype, "W", 0, annotation.meaning)
    for name, annotation in ANNOTATIONS.items()
  },
  "other_head": Feature(
    _INT32, "P", 0, "the heads of more parses, one after the other"
  ),
  "other_relation": Feature(
    _INT32, "P", NO_RELATION, "the relations of the same"
  ),
  "unit": Feature(
    _INT32, "S", NO_WORD, "word between blanks of each subword; EOS: -1"
  ),
  "word_end": Feature(_INT32, "W", 0, "character offset after each word"),
  "utf8": Feature(_UINT8, "X", 0, "sentence, in UTF-8"),
  "eigenvectors": Feature(
    _FLOAT32, "WE", 0, "of the Laplacian of the tree, word by word"
  ),
}

# Every feature by name, in the order in which records store them.
FEATURES: Mapping[str, Feature] = {
  "line": Feature(
    np.dtype(np.int64), "", 0, "line number in the raw file, from 1"
  ),
  **{f"source_{name}": feature for name, feature in _OF_SIDE.items()},
  **{
    f"target_{name}": dataclasses.replace(
      feature, axes=feature.axes.replace("S", "T")
    )
    for name, feature in _OF_SIDE.items()
  },
  "source_brackets": Feature(
    _INT32,
    "C",
    0,
    "constituency tree: subword positions; -1: ); -2 - k: ( of label k, from 1",
  ),
  "links": Feature(
    _INT32,
    "L",
    0,
    "word alignment: a source and a target word between blanks, of each link",
  ),
}

# Raw sentences, for display and for sampling subwords.
TEXTS: Mapping[str, str] = {
  f"{side}_text": f"the {side} sentence, as it is in the raw file"
  for side in SIDES
}

# Features of every dataset. Other features require that the side is parsed, that
# the annotation is requested, or that constituency trees or alignments are given.
ALWAYS = ("line", "source_id", "target_id")
GIVEN = ("source_brackets",)
LINKED = ("source_unit", "target_unit", "links")
# The parents of a side's words, and the features that are computed from them.
OF_HEADS = ("head", "parent_mid", "tree_distance")
# Alternative parses, from which the loader samples; not in batches.
ALTERNATIVES = tuple(
  f"{side}_other_{name}" for side in SIDES for name in ("head", "relation")
)
# Bytes of the texts, which records store as text; the loader samples subwords of them.
UTF8: Mapping[str, str] = {f"{side}_utf8": f"{side}_text" for side in SIDES}
# Features that are only read to sample subwords; not in batches.
SPELLING = tuple(
  f"{side}_{name}" for side in SIDES for name in ("utf8", "word_end")
)
# Features of batches that are not stored, but computed from the feature named here.
MADE: Mapping[str, str] = {
  f"{side}_eigenvectors": f"{side}_head" for side in SIDES
}


def origins(names: Iterable[str]) -> tuple[str, ...]:
  """Returns the given feature names except those computed for each batch."""
  return tuple(name for name in names if name not in MADE)


def features(
  sides: Sequence[str],
  *,
  brackets: bool = False,
  alignments: bool = False,
  alternatives: Collection[str] = (),
  annotations: Collection[str] = (),
) -> dict[str, Feature]:
  """Returns the specifications of stored features, by name.

  Args:
    sides: Sides with trees: "source", "target", or both.
    brackets: Whether constituency trees of the source are given.
    alignments: Whether word alignments are given.
    alternatives: Sides with alternative parses.
    annotations: Names of annotations (`jaxsyn.data.annotations`) that the sides
      with trees have.

  Raises:
    ValueError: A side is unknown.
  """
  unknown = set(sides) - set(SIDES)
  if unknown:
    raise ValueError(f"sides must be of {SIDES}, got {sorted(unknown)}.")

  names = {*ALWAYS}
  for side in sides:
    names |= {
      f"{side}_{field}"
      for field in _OF_SIDE
      if field not in ANNOTATIONS or field in annotations
    }
  names -= {*LINKED, *ALTERNATIVES, *UTF8, *MADE}
  names.update(GIVEN if brackets else ())
  names.update(LINKED if alignments else ())
  for side in alternatives:
    names |= {name for name in ALTERNATIVES if name.startswith(side)}
  return {name: one for name, one in FEATURES.items() if name in names}


def tfds_features(
  sides: Sequence[str],
  *,
  relations: Mapping[str, Sequence[str]],
  labels: Labels | None = None,
  **optional: Any,
) -> tfds.features.FeaturesDict:
  """Returns the stored features and texts as a TFDS `FeaturesDict`.

  Tree distances are stored as raw bytes, one for each pair of words, and are read
  without a copy. Relations, and annotations with labels, are `ClassLabel`, which
  includes the names.

  Args:
    sides: Sides with trees.
    relations: Labels of the relations of each side in the order of their ids,
      from 1.
    labels: Labels of open annotations in the order of their ids, from 1.
    optional: Optional features; see `features`.
  """
  import tensorflow_datasets as tfds  # slow to import

  types: dict[str, Any] = {}
  for name, feature in features(sides, **optional).items():
    side, _, field = name.partition("_")
    named: Sequence[str] | None = None
    if field in ("relation", "other_relation"):
      named = relations[side]
    elif field in ANNOTATIONS:
      named = labels_of_annotation(field, side, labels) or None
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
  """Returns the labels of an annotation in the order of their ids.

  The first label has id 1. An annotation whose values are numbers has none: ().

  Args:
    name: Name in `jaxsyn.data.annotations`.
    side: "source" or "target".
    labels: Labels of open annotations, from a manifest.
  """
  if ANNOTATIONS[name].open:
    return (labels or {}).get(side, {}).get(name, ())
  return ANNOTATIONS[name].labels


def class_names(labels: Iterable[str]) -> list[str]:
  """Returns unique TFDS class names: one for id 0, then one for each label.

  TFDS stores one name per line. Names must be visible, distinct, and without blanks
  at their ends: "_" is appended where necessary.

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
  """Returns a dict from relation label to id: 1, 2, ... in sorted order."""
  return {label: i for i, label in enumerate(sorted(set(labels)), start=1)}
