"""A second task beside translation: more examples out of the same pairs.

config.data.second says which. "parse" teaches to translate and to parse, and
tags around the source say which of the two is wanted; "source" teaches to
translate plain sources and bracketed ones. Examples of both tasks are columns
of one data set, shuffled together. Validation and translation know the first
task alone (`tag`), so they need no trees. A task is an entry of TASKS; what its
trees are made from, one of BRACKETS.

Before this file: `jaxsyn.data.sentence.linearise`. After it: `examples`.

Source: Currey & Heafield 2019, "Incorporating Source Syntax into
Transformer-Based Neural Machine Translation", as summed up and re-done by
Bugliarello & Okazaki 2020 (arXiv:1909.03149), section 5, "+C&H".
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from jaxsyn.data.schema import EOS, FEATURES, NO_WORD
from jaxsyn.data.sentence import linearise
from jaxsyn.data.sentence.example import rearranged, tagged
from jaxsyn.data.store.rows import Example
from jaxsyn.errors import InputError
from jaxsyn.options import Choice, Registry, choice, option
from jaxsyn.options.bounds import Amount, Count


@dataclasses.dataclass(frozen=True)
class Brackets(Choice):
  """What brackets show: a kind of trees of the source, as bracketings."""

  dependencies: ClassVar[bool]  # of words, and of the trees of config.data.tree
  lacking: ClassVar[str]  # what to prepare where the data has none

  def labels(self, manifest: Mapping[str, Any]) -> list[str] | None:
    """Labels of the brackets, from 1; None: the data has no such trees."""
    raise NotImplementedError

  def bracketing(self, example: Example) -> np.ndarray:
    """The tree between whose brackets words or subwords stand, maybe empty."""
    raise NotImplementedError

  def placed(self, bracketing: np.ndarray, example: Example) -> np.ndarray:
    """That bracketing, between subwords."""
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Dependency(Brackets):
  """Dependency trees, those of config.data.tree."""

  dependencies: ClassVar[bool] = True
  lacking: ClassVar[str] = "--config.prepare.parse.sides=\"('source',)\""

  def labels(self, manifest: Mapping[str, Any]) -> list[str] | None:
    return manifest["relations"].get("source")

  def bracketing(self, example: Example) -> np.ndarray:
    if not example["source_parsed"]:
      return np.zeros(0, np.int32)
    return linearise.linearise(
      example["source_head"], example["source_relation"]
    )

  def placed(self, bracketing: np.ndarray, example: Example) -> np.ndarray:
    return linearise.of_subwords(bracketing, example["source_word"])


@dataclasses.dataclass(frozen=True)
class Constituency(Brackets):
  """Constituency trees, where those were given."""

  dependencies: ClassVar[bool] = False
  lacking: ClassVar[str] = "config.prepare.parse.source_brackets"

  def labels(self, manifest: Mapping[str, Any]) -> list[str] | None:
    return manifest.get("brackets", {}).get("source")

  def bracketing(self, example: Example) -> np.ndarray:
    return example["source_brackets"]

  def placed(self, bracketing: np.ndarray, example: Example) -> np.ndarray:
    return bracketing


BRACKETS: Registry[Brackets] = Registry(
  "kind of trees", {"dependency": Dependency, "constituency": Constituency}
)


@dataclasses.dataclass(frozen=True)
class AuxiliaryTaskSpec(Choice):
  """What else is learnt of a pair than to translate it."""

  any: ClassVar[bool] = True
  tags: ClassVar[bool] = False  # tags around the source tell it from the first

  def make(
    self,
    example: Example,
    bracketing: np.ndarray,
    brackets: Brackets,
    sizes: Mapping[str, int],
  ) -> Example:
    """The example of this task.

    Args:
      example: of the first task.
      bracketing: of its source, not empty.
      brackets: what that is.
      sizes: side -> ids of its vocabulary; symbols come after them.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class TranslationTask(AuxiliaryTaskSpec):
  """Nothing else."""

  any: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class ParsingTask(AuxiliaryTaskSpec):
  """From the source, between tags, to its tree without words."""

  tags: ClassVar[bool] = True

  def make(
    self,
    example: Example,
    bracketing: np.ndarray,
    brackets: Brackets,
    sizes: Mapping[str, int],
  ) -> Example:
    numbers = linearise.skeleton(bracketing, heads=brackets.dependencies)
    new = tagged(example, sizes["source"] + linearise.PARSE)
    id_T = np.array([*(sizes["target"] + numbers), EOS])
    # Brackets are no sentence: they have no words and no tree.
    values: dict[str, Any] = {
      "id": id_T,
      "word": np.full(len(id_T), NO_WORD),
      "unit": np.full(len(id_T), NO_WORD),
      "parent_mid": np.arange(len(id_T)),
      "parsed": 0,
    }
    for feature in new:
      side, _, name = feature.partition("_")
      if side == "target":
        new[feature] = np.asarray(values.get(name, []), FEATURES[feature].dtype)
    return new


