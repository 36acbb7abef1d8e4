"""A second task beside translation: more examples out of the same pairs.

config.data.second says which. "parse" teaches to translate and to parse, and
tags around the source say which of the two is wanted; "source" teaches to
translate plain sources and bracketed ones. Examples of both tasks are columns
of one data set; `jaxsyn.data.loader.batch_plan` shuffles them together. Validation and
translation know the first task alone (`tag`), so they need no trees.

Source: Currey & Heafield 2019, "Incorporating Source Syntax into
Transformer-Based Neural Machine Translation", as summed up and re-done by
Bugliarello & Okazaki 2020 (arXiv:1909.03149), section 5, "+C&H".
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from jaxsyn.config import Data, Second
from jaxsyn.data.loader import columns
from jaxsyn.data.schema import EOS, FEATURES, NO_WORD
from jaxsyn.data.sentence import linearise
from jaxsyn.data.sentence.example import rearranged, tagged
from jaxsyn.data.store.records import Records
from jaxsyn.data.store.rows import Example, together
from jaxsyn.errors import InputError

RECIPE = 1  # raise it when the same pairs give other examples


@dataclasses.dataclass(frozen=True)
class Trees:
  """A kind of trees, as bracketings between whose brackets subwords stand.

  Attributes:
    labels: manifest -> labels of the brackets, from 1.
    there: manifest -> whether the data has such trees.
    lacking: what to do where it has none.
    bracketing: example -> the tree between whose brackets words or subwords
      stand; empty where the example has none.
    placed: that bracketing, example -> the same between subwords.
    heads: whether marks of heads are needed without the words.
  """

  labels: Callable[[Mapping], list[str]]
  there: Callable[[Mapping], bool]
  lacking: str
  bracketing: Callable[[Example], np.ndarray]
  placed: Callable[[np.ndarray, Example], np.ndarray]
  heads: bool


def _dependencies(example: Example) -> np.ndarray:
  if not example["source_parsed"]:
    return np.zeros(0, np.int32)
  return linearise.linearise(example["source_head"], example["source_relation"])


TREES = {
  "dependency": Trees(
    labels=lambda manifest: manifest["relations"].get("source", []),
    there=lambda manifest: "source" in manifest["sides"],
    lacking="--config.prepare.parse.sides=\"('source',)\"",
    bracketing=_dependencies,
    placed=lambda signs, example: linearise.of_subwords(
      signs, example["source_word"]
    ),
    heads=True,
  ),
  "constituency": Trees(
    labels=lambda manifest: manifest.get("brackets", {}).get("source", []),
    there=lambda manifest: "source" in manifest.get("brackets", {}),
    lacking="config.prepare.parse.source_brackets",
    bracketing=lambda example: example["source_brackets"],
    placed=lambda signs, example: signs,
    heads=False,
  ),
}


def _parse(
  example: Example, bracketing: np.ndarray, trees: Trees, sizes: Mapping
) -> Example:
  """From the source, between tags, to its tree without words."""
  number = linearise.skeleton(bracketing, trees.heads)
  new = tagged(example, sizes["source"] + linearise.PARSE)
  id_T = np.array([*(sizes["target"] + number), EOS])
  facts = {  # brackets are no sentence: they have no words and no tree
    "id": id_T,
    "word": np.full(len(id_T), NO_WORD),
    "parent_mid": np.arange(len(id_T)),
    "parsed": 0,
  }
  for name in new:
    side, _, fact = name.partition("_")
    if side == "target":
      new[name] = np.asarray(facts.get(fact, []), FEATURES[name].dtype)
  return new


def _source(
  example: Example, bracketing: np.ndarray, trees: Trees, sizes: Mapping
) -> Example:
  """From the source's tree with its words to the same target."""
  signs = trees.placed(bracketing, example)
  place_S = np.append(signs, len(example["source_id"]) - 1)
  id_S = sizes["source"] + linearise.numbers(place_S)
  return rearranged(example, place_S, id_S)


@dataclasses.dataclass(frozen=True)
class Task:
  """A second task.

  Attributes:
    make: example, its bracketing, the trees' kind and the sizes of the
      vocabularies -> the task's example.
    tags: whether tags around the source tell it from the first.
  """

  make: Callable[[Example, np.ndarray, Trees, Mapping[str, int]], Example]
  tags: bool


