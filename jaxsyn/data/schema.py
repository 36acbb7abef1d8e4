"""Features of an example: their names, types, axes and reserved ids.

`jaxsyn.data.sentence.example` makes the arrays, the TFRecords of a dataset directory
store them, and `jaxsyn.data.loader.collate` pads them with the fill values given here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data.annotations import ANNOTATIONS, label_ids
from jaxsyn.data.sentence.align import NO_WORD as NO_WORD
from jaxsyn.errors import InputError

SIDES = ("source", "target")

# Subword ids of the special symbols, the same in every vocabulary.
PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")

NO_RELATION = 0  # EOS, padding, and relations that the training data lacks
FAR = 254  # tree distance of 254 edges or more
OTHER_TREE = 255  # no path: the two words are in different trees
EIGENVECTORS = 16  # eigenvectors of a tree's Laplacian in a batch

Manifest = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Feature:
  """Specification of a feature: type, axes and padding value of its array.

  Attributes:
    dtype: NumPy type.
    axes: Letters of the axes (`jaxsyn.arrays.shapes`): S and T source and target
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
    _INT32, "S", NO_WORD, "space-separated word of each subword; EOS: -1"
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
    "word alignment: space-separated source and target word of each link",
  ),
}

# Raw sentences, for display and for sampling subwords.
TEXTS: Mapping[str, str] = {
  f"{side}_text": f"the {side} sentence, as it is in the raw file"
  for side in SIDES
}

# Features of every dataset.
ALWAYS = ("line", "source_id", "target_id")
# The parents of a side's words, and the features that are computed from them.
OF_HEADS = ("head", "parent_mid", "tree_distance")
# Features of a side with trees, in addition to its annotations.
_OF_TREES = ("word", *OF_HEADS, "relation", "parsed", "word_end")


@dataclasses.dataclass(frozen=True)
class OptionalFeatures:
  """Features that a dataset has only if it is prepared from optional input.

  Attributes:
    features: Names of the features of both sides.
    input: Name of the input for messages; "SIDE" is the side.
    remedy: Options to set for data without it; "SIDE" is the side.
  """

  features: tuple[str, ...]
  input: str
  remedy: str


# Optional features by the manifest field that lists the sides that have them. The
# field is a list of sides, a dict by side, or True for both sides. Trees and
# annotations, which most systems read, are not in this table; see `features`.
OPTIONAL: Mapping[str, OptionalFeatures] = {
  "brackets": OptionalFeatures(
    ("source_brackets",),
    "constituency trees of the SIDE",
    "config.prepare.parse.SIDE_brackets",
  ),
  "alternatives": OptionalFeatures(
    (
      "source_other_head",
      "source_other_relation",
      "target_other_head",
      "target_other_relation",
    ),
    "alternative parses of the SIDE",
    "config.prepare.parse.SIDE_alternatives",
  ),
  "alignments": OptionalFeatures(
    ("source_unit", "target_unit", "links"),
    "word alignments",
    "config.prepare.alignments",
  ),
}
LINKED = OPTIONAL["alignments"].features
# Alternative parses, from which the loader samples; not in batches.
ALTERNATIVES = OPTIONAL["alternatives"].features
# Bytes of the texts, which records store as text; the loader samples subwords
# from the bytes.
UTF8: Mapping[str, str] = {f"{side}_utf8": f"{side}_text" for side in SIDES}
# Features that are only read to sample subwords; not in batches.
SPELLING = ("source_utf8", "source_word_end", "target_utf8", "target_word_end")
# Features of batches that are not stored, but computed from the feature named here.
COMPUTED_FROM: Mapping[str, str] = {
  f"{side}_eigenvectors": f"{side}_head" for side in SIDES
}


def stored_names(names: Iterable[str]) -> tuple[str, ...]:
  """Returns the given feature names except those computed for each batch."""
  return tuple(name for name in names if name not in COMPUTED_FROM)


def side_of(name: str) -> str:
  """Returns the side of a feature: its name up to the first underscore."""
  return name.partition("_")[0]


def features(manifest: Manifest) -> dict[str, Feature]:
  """Returns the specifications of a dataset's stored features, by name.

  Args:
    manifest: Manifest with "sides", which lists the sides with trees, and maybe
      "annotations" and the fields of OPTIONAL.
  """
  names = {*ALWAYS}
  for side in manifest["sides"]:
    fields = (*_OF_TREES, *manifest.get("annotations", ()))
    names |= {f"{side}_{field}" for field in fields}
  for field, optional in OPTIONAL.items():
    sides = manifest.get(field, ())
    names |= {
      name
      for name in optional.features
      if sides is True or (sides and side_of(name) in sides)
    }
  return {name: one for name, one in FEATURES.items() if name in names}


