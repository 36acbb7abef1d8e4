"""Tiny models and batches, for tests of all systems."""

from __future__ import annotations

import dataclasses
import functools

import control_trees
import jax
import jax.numpy as jnp
import numpy as np

from jaxsyn.config import Config, read_config
from jaxsyn.configs import base, systems
from jaxsyn.data.annotations import ANNOTATIONS, UNKNOWN
from jaxsyn.data.loader.batch_sampler import BatchSampler
from jaxsyn.data.loader.collate import Shape, collate
from jaxsyn.data.schema import COMPUTED_FROM, FEATURES
from jaxsyn.data.sentence import tree as trees
from jaxsyn.data.store.rows import Rows, lengths_of
from jaxsyn.errors import InputError
from jaxsyn.models.architectures import ARCHITECTURES
from jaxsyn.models.contract import forward
from jaxsyn.models.spec import Architecture, Placement
from jaxsyn.options import ConfigPath, fields_of, from_config
from jaxsyn.options.bounds import Layers, Rate, Units
from jaxsyn.plan import PLACES, Plan, resolve
from jaxsyn.syntax import MODIFIERS, ModifierSpec, WindowSpec
from jaxsyn.training.distillation import (
  TEACHER_ATTENTION,
  TEACHER_IDS,
  TEACHER_PROBS,
)

VOCABULARY = 20
RELATIONS = 5
JOINT = {  # a manifest
  "sides": ["source", "target"],
  "vocabulary": {
    side: {"size": VOCABULARY, "sha256": "a"} for side in ("source", "target")
  },
  "relations": {
    side: ["case", "det", "nsubj", "obj", "root"]
    for side in ("source", "target")
  },
  "alignments": True,
  "annotations": [*ANNOTATIONS],
  "labels": {
    side: {
      name: [UNKNOWN, *"abcdefgh"]
      for name, about in ANNOTATIONS.items()
      if about.open
    }
    for side in ("source", "target")
  },
}
LABELS = 9  # of each annotation


# Options with which a modifier does the same for all sentences as it otherwise does
# for a sentence without a tree; all others leave such a sentence unchanged.
NO_TREE_OPTIONS = {"tree_rotary": {"by": ("line", "line")}}
TINY = {Layers: 1, Units: 12, Rate: 0.0}  # by the type of an option


def config_of(system: str, **model) -> Config:
  """Config of a system, or several joined by "+", of a tiny model."""
  config = base.get_config()
  config.model.width = 16
  for name, cls in ARCHITECTURES.items():
    hints = {
      n: hint for n, (_, hint) in fields_of(cls).items() if n in vars(cls)
    }
    tiny = {n: TINY[hint] for n, hint in hints.items() if hint in TINY}
    config.model[name].update(tiny)
  config.model.transformer.update(encoder_layers=2, heads=2, feed_forward=16)
  for name, value in model.items():
    section = config.model
    section = section if name in section else section.transformer
    section[name] = value
  return read_config(systems.apply(config, system))


@functools.cache
def plan_of(system: str, **model) -> Plan:
  """Plan of a system with a tiny model."""
  return resolve(config_of(system, **model), JOINT)


def sentence(
  words: int, target: int, seed: int, bare: int = 0
) -> dict[str, np.ndarray]:
  """A pair with all features: words of one or two subwords, a random tree.

  Args:
    words: Number of source words with subwords.
    target: Number T of target subwords.
    seed: Seed.
    bare: Number of additional words on each side without subwords.
  """
  rng, label_rng, link_rng = (
    np.random.default_rng(item) for item in (seed, (seed, 1), (seed, 2))
  )
  word_S = np.repeat(np.arange(words), rng.integers(1, 3, words))
  word_S = np.r_[word_S, -1].astype(np.int32)
  word_T = np.repeat(np.arange(target), rng.integers(1, 3, target))
  word_T = np.r_[word_T[: target - 1], -1].astype(np.int32)
  if bare:
    word_S, word_T = (_spread(word, bare, rng) for word in (word_S, word_T))
    words += bare
  head_W = np.asarray(control_trees.random(words, seed))
  return {
    "source_id_BS": np.r_[rng.integers(4, VOCABULARY, len(word_S) - 1), 3],
    "source_word_BS": word_S,
    "source_head_BW": head_W,
    "source_relation_BW": rng.integers(1, RELATIONS + 1, words),
    "source_parent_mid_BS": trees.parent_mid(word_S, head_W),
    "source_tree_distance_BWW": np.asarray(trees.tree_distance(head_W)),
    "source_parsed_B": np.asarray(1, np.uint8),
    "source_weighting_BSS": rng.uniform(size=(len(word_S),) * 2),
    "target_id_BT": np.r_[rng.integers(4, VOCABULARY, target - 1), 3],
    "target_word_BT": word_T,
    "target_head_BW": np.asarray(
      control_trees.random(word_T.max() + 1 + bare, seed)
    ),
    "target_parsed_B": np.asarray(1, np.uint8),
    "source_unit_BS": word_S,
    "target_unit_BT": word_T,
    "links_BL": link_rng.integers(0, max(words, target), 2 * target, np.int32),
    **{
      f"source_{name}_BW": label_rng.integers(1, LABELS + 1, words, np.int32)
      for name in ANNOTATIONS
    },
  }