TASKS = {"parse": Task(_parse, tags=True), "source": Task(_source, tags=False)}


def symbols(second: Second, manifest: Mapping[str, Any]) -> tuple[str, ...]:
  """Symbols that both sides know beyond their vocabularies; maybe none.

  Args:
    second: config.data.second.
    manifest: of the prepared folder.
  """
  if second.task not in TASKS:
    return ()
  return linearise.symbols(TREES[second.brackets].labels(manifest))


def tag(second: Second, manifest: Mapping[str, Any]) -> int | None:
  """Id of the tag around a source that is to be translated; None: no tags."""
  task = TASKS.get(second.task)
  if task is None or not task.tags:
    return None
  return manifest["vocabulary"]["source"]["size"] + linearise.TRANSLATE


def of_split(
  records: Records,
  features: tuple[str, ...],
  data: Data,
  seed: int,
  memory_gib: float,
) -> columns.Columns:
  """The columns of a split to train on: both tasks', the first one's first.

  Args:
    records: the opened split.
    features: names of those to keep.
    data: config.data.
    seed: config.seed, for random trees.
    memory_gib: see `jaxsyn.data.loader.column_cache`.

  Returns:
    columns; where there is a second task, their `notes` count the examples of
    the "first" and the "second", and the pairs that had "no tree" or were "too
    long".

  Raises:
    InputError: the prepared data has no such trees, or no pair is left.
  """
  second, manifest = data.second, records.manifest
  if second.task not in TASKS:
    return columns.of_split(records, features, data.tree, seed, memory_gib)
  trees = TREES[second.brackets]
  if not trees.there(manifest):
    raise InputError(
      f"config.data.second.task={second.task!r} needs {second.brackets} trees "
      f"of the source, and {records.directory} has none. Prepare it again with "
      f"{trees.lacking}."
    )
  trees_used = columns.tree_facts(data.tree, seed)
  facts = (*trees_used, second.task, second.brackets, second.longest, RECIPE)
  found = columns.open_columns(
    lambda notes: together(examples(records, data, seed, notes)),
    features,
    columns.cache_of(records, features, *facts),
    memory_gib,
  )
  first, made = found.notes.get("first", 0), found.notes.get("second", 0)
  if not made:
    raise InputError(
      f"config.data.second: no example is left of {len(records)} pairs "
      f"({told(found.notes)}). Raise config.data.second.longest, or look at the "
      f"{second.brackets} trees."
    )
  weight = np.ones(first + made)
  weight[first:] = second.weight
  return found.weighted(weight)


def examples(
  records: Records, data: Data, seed: int, notes: collections.Counter
) -> Iterator[Example]:
  """The examples of the first task in order, then those of the second.

  Args:
    records: the opened split.
    data: config.data, with a second task.
    seed: config.seed, for random trees.
    notes: counts on the way, see `of_split`.
  """
  second, manifest = data.second, records.manifest
  task, trees = TASKS[second.task], TREES[second.brackets]
  task_tag = tag(second, manifest)
  for example in columns.examples_of(records, data.tree, seed, task_tag):
    notes["first"] += 1
    yield example
  sizes = {s: about["size"] for s, about in manifest["vocabulary"].items()}
  for example in columns.examples_of(records, data.tree, seed):
    bracketing = trees.bracketing(example)
    if not (bracketing < 0).any():
      notes["no tree"] += 1
      continue
    new = task.make(example, bracketing, trees, sizes)
    if max(len(new["source_id"]), len(new["target_id"])) > second.longest:
      notes["too long"] += 1
      continue
    notes["second"] += 1
    yield new


def told(notes: Mapping[str, int]) -> str:
  """What `notes` count, for the reader; "" where there is no second task."""
  if not notes:
    return ""
  count = {k: notes.get(k, 0) for k in ("second", "no tree", "too long")}
  return (
    f"second task: {count['second']:,} examples beside {notes['first']:,} "
    f"translations; left out: {count['no tree']:,} without a tree, "
    f"{count['too long']:,} too long"
  )
