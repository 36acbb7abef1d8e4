"""A new run that begins with the parameters of another: config.train.start.

They are taken by name. Where an axis counts subwords or relations, entries are
copied by what they stand for, whatever their number: so vocabularies may differ,
and be of one side or of both. What the other run lacks stays as it was drawn;
what this one lacks is left. Of arrays alone: on which devices they lie, and of
how many, is of no account.

Before this file: `parameters`, which reads the other run. After it: `train`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsyn import checksums, files, parameters, workdir
from jaxsyn.config import Start
from jaxsyn.data.loader import mixture, tasks
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.models import contract
from jaxsyn.plan import Plan, resolve
from jaxsyn.training.step import TrainState
from jaxsyn.training.sums import named

FILE = "start.json"
# What a table that two models share in one of them is called in the other:
# name -> (where else to look, whether that is turned). For `output` a bias of
# its own stays as it was drawn.
_SHARED = {
  "source_table/embedding": ("target_table/embedding", False),
  "output/kernel": ("target_table/embedding", True),
}
_OF_SOURCE = {"target_table/embedding": "source_table/embedding"}
_SHOWN = 4

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
class Taken:
  """One parameter of the new run.

  Attributes:
    value: in its shape.
    known: where that is another run's; None: all of it.
    rows: how many entries of labelled axes are, of how many.
  """

  value: np.ndarray
  known: np.ndarray | None = None
  rows: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class WarmStart:
  """What a run begins with.

  Attributes:
    taken: parameters by name.
    origin: what FILE says of it.
    told: the same for the log, in lines.
  """

  taken: dict[str, Taken]
  origin: dict[str, Any]
  told: tuple[str, ...]

  def __call__(self, state: TrainState) -> TrainState:
    """The first state with these parameters, where it lies."""

    def put(path: Any, drawn: jax.Array) -> jax.Array:
      name = jax.tree_util.keystr(path, simple=True, separator="/")
      if name not in self.taken:
        return drawn
      own = self.taken[name]
      value = _placed(own.value, drawn)
      if own.known is None:
        return value
      return jax.jit(jnp.where, out_shardings=drawn.sharding)(
        _placed(own.known, drawn), value, drawn
      )

    params = jax.tree_util.tree_map_with_path(put, state.params)
    ema = None if state.ema is None else jax.tree.map(jnp.copy, params)
    return dataclasses.replace(state, params=params, ema=ema)

  def write(self, folder: os.PathLike[str] | str) -> None:
    """Leaves in the folder of the run where it came from."""
    page = checksums.sealed(self.origin)
    files.write_json(files.path_of(folder) / FILE, page)


def read(
  start: Start, plan: Plan, directory: str, folder: os.PathLike[str] | str
) -> WarmStart | None:
  """What a run begins with; None where it draws all, or has begun.

  Args:
    start: config.train.start.
    plan: of the new run.
    directory: its prepared data.
    folder: of the new run, which may not be there yet.

  Raises:
    InputError: there is no such run or checkpoint, or nothing of it fits.
  """
  folder = files.path_of(folder)
  if not start.run or workdir.begun(folder):
    return None
  if files.absolute(start.run) == files.absolute(folder):
    raise InputError(
      f"config.train.start.run={start.run!r} is the folder of this run itself: "
      "it begins with another's parameters."
    )
  run = workdir.open_run(start.run)
  theirs = resolve(run.config, run.manifest)
  features = manifests.features_for(run.manifest, theirs.translation_features)
  found = parameters.read(run, theirs, features, checkpoint=start.checkpoint)
  arrays = jax.device_get(named(found.params))
  there = Named(arrays, labels(theirs, run.manifest, run.workdir))
  manifest = manifests.read(directory)
  features = manifests.features_for(manifest, plan.translation_features)
  here = Named(
    named(parameters.shapes(plan.recipe, features)),
    labels(plan, manifest, files.path_of(directory)),
  )
  taken, differing = match(here, there, start.unknown)
  asked = start.checkpoint or run.config.decode.checkpoint
  title = parameters.title(found, asked)
  if not taken:
    raise InputError(
      f"config.train.start.run={start.run!r}: nothing of that run fits. "
      f"{_and_more([*differing.values()]) or 'No parameter has a name of this model'}."
    )
  origin = {
    "run": os.fspath(start.run),
    "checkpoint": title,
    "steps": list(found.steps),
    "notes": list(found.notes),
    "sha256": _hash(arrays),
    "system": run.config.system,
    "data": workdir.hashes(run.manifest),
    "taken": sorted(name for name, own in taken.items() if not own.rows),
    "rows": {n: list(own.rows) for n, own in taken.items() if own.rows},
    "fresh": sorted(set(here.arrays) - set(taken)),
    "left": sorted(set(arrays) - set(here.arrays)),
    "differing": differing,
  }
  return WarmStart(taken, origin, _told(origin, start.unknown))


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
  counted: dict[str, Labels] = {}
  for side in ("source", "target"):
    counted[f"{side}_vocabulary"] = tokens(plan, manifest, folder, side)
    counted[f"{side}_relations"] = tuple(manifest["relations"].get(side, ()))
  # An axis that is so much longer then counts what was made so much more.
  by_more = {2**i: field for i, field in enumerate(counted)}
  spec = dataclasses.replace(
    plan.spec,
    **{field: getattr(plan.spec, field) + n for n, field in by_more.items()},
  )
  features = manifests.features_for(manifest, plan.translation_features)
  small, large = (
    named(parameters.shapes(recipe, features))
    for recipe in (
      plan.recipe,
      dataclasses.replace(plan.recipe, model=contract.make(spec)),
    )
  )
  found: dict[str, dict[int, Labels]] = {}
  for name, array in small.items():
    for axis, size in enumerate(array.shape):
      field = by_more.get(large[name].shape[axis] - size)
      if field is not None:
        own = counted[field]
        # Some tables begin with an entry for none of them.
        found.setdefault(name, {})[axis] = ("",) * (size - len(own)) + own
  return found


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
    *(f"<corpus {number}>" for number in corpora),
  )


def match(
  here: Named, there: Named, unknown: str
) -> tuple[dict[str, Taken], dict[str, str]]:
  """What is taken, and why other parameters of the same name are not.

  Args:
    here: the model that is begun.
    there: the one it begins with.
    unknown: config.train.start.unknown.
  """
  taken: dict[str, Taken] = {}
  differing: dict[str, str] = {}
  for name, wanted in here.arrays.items():
    sources = _sources(name, there)
    if not sources:
      continue
    own = here.labels.get(name, {})
    fitting = [
      (value, axes)
      for value, axes in sources
      if ((set(axes) == set(own) and len(own) < 2) or dict(axes) == dict(own))
      and _but(value.shape, own) == _but(wanted.shape, own)
    ]
    if not fitting:
      shape = sources[0][0].shape
      differing[name] = f"{name} is {shape} there and {wanted.shape} here"
      continue
    taken[name] = _fitted(wanted.shape, own, fitting, unknown)
  return taken, differing


def _sources(
  name: str, there: Named
) -> list[tuple[np.ndarray, Mapping[int, Labels]]]:
  """Arrays that may stand for a parameter, the best first."""
  found = []
  if name in there.arrays:
    found.append((there.arrays[name], there.labels.get(name, {})))
  elif name in _SHARED:
    other, turned = _SHARED[name]
    if other in there.arrays:
      value, axes = there.arrays[other], there.labels.get(other, {})
      if turned:
        value, axes = value.T, {1 - axis: own for axis, own in axes.items()}
      found.append((value, axes))
  if (other := _OF_SOURCE.get(name, "")) in there.arrays:
    found.append((there.arrays[other], there.labels.get(other, {})))
  return found


def _fitted(
  shape: tuple[int, ...],
  own: Mapping[int, Labels],
  sources: Sequence[tuple[np.ndarray, Mapping[int, Labels]]],
  unknown: str,
) -> Taken:
  """A parameter of the new model, its entries found by their labels.

  Args:
    shape: of it.
    own: its labels.
    sources: arrays and their labels; what the first lacks the next may have.
    unknown: as of `match`.
  """
  first, axes = sources[0]
  if dict(own) == dict(axes):  # nothing is counted, or the same
    return Taken(np.asarray(first))
  ((axis, wanted),) = own.items()
  value = np.zeros((shape[axis], *_but(shape, own)), first.dtype)
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
    return Taken(value, rows=(len(known), len(known)))
  rows_of = (int(known.sum()), len(known))
  if unknown == "mean":
    return Taken(value, rows=rows_of)
  lined = known.reshape([-1 if i == axis else 1 for i in range(len(shape))])
  return Taken(value, np.broadcast_to(lined, shape), rows_of)


def _but(shape: tuple[int, ...], axes: Mapping[int, Any]) -> tuple[int, ...]:
  """The sizes of all other axes."""
  return tuple(n for axis, n in enumerate(shape) if axis not in axes)


def _placed(value: np.ndarray, like: jax.Array) -> jax.Array:
  """An array of the host where another lies, of which this is a part."""
  return jax.make_array_from_callback(
    like.shape, like.sharding, lambda index: np.ascontiguousarray(value[index])
  )


def _hash(arrays: Mapping[str, np.ndarray]) -> str:
  """SHA-256 of parameters: their names, types, shapes and bytes."""
  digest = hashlib.sha256()
  for name, x in sorted(arrays.items()):
    digest.update(f"{name} {x.dtype} {x.shape}\n".encode())
    digest.update(np.ascontiguousarray(x).data)
  return digest.hexdigest()


def _told(origin: Mapping[str, Any], unknown: str) -> tuple[str, ...]:
  taken, rows, fresh = origin["taken"], origin["rows"], origin["fresh"]
  of = len(taken) + len(rows) + len(fresh)
  lines = [
    f"begins with {origin['run']} ({origin['checkpoint']}; SHA-256 "
    f"{origin['sha256'][:12]}): {len(taken)} of {of} parameters are taken as "
    f"they are, {len(rows)} entry by entry, {len(fresh)} are drawn",
    *origin["notes"],
  ]
  other = "are drawn" if unknown == "drawn" else "get the mean"
  for name, (known, size) in rows.items():
    rest = f", the others {other}" if known < size else ""
    lines.append(f"  {name}: {known:,} of {size:,} entries are known{rest}")
  drawn = [name for name in fresh if name not in origin["differing"]]
  for what, names in (
    ("drawn", drawn),
    ("drawn, since its shape differs", [*origin["differing"].values()]),
    ("left, as this model has none", origin["left"]),
  ):
    if names:
      lines.append(f"  {what}: {_and_more(names)}")
  return tuple(lines)


def _and_more(names: Sequence[str]) -> str:
  """The first few, and how many more."""
  more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
  return ", ".join(names[:_SHOWN]) + more
