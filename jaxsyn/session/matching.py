"""Which parameters of one model fit another: by name, and by what entries are.

Before this file: `parameters`. After it: `warm_start`, `jaxsyn.exporting`.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.loader import mixture, tasks
from jaxsyn.data.store import manifests
from jaxsyn.models import contract
from jaxsyn.plan import Plan
from jaxsyn.session import parameters
from jaxsyn.training.array_checksums import arrays_by_name

# What a table that two models share in one of them is called in the other:
# name -> (where else to look, whether that is turned). For `output` a bias of
# its own stays as it was drawn.
_SHARED = {
  "source_table/embedding": ("target_table/embedding", False),
  "output/kernel": ("target_table/embedding", True),
}
_OF_SOURCE = {"target_table/embedding": "source_table/embedding"}

Labels = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Named:
  """A model's parameters, and what the entries of their axes stand for.

  Attributes:
    arrays: by name; shapes will do for the model that is begun.
    labels: name -> axis -> of each entry.
  """

  arrays: Mapping[str, Any]
  labels: Mapping[str, Mapping[int, Labels]]


@dataclasses.dataclass(frozen=True)
class MatchedArray:
  """One parameter of the new run.

  Attributes:
    value: in its shape.
    known: where that is another run's; None: all of it.
    rows: how many entries of labelled axes are, of how many.
  """

  value: np.ndarray
  known: np.ndarray | None = None
  rows: tuple[int, int] | None = None


def labels(
  plan: Plan, manifest: Mapping[str, Any], folder: pathlib.Path
) -> dict[str, dict[int, Labels]]:
  """What entries of parameters stand for, where an axis counts such things.

  Which axes do is seen by making the model for more of them: no part and no
  family has to say so.

  Args:
    plan: of the model.
    manifest: of its data.
    folder: with the vocabularies.
  """
  label_tables: dict[str, Labels] = {}
  for side in ("source", "target"):
    label_tables[f"{side}_vocabulary"] = tokens(plan, manifest, folder, side)
    label_tables[f"{side}_relations"] = tuple(
      manifest["relations"].get(side, ())
    )
  # An axis that is so much longer then counts what was made so much more.
  by_more = {2**i: field for i, field in enumerate(label_tables)}
  spec = dataclasses.replace(
    plan.spec,
    **{field: getattr(plan.spec, field) + n for n, field in by_more.items()},
  )
  features = schema.features_for(manifest, plan.translation_features)
  small, large = (
    arrays_by_name(parameters.shapes(recipe, features))
    for recipe in (
      plan.recipe,
      dataclasses.replace(plan.recipe, model=contract.make(spec)),
    )
  )
  labels_found: dict[str, dict[int, Labels]] = {}
  for name, array in small.items():
    for axis, size in enumerate(array.shape):
      field = by_more.get(large[name].shape[axis] - size)
      if field is not None:
        table = label_tables[field]
        # Some tables begin with an entry for none of them.
        labels_found.setdefault(name, {})[axis] = ("",) * (
          size - len(table)
        ) + table
  return labels_found


def tokens(
  plan: Plan, manifest: Mapping[str, Any], folder: pathlib.Path, side: str
) -> Labels:
  """What each id of a side stands for: subwords, then symbols beyond them.

  Args:
    plan, manifest, folder: as of `labels`.
    side: "source" or "target".
  """
  data = plan.config.data
  corpora = range(len(mixture.tags(data.mixture, manifest)))
  vocabulary = manifests.vocabulary(folder, manifest, side)
  return (
    *vocabulary.pieces(range(vocabulary.size)),
    *tasks.symbols(data.second, manifest),
    *(f"<corpus {index}>" for index in corpora),
  )


def match(
  model: Named, source: Named, unknown: str
) -> tuple[dict[str, MatchedArray], dict[str, str]]:
  """What is taken, and why other parameters of the same name are not.

  Args:
    model: the model that is begun.
    source: the one it begins with.
    unknown: config.train.start.unknown.
  """
  matched: dict[str, MatchedArray] = {}
  differing: dict[str, str] = {}
  for name, wanted in model.arrays.items():
    sources = _sources(name, source)
    if not sources:
      continue
    axis_labels = model.labels.get(name, {})
    fitting = [
      (value, axes)
      for value, axes in sources
      if (
        (set(axes) == set(axis_labels) and len(axis_labels) < 2)
        or dict(axes) == dict(axis_labels)
      )
      and _but(value.shape, axis_labels) == _but(wanted.shape, axis_labels)
    ]
    if not fitting:
      shape = sources[0][0].shape
      differing[name] = f"{name} is {shape} there and {wanted.shape} here"
      continue
    matched[name] = _fitted(wanted.shape, axis_labels, fitting, unknown)
  return matched, differing


def _sources(
  name: str, source: Named
) -> list[tuple[np.ndarray, Mapping[int, Labels]]]:
  """Arrays that may stand for a parameter, the best first."""
  candidates = []
  if name in source.arrays:
    candidates.append((source.arrays[name], source.labels.get(name, {})))
  elif name in _SHARED:
    other, turned = _SHARED[name]
    if other in source.arrays:
      value, axes = source.arrays[other], source.labels.get(other, {})
      if turned:
        value, axes = (
          value.T,
          {1 - axis: axis_labels for axis, axis_labels in axes.items()},
        )
      candidates.append((value, axes))
  if (other := _OF_SOURCE.get(name, "")) in source.arrays:
    candidates.append((source.arrays[other], source.labels.get(other, {})))
  return candidates


def _fitted(
  shape: tuple[int, ...],
  axis_labels: Mapping[int, Labels],
  sources: Sequence[tuple[np.ndarray, Mapping[int, Labels]]],
  unknown: str,
) -> MatchedArray:
  """A parameter of the new model, its entries found by their labels.

  Args:
    shape: of it.
    axis_labels: its labels.
    sources: arrays and their labels; what the first lacks the next may have.
    unknown: as of `match`.
  """
  first, axes = sources[0]
  if dict(axis_labels) == dict(axes):  # nothing is counted, or the same
    return MatchedArray(np.asarray(first))
  ((axis, wanted),) = axis_labels.items()
  value = np.zeros((shape[axis], *_but(shape, axis_labels)), first.dtype)
  known = np.zeros(shape[axis], bool)
  for array, labels in sources:
    at = {label: i for i, label in enumerate(labels[axis])}
    rows = [i for i, one in enumerate(wanted) if one in at and not known[i]]
    moved = np.moveaxis(array, axis, 0)
    value[rows] = moved[[at[wanted[i]] for i in rows]]
    known[rows] = True
  if unknown == "mean":
    value[~known] = np.moveaxis(first, axis, 0).mean(0)
  value = np.moveaxis(value, 0, axis)
  if known.all():
    return MatchedArray(value, rows=(len(known), len(known)))
  rows_of = (int(known.sum()), len(known))
  if unknown == "mean":
    return MatchedArray(value, rows=rows_of)
  lined = known.reshape([-1 if i == axis else 1 for i in range(len(shape))])
  return MatchedArray(value, np.broadcast_to(lined, shape), rows_of)


def _but(shape: tuple[int, ...], axes: Mapping[int, Any]) -> tuple[int, ...]:
  """The sizes of all other axes."""
  return tuple(n for axis, n in enumerate(shape) if axis not in axes)
