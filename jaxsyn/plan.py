"""Resolution of a config into a model, losses and an optimizer.

`jaxsyn.config` validates names, types and bounds; this module checks options
against each other and against the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from jaxsyn.config import Config
from jaxsyn.data import schema
from jaxsyn.data.loader import mixture, tasks
from jaxsyn.data.loader.transforms import sides_of_heads
from jaxsyn.data.loader.tree_sampling import resampled_trees
from jaxsyn.data.sentence.controls import TREES, Parsed
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.models import contract
from jaxsyn.models.architectures import ARCHITECTURES
from jaxsyn.models.spec import ModelSpec, Placement
from jaxsyn.options import ROOT, ConfigPath
from jaxsyn.syntax import StackShape
from jaxsyn.training import optimizers
from jaxsyn.training.distillation import TeacherLoss
from jaxsyn.training.step import Recipe

MAX_UNPARSED = 0.05  # share of sentences; `prepare` warns at the same one
PLACES = {"encoder": "source", "decoder": "target", "cross": "source"}


@dataclasses.dataclass(frozen=True)
class Plan:
  """Resolved config: the model, losses and features of a run.

  Attributes:
    config: The validated config.
    spec: Specification of the model.
    recipe: Model, losses and optimizer of a training step.
    features: Features of the data that modifiers and losses read in training.
    tag: Id of the tag around each source to be translated; None: no tag.
    sampled_sides: Sides whose trees are resampled in every epoch.
  """

  config: Config
  spec: ModelSpec
  recipe: Recipe
  features: frozenset[str]
  tag: int | None = None
  sampled_sides: tuple[str, ...] = ()

  @property
  def model_features(self) -> frozenset[str]:
    """Features that the model reads in both training and decoding."""
    return _read_by(self.spec, "required_features")

  @property
  def translation_features(self) -> frozenset[str]:
    """Source features that the model reads during translation."""
    return frozenset(f for f in self.model_features if f.startswith("source"))


def resolve(config: Config, manifest: Mapping[str, Mapping[str, Any]]) -> Plan:
  """Builds the plan of a run (model, losses, optimizer) from its config.

  Args:
    config: Config of `jaxsyn.config.read_config`.
    manifest: Manifest of the data with "vocabulary" (side -> {"size", "sha256",
      ...}) and "relations" (side -> names), where it has trees; "labels" of its
      annotations without a fixed set of labels.

  Raises:
    InputError: Options are not compatible; the message names them, their values
      and the remedy.
  """
  _check_options(config)
  source, target = (manifest["vocabulary"][s] for s in ("source", "target"))
  relations = {
    side: len(names) for side, names in manifest["relations"].items()
  }
  if config.model.tie_embeddings and source["sha256"] != target["sha256"]:
    raise InputError(
      "config.model.tie_embeddings=True needs one vocabulary for both sides, "
      "but the data has two. Set it to False, or prepare the data with "
      "config.prepare.vocabulary.joint=True."
    )
  symbols = len(tasks.symbols(config.data.second, manifest))
  symbols += len(mixture.tags(config.data.mixture, manifest))
  spec = ModelSpec(
    config.model,
    config.parts,
    source["size"] + symbols,
    target["size"] + symbols,
    relations.get("source", 0),
    relations.get("target", 0),
    schema.label_counts(manifest, "source"),
    schema.label_counts(manifest, "target"),
    remat=config.train.remat,
  )
  _check_model(spec)
  spec = _without_inactive(spec)
  losses = dict(config.losses)
  if not losses:
    raise InputError("config.losses is empty: nothing to train on.")
  for name, loss in losses.items():
    loss.check(ROOT / "losses" / name, spec)
  if spec.model.attention == "fused":
    required = [loss.required_maps(spec) for loss in losses.values()]
    maps = tuple(sorted(set[tuple[str, int]]().union(*required)))
    spec = dataclasses.replace(spec, published_maps=maps)
  losses = {name: loss.with_defaults(spec) for name, loss in losses.items()}
  recipe = Recipe(
    model=contract.make(spec),
    losses=losses,
    optimiser=optimizers.make(
      config.optimiser, config.model.width, config.train.freeze
    ),
    accumulate=config.optimiser.accumulate,
    ema=config.train.ema,
    freeze=config.train.freeze,
    logits=config.train.logits,
  )
  features = frozenset().union(
    _read_by(spec, "required_features"),
    _read_by(spec, "train_only_features"),
    *(loss.required_features for loss in losses.values()),
  )
  tag = tasks.tag(config.data.second, manifest)
  trees = resampled_trees(
    config.data.tree, features, config.seed, manifest=manifest
  )
  sides = trees.sides if trees else ()
  return Plan(config, spec, recipe, features, tag, sides)


def check_trees(plans: Collection[Plan]) -> None:
  """Raises InputError if config.data.tree has no effect on any of the systems.

  Raises:
    InputError: The trees are not the parser's, and no system reads them.
  """
  controls = [plan for plan in plans if plan.config.data.tree != Parsed()]
  if controls and not any(map(_reads_trees, controls)):
    name = TREES.name_of(controls[0].config.data.tree)
    raise InputError(
      f"config.data.tree={name!r} does nothing here: system "
      f"{controls[0].config.system!r} reads no tree. Leave it out, or take a "
      "system that reads trees."
    )


def check_parsed(plan: Plan, dataset: Dataset) -> list[str]:
  """Returns warnings about splits that lack trees for many sentences.

  This includes controls: a sentence without a tree has no control tree either.

  Args:
    plan: Plan of the run.
    dataset: Opened dataset of config.data.directory.

  Returns:
    A warning for each split and side where more than MAX_UNPARSED of the
    sentences have no tree.

  Raises:
    InputError: No training sentence has a tree.
  """
  data, warnings = plan.config.data, []
  sides = {name.partition("_")[0] for name in plan.features - {*schema.LINKED}}
  if not sides:
    return []
  manifest = dataset.manifest
  schema.features_for(manifest, plan.features)  # checks that there are trees
  for split in dict.fromkeys((data.train, data.validation, *data.test)):
    if split not in manifest["splits"]:
      continue  # optional test splits may not be prepared
    corpora = [dataset]
    if split == data.train:
      corpora += map(Dataset, data.mixture.folders)
    entries = [manifests.split(one.manifest, split) for one in corpora]
    total = sum(entry["examples"] for entry in entries)
    # Counted over both sides by preparation: an upper bound.
    bound = sum(e.get("unparsed", e["examples"]) for e in entries)
    if bound <= MAX_UNPARSED * total:
      continue
    splits = [one.split(split) for one in corpora]
    for side in sorted(sides):
      count = sum(one.unparsed(side) for one in splits)
      if count == total and split == data.train:
        raise InputError(
          f"none of the {total:,} training sentences in {data.directory} has a "
          f"tree of the {side}, which system {plan.config.system!r} reads. "
          f"Prepare the data again with a parser (config.prepare.parse.{side}."
          f"parser) or with trees (config.prepare.parse.{side}_conllu), or "
          "train a system that reads no tree."
        )
      if count > MAX_UNPARSED * total:
        warnings.append(
          f"{count:,} of the {total:,} sentences of split {split!r} in "
          f"{data.directory} ({100 * count / total:.1f} %) have no tree of the "
          f"{side}; there system {plan.config.system!r} works as the plain model."
        )
  return warnings


def _reads_trees(plan: Plan) -> bool:
  """Returns whether config.data.tree has an effect on training."""
  data = plan.config.data
  if data.tree.sampled and plan.sampled_sides:
    return True
  if any(
    isinstance(loss, TeacherLoss) and loss.teacher and loss.weight
    for _, loss in plan.config.losses
  ):
    return True
  parents = not data.tree.sampled and sides_of_heads(plan.features)
  return bool(parents) or (data.tree.replaces and data.second.task.any)


def _check_model(spec: ModelSpec) -> None:
  """Raises InputError if attention modifiers conflict or do not fit the model.

  Raises:
    InputError: A modifier does not work in its stack or architecture, two of
      them replace the same score, or options exceed the sizes of the model.
  """
  for place in PLACES:
    stack_shape, at = spec.stack_shape(place), ROOT / "parts" / place
    for name, part in spec.modifiers.modifiers_in(place):
      if place not in part.stacks:
        raise (at / name).error(f": it works in {', '.join(part.stacks)} only.")
      spec.architecture.check_modifier(at / name, place, part)
      part.check(at / name, stack_shape)
      fused = spec.model.attention == "fused" and not part.at_embeddings
      if fused and part.is_active(stack_shape) and not part.is_additive:
        raise (at / name).error(
          f": {name} needs scores or weights, of which "
          "config.model.attention='fused' makes none; take 'einsum'."
        )
    _check_replacements(at, spec, stack_shape)
  family = ARCHITECTURES.name_of(spec.architecture)
  for option, value, supported in (
    ("train.remat", spec.remat, spec.architecture.remats),
    ("model.attention", spec.model.attention, spec.architecture.attentions),
  ):
    if value not in supported:
      raise InputError(
        f"config.{option}={value!r} is not for family {family!r}; take "
        f"{' or '.join(map(repr, supported))}."
      )
  spec.architecture.check(ROOT / "model" / family, spec)


def _without_inactive(spec: ModelSpec) -> ModelSpec:
  """Returns the model spec without attention modifiers that have no effect."""
  active = {
    place: tuple(
      (name, part)
      for name, part in spec.modifiers.modifiers_in(place)
      if part.is_active(spec.stack_shape(place))
    )
    for place in PLACES
  }
  return dataclasses.replace(spec, modifiers=Placement(**active))


def _check_replacements(
  at: ConfigPath, spec: ModelSpec, stack_shape: StackShape
) -> None:
  """Raises InputError if two modifiers of a stack replace the same values."""
  owners: dict[str, str] = {}
  for name, part in spec.modifiers.modifiers_in(stack_shape.stack):
    for target in sorted(part.exclusive_targets(stack_shape)):
      other = owners.setdefault(target, name)
      if other != name:
        raise at.error(
          f": {other} and {name} both replace {target}; disable one of them, "
          "or give them different layers or heads."
        )


def _read_by(spec: ModelSpec, when: str) -> frozenset[str]:
  """Returns the batch features that the modifiers and the architecture read.

  Args:
    spec: Specification of the model.
    when: Attribute of a modifier: "required_features" or "train_only_features".
  """
  features = set[str]()
  for place, side in PLACES.items():
    names = set[str]()
    for _, part in spec.modifiers.modifiers_in(place):
      names.update(getattr(part, when))
    if place == "encoder" and when == "required_features":
      names.update(spec.architecture.required_features)
    features |= {f"{side}_{name}" for name in names}
  return frozenset(features)


def _check_options(config: Config) -> None:
  """Checks that options of different sections are compatible."""
  data, train, decode = config.data, config.train, config.decode
  decode.search.check(ROOT / "decode", decode)
  if decode.max_length_factor == decode.max_length_offset == 0:
    raise InputError(
      "config.decode.max_length_factor and config.decode.max_length_offset are "
      "both 0, so an output can have no subword; set one of them back."
    )
  tree = f"config.data.tree={TREES.name_of(data.tree)!r}"
  task = f"config.data.second.task={tasks.TASKS.name_of(data.second.task)!r}"
  has_task, has_mixture = data.second.task.any, bool(data.mixture.folders)
  brackets, sides = data.second.brackets, data.sampling.sides
  if data.tree.replaces and brackets != "dependency":
    raise InputError(
      f"{tree} is a dependency tree and does not reach "
      f"config.data.second.brackets={brackets!r}; set one of them back."
    )
  sampling = f"config.data.sampling.sides={sides}"
  for is_conflict, one, other in (
    (has_mixture and has_task, "config.data.mixture", task),
    (sides and has_mixture, sampling, "config.data.mixture"),
    (sides and has_task, sampling, task),
    (data.tree.sampled and has_task, tree, task),
  ):
    if is_conflict:
      raise InputError(
        f"{one} and {other} cannot be combined; set one of them back."
      )
  if train.average > train.keep:
    raise InputError(
      f"config.train.average={train.average} is more than "
      f"config.train.keep={train.keep}: as many checkpoints must be kept."
    )
