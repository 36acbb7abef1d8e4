"""Matches the parameters of two models, to initialize one from the other.

Parameters match by name. Axes of subwords or relations are labeled, and their
rows match by label.
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
from jaxsyn.models.contract import arrays_by_name
from jaxsyn.plan import Plan
from jaxsyn.session import parameters

# Parameters that a model with shared tables lacks: name -> (name of the shared
# table, whether it is transposed). A bias of `output` keeps its initial value.
_SHARED = {
  "source_table/embedding": ("target_table/embedding", False),
  "output/kernel": ("target_table/embedding", True),
}
# A shared table also takes entries of the source table.
_SECOND_SOURCE = {"target_table/embedding": "source_table/embedding"}

Labels = tuple[str, ...]
AxisLabels = Mapping[int, Labels]  # axis -> label of each entry
LabelledArray = tuple[np.ndarray, AxisLabels]


@dataclasses.dataclass(frozen=True)
class Named:
  """Parameters of a model by name, with subwords or relations as axis labels.

  Attributes:
    arrays: Name -> array; of a new model, shapes suffice.
    labels: Name -> labels of the axes that have them.
  """

  arrays: Mapping[str, Any]
  labels: Mapping[str, AxisLabels]


@dataclasses.dataclass(frozen=True)
class MatchedArray:
  """Parameter of a new run, copied at least in part from another run.

  Attributes:
    value: Array in the shape of the new run.
    known: True where values come from the other run; None: everywhere.
    rows: Numbers of rows from the other run and of all rows; None: no labels.
  """

  value: np.ndarray
  known: np.ndarray | None = None
  rows: tuple[int, int] | None = None


def labels(
  plan: Plan, manifest: Mapping[str, Any], folder: pathlib.Path
) -> dict[str, dict[int, Labels]]:
  """Returns the subwords or relations that index the axes of parameters.

  Such axes are found by comparing the model with one for larger vocabularies, so
  that modifiers and architectures need not declare them.

  Args:
    plan: Plan of the model.
    manifest: Manifest of its data.
    folder: Directory with the vocabularies.
  """
  label_tables: dict[str, Labels] = {}
  for side in ("source", "target"):
    label_tables[f"{side}_vocabulary"] = tokens(plan, manifest, folder, side)
    label_tables[f"{side}_relations"] = tuple(
      manifest["relations"].get(side, ())
    )
  # Each size grows by another number, which identifies it.
  field_of = {2**i: field for i, field in enumerate(label_tables)}
  spec = dataclasses.replace(
    plan.spec,
    **{field: getattr(plan.spec, field) + n for n, field in field_of.items()},
  )
  larger_recipe = dataclasses.replace(plan.recipe, model=contract.make(spec))
  features = schema.features_for(manifest, plan.translation_features)
  small = arrays_by_name(parameters.shapes(plan.recipe, features))
  large = arrays_by_name(parameters.shapes(larger_recipe, features))
  axis_labels: dict[str, dict[int, Labels]] = {}
  for name, array in small.items():
    for axis, size in enumerate(array.shape):
      field = field_of.get(large[name].shape[axis] - size)
      if field is not None:
        table = label_tables[field]
        # Some tables begin with an entry without a label.
        none = ("",) * (size - len(table))
        axis_labels.setdefault(name, {})[axis] = none + table
  return axis_labels


def tokens(
  plan: Plan, manifest: Mapping[str, Any], folder: pathlib.Path, side: str
) -> Labels:
  """Returns the string of each vocabulary id: subwords, task symbols and tags.

  Args:
    plan, manifest, folder: See `labels`.
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
  """Finds the parameters of another model that can initialize a new model.

  Args:
    model: New model.
    source: Other model.
    unknown: Value of entries without a match, config.train.start.unknown.

  Returns:
    The matched parameters by name; and by name the reasons why other parameters
    with the same name do not match.
  """
  matched: dict[str, MatchedArray] = {}
  differing: dict[str, str] = {}
  for name, wanted in model.arrays.items():
    candidates = _candidates(name, source)
    if not candidates:
      continue
    axis_labels = model.labels.get(name, {})
    fitting = [
      (value, labels_of_value)
      for value, labels_of_value in candidates
      if _has_same_axes(axis_labels, labels_of_value)
      and _unlabelled(value.shape, axis_labels)
      == _unlabelled(wanted.shape, axis_labels)
    ]
    if fitting:
      matched[name] = _fit(wanted.shape, axis_labels, fitting, unknown)
    else:
      shape = candidates[0][0].shape
      differing[name] = f"{name} is {shape} there and {wanted.shape} here"
  return matched, differing


def _candidates(name: str, source: Named) -> list[LabelledArray]:
  """Returns another model's arrays that can initialize a parameter, best first."""

  def labelled(name: str) -> LabelledArray:
    return source.arrays[name], source.labels.get(name, {})

  candidates = []
  if name in source.arrays:
    candidates.append(labelled(name))
  elif name in _SHARED:
    shared, is_transposed = _SHARED[name]
    if shared in source.arrays:
      value, axes = labelled(shared)
      if is_transposed:
        value = value.T
        axes = {1 - axis: axis_labels for axis, axis_labels in axes.items()}
      candidates.append((value, axes))
  second = _SECOND_SOURCE.get(name, "")
  if second in source.arrays:
    candidates.append(labelled(second))
  return candidates


def _has_same_axes(first: AxisLabels, second: AxisLabels) -> bool:
  """Returns whether two arrays share their only labeled axis, or all labels."""
  is_one_axis = len(first) < 2 and set(first) == set(second)
  return is_one_axis or dict(first) == dict(second)


def _fit(
  shape: tuple[int, ...],
  axis_labels: AxisLabels,
  candidates: Sequence[LabelledArray],
  unknown: str,
) -> MatchedArray:
  """Builds a parameter from another model's rows with the same labels.

  Args:
    shape: Shape of the parameter.
    axis_labels: Labels of the parameter.
    candidates: Arrays of the other model; later ones only fill rows that the
      earlier ones lack.
    unknown: See `match`.
  """
  first, first_labels = candidates[0]
  if dict(axis_labels) == dict(first_labels):
    return MatchedArray(np.asarray(first))
  ((axis, wanted),) = axis_labels.items()
  size = shape[axis]
  value = np.zeros((size, *_unlabelled(shape, axis_labels)), first.dtype)
  known = np.zeros(size, bool)
  for array, labels_of_array in candidates:
    index = {label: i for i, label in enumerate(labels_of_array[axis])}
    rows = [i for i, x in enumerate(wanted) if x in index and not known[i]]
    old_rows = [index[wanted[i]] for i in rows]
    value[rows] = np.moveaxis(array, axis, 0)[old_rows]
    known[rows] = True
  if unknown == "mean":
    value[~known] = np.moveaxis(first, axis, 0).mean(0)
  value = np.moveaxis(value, 0, axis)
  counts = int(known.sum()), size
  if known.all() or unknown == "mean":
    return MatchedArray(value, rows=counts)
  along_axis = [-1 if i == axis else 1 for i in range(len(shape))]
  mask = np.broadcast_to(known.reshape(along_axis), shape)
  return MatchedArray(value, mask, counts)


def _unlabelled(
  shape: tuple[int, ...], axis_labels: AxisLabels
) -> tuple[int, ...]:
  """Returns the sizes of the axes not indexed by subwords or relations."""
  return tuple(n for axis, n in enumerate(shape) if axis not in axis_labels)