def _spread(word_S, bare: int, rng) -> np.ndarray:
  """Inserts words without subwords between and after the words."""
  words = word_S.max() + 1
  index_W = np.sort(rng.permutation(words + bare)[:words])
  return np.where(word_S < 0, -1, index_W[word_S]).astype(np.int32)


def examples_of(pairs) -> Rows:
  """The pairs as examples, without their weighting matrices."""
  examples = [
    {key.rpartition("_")[0]: array for key, array in pair.items()}
    for pair in pairs
  ]
  return Rows.of(examples, [f for f in examples[0] if f in FEATURES])


def shape_of(pairs, extra: int = 0) -> Shape:
  """The batch shape of the pairs, with `extra` more on all axes."""
  sampler = BatchSampler(
    lengths_of(examples_of(pairs)),
    tokens=2**20,
    shapes=1,
    seed=0,
    row_multiple=8,
    length_multiple=1,
  )
  (shape,) = sampler.shapes
  sizes = dataclasses.asdict(shape) | {"rows": len(pairs) - extra}
  return Shape(**{name: size + extra for name, size in sizes.items()})


def batch_of(
  pairs, extra: int = 0, shape: Shape | None = None
) -> dict[str, jax.Array]:
  """The training batch of the pairs, by default in their `shape_of`."""
  examples, shape = examples_of(pairs), shape or shape_of(pairs, extra)
  all_ids = np.arange(len(pairs))
  features = [*examples.flat, *COMPUTED_FROM]
  batch = collate(examples, features, all_ids, shape, rows=shape.rows)
  weighting = np.zeros((shape.rows, shape.source, shape.source), np.float32)
  for row, pair in enumerate(pairs):
    size = len(pair["source_id_BS"])
    weighting[row, :size, :size] = pair["source_weighting_BSS"]
  batch["source_weighting_BSS"] = weighting
  teacher = np.random.default_rng(3).uniform(size=(2, *weighting.shape))
  teacher = np.moveaxis(teacher * (batch["source_id_BS"] > 0)[:, None], 0, 1)
  total = np.maximum(teacher.sum(3, keepdims=True), 1e-9)
  batch[TEACHER_ATTENTION] = (teacher / total).astype(np.float32)
  rng = np.random.default_rng(4)
  size = (*batch["target_id_BT"].shape, 5)
  batch[TEACHER_IDS] = rng.integers(1, VOCABULARY, size, np.int32)
  p_BTC = rng.dirichlet(np.ones(5), size[:2])
  batch[TEACHER_PROBS] = p_BTC.astype(np.float32)
  return {name: jnp.asarray(array) for name, array in batch.items()}


def parameters(plan: Plan, batch, seed: int = 0):
  """Random parameters, biases and norms included."""
  model = plan.recipe.model
  keys = {"params": jax.random.key(seed), "syntax": jax.random.key(1)}
  shapes = jax.eval_shape(
    lambda: model.init(keys, batch, train=False, method=forward)
  )["params"]
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda x: jnp.asarray(rng.normal(0, 0.3, x.shape), x.dtype), shapes
  )


def apply(params, batch, key, model, train):
  return model.apply(
    {"params": params}, batch, train=train, method=forward, rngs={"syntax": key}
  )


_apply = jax.jit(apply, static_argnames=("model", "train"))


def logits(plan: Plan, params, batch, key: int = 0, train: bool = False):
  """Returns logits_BTV."""
  return _apply(params, batch, jax.random.key(key), plan.recipe.model, train)


def placement(**sections) -> Placement:
  """The section config.parts: stack -> modifier -> options."""
  return from_config(Placement, sections, ConfigPath("config", "parts"))


def check_modifier(stack: str, name: str, options) -> None:
  """Reads options of a modifier and checks them for a tiny Transformer."""
  ((_, spec),) = placement(**{stack: {name: options}}).modifiers_in(stack)
  shape = plan_of("transformer").spec.stack_shape(stack)
  spec.check(ConfigPath("config", "parts", stack, name), shape)


