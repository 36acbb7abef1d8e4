"""A new run that begins with the parameters of another: config.train.start.

They are taken by name. Where an axis counts subwords or relations, entries are
copied by what they stand for, whatever their number: so vocabularies may differ,
and be of one side or of both. What the other run lacks stays as it was drawn;
what this one lacks is left. Of arrays alone: on which devices they lie, and of
how many, is of no account.

Before this file: `parameters`, which reads the other run, and `matching`. After it: `train`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.plan import Plan, resolve
from jaxsyn.session import parameters, workdir
from jaxsyn.session.matching import MatchedArray, Named, labels, match
from jaxsyn.storage import checksums, files
from jaxsyn.training.array_checksums import arrays_by_name
from jaxsyn.training.options import Start
from jaxsyn.training.step import TrainState

FILE = "start.json"
_SHOWN = 4


@dataclasses.dataclass(frozen=True)
class WarmStart:
  """What a run begins with.

  Attributes:
    taken: parameters by name.
    origin: what FILE says of it.
    told: the same for the log, in lines.
  """

  matched: dict[str, MatchedArray]
  origin: dict[str, Any]
  messages: tuple[str, ...]

  def __call__(self, state: TrainState) -> TrainState:
    """The first state with these parameters, where it lies."""

    def put(path: Any, initial: jax.Array) -> jax.Array:
      name = jax.tree_util.keystr(path, simple=True, separator="/")
      if name not in self.matched:
        return initial
      matched_array = self.matched[name]
      value = _placed(matched_array.value, initial)
      if matched_array.known is None:
        return value
      return jax.jit(jnp.where, out_shardings=initial.sharding)(
        _placed(matched_array.known, initial), value, initial
      )

    params = jax.tree_util.tree_map_with_path(put, state.params)
    ema = None if state.ema is None else jax.tree.map(jnp.copy, params)
    return dataclasses.replace(state, params=params, ema=ema)

  def write(self, folder: os.PathLike[str] | str) -> None:
    """Leaves in the folder of the run where it came from."""
    document = checksums.add_checksum(self.origin)
    files.write_json(files.path_of(folder) / FILE, document)


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
  if not start.run or workdir.is_started(folder):
    return None
  if files.absolute(start.run) == files.absolute(folder):
    raise InputError(
      f"config.train.start.run={start.run!r} is the folder of this run itself: "
      "it begins with another's parameters."
    )
  run = workdir.open_run(start.run)
  theirs = resolve(run.config, run.manifest)
  features = schema.features_for(run.manifest, theirs.translation_features)
  warnings: list[str] = []
  parameters_ = parameters.read(
    *(run, theirs, features),
    checkpoint=start.checkpoint,
    on_fallback=warnings.append,
  )
  if jax.process_index() == 0:
    for warning in warnings:
      print(f"warning: {run.workdir}: {warning}.", file=sys.stderr)
  arrays = jax.device_get(arrays_by_name(parameters_.params))
  source = Named(arrays, labels(theirs, run.manifest, run.workdir))
  manifest = manifests.read(directory)
  features = schema.features_for(manifest, plan.translation_features)
  model = Named(
    arrays_by_name(parameters.shapes(plan.recipe, features)),
    labels(plan, manifest, files.path_of(directory)),
  )
  matched, differing = match(model, source, start.unknown)
  requested = start.checkpoint or run.config.decode.checkpoint
  title = parameters.title(parameters_, requested)
  if not matched:
    raise InputError(
      f"config.train.start.run={start.run!r}: nothing of that run fits. "
      f"{_and_more([*differing.values()]) or 'No parameter has a name of this model'}."
    )
  origin = {
    "run": os.fspath(start.run),
    "checkpoint": title,
    "steps": list(parameters_.steps),
    "notes": warnings,
    "sha256": _hash(arrays),
    "system": run.config.system,
    "data": workdir.hashes(run.manifest),
    "taken": sorted(name for name, array in matched.items() if not array.rows),
    "rows": {n: list(array.rows) for n, array in matched.items() if array.rows},
    "fresh": sorted(set(model.arrays) - set(matched)),
    "left": sorted(set(arrays) - set(model.arrays)),
    "differing": differing,
  }
  return WarmStart(matched, origin, _messages(origin, start.unknown))


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


def _messages(origin: Mapping[str, Any], unknown: str) -> tuple[str, ...]:
  matched, rows, fresh = origin["taken"], origin["rows"], origin["fresh"]
  of = len(matched) + len(rows) + len(fresh)
  lines = [
    f"begins with {origin['run']} ({origin['checkpoint']}; SHA-256 "
    f"{origin['sha256'][:12]}): {len(matched)} of {of} parameters are taken as "
    f"they are, {len(rows)} entry by entry, {len(fresh)} are drawn",
    *origin["notes"],
  ]
  other = "are drawn" if unknown == "drawn" else "get the mean"
  for name, (known, size) in rows.items():
    rest = f", the others {other}" if known < size else ""
    lines.append(f"  {name}: {known:,} of {size:,} entries are known{rest}")
  random_names = [name for name in fresh if name not in origin["differing"]]
  for what, names in (
    ("drawn", random_names),
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