def features_for(
  manifest: Manifest, required: Collection[str]
) -> tuple[str, ...]:
  """Returns the names of all features needed in the batches of a model.

  Args:
    manifest: Manifest of the dataset.
    required: Features that modifiers and losses read, e.g. "source_parent_mid".

  Raises:
    InputError: The dataset lacks a feature. The message has the remedy.
  """
  if unknown := sorted(set(required) - set(FEATURES)):
    raise ValueError(f"no feature {unknown[0]!r}; see jaxsyn.data.schema.")
  stored = features(manifest)
  lacking = {
    name for name in required if COMPUTED_FROM.get(name, name) not in stored
  }
  if lacking:
    raise InputError(_remedy_for(manifest, sorted(lacking)))
  names = ["source_id", "target_id"]
  of_trees = sorted(set(required) - set(LINKED))
  for name in of_trees:
    side = side_of(name)
    names += [f"{side}_word", f"{side}_parsed"]
    names += [COMPUTED_FROM.get(name, name), name]
  if len(of_trees) < len(set(required)):
    names += LINKED
  return tuple(dict.fromkeys(names))


def _remedy_for(manifest: Manifest, lacking: Sequence[str]) -> str:
  """Returns an error message, with a remedy, for features a dataset lacks."""
  read = f"this system reads {', '.join(lacking)}, but the prepared data has no"
  sides = {side_of(name) for name in lacking if name not in LINKED}
  if sides - set(manifest["sides"]):
    listed = ",".join(
      f"'{side}'" for side in sorted({*manifest["sides"], *sides})
    )
    return (
      f"{read} trees of the {' and the '.join(sorted(sides))} side. Prepare it "
      f'again with --config.prepare.parse.sides="({listed},)".'
    )
  for optional in OPTIONAL.values():
    for name in lacking:
      if name in optional.features:
        side = side_of(name)
        return (
          f"{read} {optional.input.replace('SIDE', side)}. Prepare it again with "
          f"{optional.remedy.replace('SIDE', side)}."
        )
  fields = {name.partition("_")[2] for name in lacking}
  named = tuple(sorted(fields.union(manifest.get("annotations", ()))))
  return (
    f"{read} such annotation. Prepare it again with "
    f'--config.prepare.parse.annotations="{named}".'
  )


def labels_of(manifest: Manifest, name: str) -> Sequence[str]:
  """Returns the labels of a feature in the order of their ids.

  The first label has id 1. A feature with numeric values has no labels: ().

  Args:
    manifest: Manifest of the dataset.
    name: Name of the feature.
  """
  side, _, field = name.partition("_")
  if field in ("relation", "other_relation"):
    return manifest["relations"].get(side, ())
  if field not in ANNOTATIONS:
    return ()
  if ANNOTATIONS[field].open:
    return manifest.get("labels", {}).get(side, {}).get(field, ())
  return ANNOTATIONS[field].labels


def label_counts(manifest: Manifest, side: str) -> tuple[tuple[str, int], ...]:
  """Returns (annotation, number of labels) pairs for one side of a dataset.

  The number is 0 for annotations with open label sets that the dataset lacks.
  """
  return tuple(
    (name, len(labels_of(manifest, f"{side}_{name}"))) for name in ANNOTATIONS
  )


def relation_ids(labels: Iterable[str]) -> dict[str, int]:
  """Returns the ids of relation labels, from 1 in sorted order, as a dict."""
  return label_ids(sorted(set(labels)))


def encoding(manifest: Manifest) -> dict[str, Any]:
  """Returns a dataset's annotations and label ids as `encode_all` arguments.

  Returns: dictionary with "relations", side -> relation label -> id;
    "annotations"; and "labels", side -> open annotation -> label -> id.
  """
  relations, labels = manifest["relations"], manifest.get("labels", {})
  return {
    "relations": {
      side: relation_ids(names) for side, names in relations.items()
    },
    "annotations": tuple(manifest.get("annotations", ())),
    "labels": {
      side: {name: label_ids(values) for name, values in of_side.items()}
      for side, of_side in labels.items()
    },
  }
