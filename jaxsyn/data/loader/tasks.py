"""Auxiliary tasks: additional training examples made from the sentence pairs.

config.data.second selects a task from TASKS, and the source trees that it
writes as brackets. "parse" trains translation and parsing; tags around the
source select the task. "source" translates sources with and without brackets.
The examples of both tasks are shuffled together. Validation and translation
use only the task of translation (`tag`), so they need no trees.

Source: Currey & Heafield 2019, "Incorporating Source Syntax into
Transformer-Based Neural Machine Translation", as summarized and reproduced by
Bugliarello & Okazaki 2020 (arXiv:1909.03149), section 5, "+C&H".
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from jaxsyn.data.schema import EOS, FEATURES, NO_WORD
from jaxsyn.data.sentence import linearise
from jaxsyn.data.sentence.example import insert_tag, rearrange_source
from jaxsyn.data.store.rows import Example
from jaxsyn.errors import InputError
from jaxsyn.options import Choice, Registry, choice, option
from jaxsyn.options.bounds import Amount

MAX_LENGTH = (
  250  # subwords of a side of an example, with brackets, EOS and tags
)
Brackets = Literal["dependency", "constituency"]
# Options that prepare such trees.
_PREPARED_BY = {
  "dependency": "--config.prepare.parse.sides=\"('source',)\"",
  "constituency": "config.prepare.parse.source_brackets",
}


@dataclasses.dataclass(frozen=True)
class AuxiliaryTaskSpec(Choice):
  """Specification of a task that is trained in addition to translation."""

  any: ClassVar[bool] = True
  tags: ClassVar[bool] = False  # whether tags around the source select the task

  def make(
    self,
    example: Example,
    bracketing: np.ndarray,
    brackets: Brackets,
    sizes: Mapping[str, int],
  ) -> Example:
    """Makes the auxiliary task's example from a sentence pair and its tree.

    Args:
      example: Example of translation, without tags.
      bracketing: Source tree as brackets, not empty, with indices of words
        ("dependency") or of subwords ("constituency").
      brackets: Kind of the source tree.
      sizes: Vocabulary size of each side; ids of symbols follow the vocabulary.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class TranslationTask(AuxiliaryTaskSpec):
  """No auxiliary task: the model only translates."""

  any: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class ParsingTask(AuxiliaryTaskSpec):
  """Parsing task, which predicts the source tree as brackets without words."""

  tags: ClassVar[bool] = True

  def make(
    self,
    example: Example,
    bracketing: np.ndarray,
    brackets: Brackets,
    sizes: Mapping[str, int],
  ) -> Example:
    heads = brackets == "dependency"
    symbols = linearise.skeleton(bracketing, heads=heads)
    id_T = np.append(sizes["target"] + symbols, EOS)
    no_word = np.full(len(id_T), NO_WORD)
    # Brackets have no words and no tree.
    values: dict[str, Any] = {
      "id": id_T,
      "word": no_word,
      "unit": no_word,
      "parent_mid": np.arange(len(id_T)),
      "parsed": 0,
    }
    new = insert_tag(example, sizes["source"] + linearise.PARSE)
    for feature in new:
      side, _, name = feature.partition("_")
      if side == "target":
        new[feature] = np.asarray(values.get(name, []), FEATURES[feature].dtype)
    return new


@dataclasses.dataclass(frozen=True)
class SourceTask(AuxiliaryTaskSpec):
  """Translation task whose sources contain brackets that encode the trees."""

  def make(
    self,
    example: Example,
    bracketing: np.ndarray,
    brackets: Brackets,
    sizes: Mapping[str, int],
  ) -> Example:
    if brackets == "dependency":
      bracketing = linearise.of_subwords(bracketing, example["source_word"])
    place_S = np.append(bracketing, len(example["source_id"]) - 1)
    id_S = sizes["source"] + linearise.numbers(place_S)
    return rearrange_source(example, place_S, id_S)


TASKS: Registry[AuxiliaryTaskSpec] = Registry(
  "auxiliary task",
  {"none": TranslationTask, "parse": ParsingTask, "source": SourceTask},
)