@dataclasses.dataclass(frozen=True)
class SourceTask(AuxiliaryTaskSpec):
  """From the source's tree with its words to the same target."""

  def make(
    self,
    example: Example,
    bracketing: np.ndarray,
    brackets: Brackets,
    sizes: Mapping[str, int],
  ) -> Example:
    signs = brackets.placed(bracketing, example)
    place_S = np.append(signs, len(example["source_id"]) - 1)
    id_S = sizes["source"] + linearise.numbers(place_S)
    return rearranged(example, place_S, id_S)


TASKS: Registry[AuxiliaryTaskSpec] = Registry(
  "second task",
  {"none": TranslationTask, "parse": ParsingTask, "source": SourceTask},
)


@dataclasses.dataclass(frozen=True)
class AuxiliaryTask:
  """Auxiliary task: further examples made from every training pair."""

  task: AuxiliaryTaskSpec = choice(
    TASKS,
    "none",
    'Additional task of every training pair: "parse", translate the source '
    "to its linearized tree, with tags around every source that name the "
    'task; "source", translate the linearized source tree to the same '
    'target, without tags; "none".',
  )
  brackets: Brackets = choice(
    BRACKETS,
    "dependency",
    'Trees of the auxiliary task: "dependency", or "constituency" as '
    "published, which needs config.prepare.parse.source_brackets.",
  )
  weight: Amount = option(
    1.0,
    "Loss weight of auxiliary-task examples (translation: 1). It scales the "
    "loss sum, not the count: with .3 a batch of such examples alone has .3 "
    "of its gradient.",
  )
  longest: Count = option(
    250,
    "Maximum length of either side of an auxiliary-task example, including "
    "brackets, EOS and tags; longer ones are omitted.",
    unit="subwords",
  )


def names(auxiliary: AuxiliaryTask) -> tuple[str, str]:
  """What config.data.second calls its task and its brackets."""
  return TASKS.name_of(auxiliary.task), BRACKETS.name_of(auxiliary.brackets)


def check(
  auxiliary: AuxiliaryTask,
  manifest: Mapping[str, Any],
  directory: str | os.PathLike[str],
) -> None:
  """Raises InputError where the data has no trees for the second task."""
  if auxiliary.task.any and auxiliary.brackets.labels(manifest) is None:
    task, kind = names(auxiliary)
    raise InputError(
      f"config.data.second.task={task!r} needs {kind} trees of the source, "
      f"and {os.fspath(directory)} has none. Prepare it again with "
      f"{auxiliary.brackets.lacking}."
    )


def symbols(
  auxiliary: AuxiliaryTask, manifest: Mapping[str, Any]
) -> tuple[str, ...]:
  """Symbols that both sides know beyond their vocabularies; maybe none.

  Args:
    auxiliary: config.data.second.
    manifest: of the prepared folder.
  """
  if not auxiliary.task.any:
    return ()
  return linearise.symbols(auxiliary.brackets.labels(manifest) or ())


def tag(auxiliary: AuxiliaryTask, manifest: Mapping[str, Any]) -> int | None:
  """Id of the tag around a source that is to be translated; None: no tags."""
  if not auxiliary.task.tags:
    return None
  return manifest["vocabulary"]["source"]["size"] + linearise.TRANSLATE