def modifiers_of(plan: Plan) -> dict[str, ModifierSpec]:
  """The modifiers of all stacks by name."""
  modifiers = plan.spec.modifiers
  return dict(
    item for stack in PLACES for item in modifiers.modifiers_in(stack)
  )


def random_shared_features(heads: int, B: int, S: int):
  """Random shared features of all modifiers, for one layer on its own."""
  rng = np.random.default_rng(0)
  return {
    name: jnp.asarray(rng.normal(size=(B, heads, S, S)), jnp.float32)
    for name, cls in MODIFIERS.items()
    if cls().is_shared
  }


def windows_of(plan: Plan) -> dict[str, WindowSpec]:
  """The windows of a recurrent decoder by name; {} for a Transformer."""
  return dict(getattr(plan.spec.architecture, "windows", ()))


def parts_of(plan: Plan) -> set[tuple[str, str, object]]:
  """Stack, name and options of all modifiers and windows."""
  modifiers = plan.spec.modifiers
  return {
    *((stack, *m) for stack in PLACES for m in modifiers.modifiers_in(stack)),
    *(("window", *window) for window in windows_of(plan).items()),
  }


@functools.cache
def combined_systems(most: int = 5) -> list[str]:
  """Few models, joined by "+", with the modifiers and windows of all systems.

  A model has the properties of `test_every_modifier` only if each of its
  modifiers has them.

  Args:
    most: Maximum number of systems in a model, so that errors are located.
  """
  systems_of = {name: plan_of(name) for name in systems.SYSTEMS}
  models: list[tuple[str, Plan]] = []
  for name, plan in sorted(
    systems_of.items(), key=lambda item: -len(parts_of(item[1]))
  ):
    for i, (names, model) in enumerate(models):
      family = type(model.spec.architecture)
      if family is not type(plan.spec.architecture):
        continue
      try:
        both = plan_of(f"{names}+{name}")
      except InputError:  # e.g. both replace the scores of one head
        continue
      parts = parts_of(model)
      if parts_of(both) == parts:
        break  # it has them already
      if (
        parts_of(both) == parts | parts_of(plan) and names.count("+") < most - 1
      ):
        models[i] = f"{names}+{name}", both
        break
    else:
      models.append((name, plan))
  return [names for names, _ in models]


@functools.cache
def baseline_of(family: type[Architecture]) -> Plan:
  """The first system of an architecture, which has no modifiers."""
  plan = next(
    plan
    for plan in map(plan_of, systems.SYSTEMS)
    if type(plan.spec.architecture) is family
  )
  assert not modifiers_of(plan), (
    f"a baseline of {family} comes first in SYSTEMS"
  )
  return plan


def without_modifiers(plan: Plan, *, without_trees: bool = False) -> Plan:
  """The baseline of a plan's architecture, with the same sizes.

  Args:
    plan: Plan of a system.
    without_trees: Whether modifiers and windows that read no features are kept,
      and modifiers of NO_TREE_OPTIONS.
  """

  def without_tree(spec: ModifierSpec) -> ModifierSpec:
    options = NO_TREE_OPTIONS.get(MODIFIERS.name_of(spec), {})
    return dataclasses.replace(spec, **options)

  kept = {
    stack: tuple(
      (name, without_tree(spec))
      for name, spec in plan.spec.modifiers.modifiers_in(stack)
      if without_trees and not without_tree(spec).required_features
    )
    for stack in PLACES
  }
  model, family = plan.config.model, plan.spec.architecture
  baseline = baseline_of(type(family))
  if windows_of(plan):
    windows = tuple(
      (name, spec)
      for name, spec in windows_of(plan).items()
      if without_trees and not spec.required_features
    )
    windows = windows or baseline.spec.architecture.windows
    family = dataclasses.replace(family, windows=windows)
  config = dataclasses.replace(
    plan.config,
    model=dataclasses.replace(model, family=family),
    parts=Placement(**kept),
    losses=(("nll", dict(plan.config.losses)["nll"]),),
    system=baseline.config.system,
  )
  return resolve(config, JOINT)


# One sentence has far more words than subwords, one has one word, one has only
# EOS, and one is longer than all others together. Tests share this batch, so that
# programs are compiled once.
PAIRS = [
  sentence(5, 6, 1),
  sentence(3, 4, 226, bare=17),  # its three words are neighbors in the tree
  sentence(7, 8, 3),
  sentence(1, 3, 4),
  sentence(0, 2, 5),
  sentence(60, 5, 6),
]
BATCH = batch_of(PAIRS, extra=2)


def real(pair, out_BTV, row: int) -> np.ndarray:
  """The logits of a sentence in a batch without padding."""
  return np.asarray(out_BTV[row, : len(pair["target_id_BT"])])