@dataclasses.dataclass(frozen=True)
class AuxiliaryTask:
  """Options of the auxiliary task that is trained along with translation."""

  task: AuxiliaryTaskSpec = choice(
    TASKS,
    "none",
    'Additional task for each training pair: "parse", generate the linearized '
    "tree of the source (a tag before and after each source sentence selects "
    'translation or parsing); "source", translate the linearized source tree '
    'into the same target, without tags; "none", no additional task.',
  )
  brackets: Brackets = option(
    "dependency",
    'Type of trees in the auxiliary task: "dependency" or "constituency". The '
    'papers use "constituency", which needs '
    "config.prepare.parse.source_brackets.",
  )
  weight: Amount = option(
    1.0,
    "Loss weight of auxiliary-task examples; translation examples have weight "
    "1. It scales the loss sum, but not the item count by which the sum is "
    "divided: with 0.3, the gradient of a batch that contains only such "
    "examples is 0.3 times as large.",
  )


def _labels(
  auxiliary: AuxiliaryTask, manifest: Mapping[str, Any]
) -> list[str] | None:
  """Returns the relation or constituent labels of source trees, or None.

  The label at index i has the id i + 1. None: the dataset has no trees.
  """
  is_dependency = auxiliary.brackets == "dependency"
  by_side = manifest.get("relations" if is_dependency else "brackets", {})
  return by_side.get("source")


def check(
  auxiliary: AuxiliaryTask,
  manifest: Mapping[str, Any],
  directory: str | os.PathLike[str],
) -> None:
  """Raises InputError if a dataset lacks the trees for the auxiliary task."""
  if auxiliary.task.any and _labels(auxiliary, manifest) is None:
    name, kind = TASKS.name_of(auxiliary.task), auxiliary.brackets
    raise InputError(
      f"config.data.second.task={name!r} needs {kind} trees of the source, and "
      f"{os.fspath(directory)} has none. Prepare it again with "
      f"{_PREPARED_BY[kind]}."
    )


def symbols(
  auxiliary: AuxiliaryTask, manifest: Mapping[str, Any]
) -> tuple[str, ...]:
  """Returns the symbols that an auxiliary task adds to both vocabularies."""
  if not auxiliary.task.any:
    return ()
  return linearise.symbols(_labels(auxiliary, manifest) or ())


def tag(auxiliary: AuxiliaryTask, manifest: Mapping[str, Any]) -> int | None:
  """Returns the id of the source symbol that requests translation, or None."""
  if not auxiliary.task.tags:
    return None
  return manifest["vocabulary"]["source"]["size"] + linearise.TRANSLATE


def make_examples(
  translations: Iterable[Example],
  auxiliary: AuxiliaryTask,
  manifest: Mapping[str, Any],
  counts: collections.Counter[str],
) -> Iterator[Example]:
  """Yields examples of the auxiliary task, made from translation examples.

  Args:
    translations: Examples of translation, without tags.
    auxiliary: Section config.data.second.
    manifest: Manifest of the dataset directory.
    counts: Counter that is updated: numbers of "translations", of examples of
      the task ("second"), and of pairs that have "no tree" or are "too long".
  """
  sizes = {side: one["size"] for side, one in manifest["vocabulary"].items()}
  for example in translations:
    counts["translations"] += 1
    bracketing = _bracketing(example, auxiliary.brackets)
    if not (bracketing < 0).any():
      counts["no tree"] += 1
      continue
    new = auxiliary.task.make(example, bracketing, auxiliary.brackets, sizes)
    if max(len(new["source_id"]), len(new["target_id"])) > MAX_LENGTH:
      counts["too long"] += 1
      continue
    counts["second"] += 1
    yield new


def _bracketing(example: Example, brackets: Brackets) -> np.ndarray:
  """Returns the source tree as brackets; empty if the example has no tree."""
  if brackets == "constituency":
    return example["source_brackets"]
  if not example["source_parsed"]:
    return np.zeros(0, np.int32)
  return linearise.linearise(example["source_head"], example["source_relation"])


def summary(counts: collections.Counter[str]) -> str:
  """Returns a log message with the numbers of added and omitted examples."""
  return (
    f"auxiliary task: {counts['second']:,} examples in addition to "
    f"{counts['translations']:,} translations; omitted: "
    f"{counts['no tree']:,} without a tree, {counts['too long']:,} too long"
  )
