"""Files at rest that change: every kind, and whoever reads it.

A case copies the world, damages one file, and does what a user would do next.
The result must be the one of the undamaged file (it did not matter, or was
healed), that of another kept checkpoint with a word about it, or an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.faults import harm
from benchmarks.faults.crew import Silent, Suite
from benchmarks.faults.world import World, quiet
from jaxsyn.config import read_config
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.loader import open_loader
from jaxsyn.data.store import integrity, manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.preprocess import build
from jaxsyn.storage import checksums, lock

LINES = ("the small dog sees a cat .", "a bird that sings sleeps .")
Digests = dict[str, str]  # what was read -> digest


@dataclasses.dataclass
class FlipCases:
  """What cases of one process share.

  Attributes:
    world: undamaged.
    right: by use of it, what comes out.
    others: by use, weights that are right where it is said why.
  """

  world: World
  right: dict[str, Digests] = dataclasses.field(default_factory=dict)
  others: dict[str, set[str]] = dataclasses.field(default_factory=dict)


class _Digest:
  """Takes in arrays, texts and numbers; order and bounds count."""

  def __init__(self) -> None:
    self._digest = hashlib.sha256()

  def __call__(self, *items: Any) -> _Digest:
    for item in items:
      if isinstance(item, np.ndarray):
        about = f"{item.dtype} {item.shape}"
        data = np.ascontiguousarray(item).tobytes()
      else:
        about, data = type(item).__name__, repr(item).encode()
      self._digest.update(f"{about} {len(data)} ".encode() + data)
    return self

  @property
  def hex(self) -> str:
    return self._digest.hexdigest()


# Uses: each reads a copy as a command would, and says what it found.


def train_on(world: World, origin: World) -> Digests:
  """What training reads of a prepared folder, by the code that it uses."""
  from jaxsyn.plan import resolve

  config = read_config(world.config(origin))
  directory = config.data.directory
  digest = _Digest()
  for split in (config.data.train, config.data.validation):
    records = Dataset(directory).split(split)
    opened = open_loader(
      records,
      resolve(config, records.dataset.manifest).features,
      data=config.data,
      batch=config.batch,
      seed=config.seed,
    )
    batches = opened.batches(Position())
    for _ in opened.batch_sampler.epoch(0):
      for name, array in sorted(next(batches).batch.items()):
        digest(name, array)
  manifest = manifests.read(directory)
  split = config.data.validation
  digest(integrity.read_text(directory, manifest, split, "target"))
  for side in ("source", "target"):
    vocabulary = manifests.vocabulary(directory, manifest, side)
    digest([vocabulary.encode(line) for line in LINES])
  return {"data": digest.hex}


def translate_with(world: World, origin: World) -> Digests:
  """What translating reads of a run: parameters, subwords, trees."""
  import jax

  from jaxsyn.session import Session

  session = Session(world.run)
  weights = _Digest()(*map(np.asarray, jax.tree.leaves(session.params)))
  inputs = _Digest()
  for line in LINES:
    for name, array in sorted(session.example(line).items()):
      inputs(name, np.asarray(array))
  return {"weights": weights.hex, "inputs": inputs.hex}


def go_on(world: World, origin: World) -> Digests:
  """What training reads to go on: the whole state."""
  import jax

  from jaxsyn.training.checkpoint import Checkpoints

  checkpoints = Checkpoints(world.run, 3)
  try:
    found = checkpoints.restore(_abstract_state(origin.folder))
  finally:
    checkpoints.close()
  if found is None:
    return {"weights": "none"}
  step, state, progress = found
  arrays = map(np.asarray, jax.tree.leaves(state))
  return {"weights": _Digest()(step, *arrays, repr(progress)).hex}


@functools.cache
def _abstract_state(folder: pathlib.Path) -> Any:
  """Shapes and types of the state of the undamaged run."""
  from jaxsyn.plan import resolve
  from jaxsyn.training.mesh import Layout
  from jaxsyn.training.start import abstract_state

  config = read_config(World(folder).config())
  records = Dataset(config.data.directory).split(config.data.train)
  plan = resolve(config, records.dataset.manifest)
  split = open_loader(
    records,
    plan.features,
    data=config.data,
    batch=config.batch,
    seed=config.seed,
  )
  layout = Layout("jit", config.train.mesh)
  return abstract_state(plan.recipe, layout, split.empty()[0])


def prepare(world: World, origin: World) -> Digests:
  """The folder after it was prepared again."""
  build.run(world.config(origin), str(origin.raw))
  return {
    name: _Digest()(content).hex
    for name, content in files_of(world.prepared).items()
  }


def files_of(folder: pathlib.Path) -> dict[str, Any]:
  """Content of the files of a prepared folder, without lock, work and times."""
  found: dict[str, Any] = {}
  for path in sorted(folder.rglob("*")):
    name = str(path.relative_to(folder))
    data = name != lock.FILE and not name.startswith("work/")
    if path.is_file() and data:
      found[name] = path.read_bytes()
  manifest = checksums.verify_checksum(json.loads(found[manifests.FILE]))
  del manifest["seconds"]
  return {**found, manifests.FILE: manifest}


@dataclasses.dataclass(frozen=True)
class Target:
  """Files that are read by some use.

  Attributes:
    files: pattern below the world's folder.
    use: what is done after the damage.
    others: files that stand for the damaged one with a word about it.
    without: what is taken away first, so that the damaged file is needed.
  """

  files: str
  use: Callable[[World, World], Digests]
  others: str = ""
  without: str = ""


TARGETS = {
  "records": Target("prepared/quickstart/*/*tfrecord*", train_on),
  "index": Target("prepared/quickstart/*/index-*.npy", train_on),
  "references": Target("prepared/text/*", train_on),
  "manifest": Target("prepared/manifest.json", train_on),
  "vocabulary": Target("prepared/*.model", train_on),
  "prepared": Target("prepared/*", prepare),
  "prepared_text": Target("prepared/text/*", prepare),
  "prepared_trees": Target("prepared/conllu/*", prepare),
  "prepared_records": Target("prepared/quickstart/*/*", prepare),
  "interrupted": Target(
    "prepared/work/*", prepare, without="prepared/manifest.json"
  ),
  "interrupted_trees": Target(
    "prepared/work/parse/*", prepare, without="prepared/manifest.json"
  ),
  "run": Target("run/*", translate_with),
  "best": Target("run/best/**/*", translate_with, "run/checkpoints/*"),
  "checkpoint": Target("run/checkpoints/**/*", go_on, "run/checkpoints/*"),
}


def _open(folder: pathlib.Path) -> FlipCases:
  return FlipCases(World(folder))


def _copy(world: World, to: pathlib.Path, use) -> World:
  """What a use may read, alone in a folder."""
  part = {prepare: "prepared", train_on: "prepared"}.get(use, "run")
  shutil.copytree(world.folder / part, to / part)
  return World(to)


def _used(target: Target, world: World, origin: World) -> tuple[Digests, str]:
  """What a use finds, and what it said meanwhile."""
  said = world.folder / "said.txt"
  with quiet(said), said.open("a") as file, contextlib.redirect_stderr(file):
    # Where a test runner has taken handlers and streams away, as on a terminal.
    told = logging.StreamHandler(file)
    logging.getLogger("absl").addHandler(told)
    try:
      found = target.use(world, origin)
    finally:
      logging.getLogger("absl").removeHandler(told)
  return found, said.read_text(errors="replace")


def _right(state: FlipCases, target: Target) -> Digests:
  """The undamaged result, and what else is right if it is said."""
  key = target.use.__name__
  if key not in state.right:
    with tempfile.TemporaryDirectory() as name:
      copied = _copy(state.world, pathlib.Path(name), target.use)
      state.right[key], _ = _used(target, copied, state.world)
  return state.right[key]


def _fallbacks(state: FlipCases, target: Target) -> set[str]:
  """Results with one kept checkpoint after the other as the newest."""
  key = target.use.__name__
  if key not in state.others:
    weights: set[str] = set()
    steps = sorted(
      (int(p.name) for p in state.world.folder.glob(target.others)),
      reverse=True,
    )
    for number in range(len(steps)):
      with tempfile.TemporaryDirectory() as name:
        copied = _copy(state.world, pathlib.Path(name), target.use)
        if target.use is translate_with:
          shutil.rmtree(copied.run / "best")
        for step in steps[:number]:
          shutil.rmtree(copied.run / "checkpoints" / str(step))
        weights.add(_used(target, copied, state.world)[0]["weights"])
    state.others[key] = weights
  return state.others[key]


def case(state: FlipCases, rng: np.random.Generator, name: str) -> None:
  """Damages one file of a kind and uses it."""
  target = TARGETS[name]
  right = _right(state, target)
  with tempfile.TemporaryDirectory() as place:
    copied = _copy(state.world, pathlib.Path(place), target.use)
    for path in copied.folder.glob(target.without or "nothing"):
      shutil.rmtree(path) if path.is_dir() else path.unlink()
    paths = [p for p in copied.folder.glob(target.files) if p.is_file()]
    path = sorted(paths)[int(rng.integers(len(paths)))]
    how = harm.damage(path, rng)
    found, said = _used(target, copied, state.world)
  wrong = sorted(
    name for name in {*found, *right} if found.get(name) != right.get(name)
  )
  if not wrong:
    return
  about = f"{path.relative_to(place)} {how}: other {', '.join(wrong)}"
  if wrong == ["weights"] and target.others:
    known = found["weights"] in _fallbacks(state, target)
    told = "is passed over" in said or "stand in for them" in said
    if known and told:
      return
    about += f"; a kept checkpoint: {known}; said: {said[-200:]!r}"
  raise Silent(about)


SUITES = {
  f"flip.{name}": Suite(_open, functools.partial(case, name=name))
  for name in TARGETS
}
