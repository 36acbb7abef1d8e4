"""From a checked config to what runs: tables resolved, fields cross-checked.

`jaxsyn.config` has checked names and types; here names become functions of the
tables (parts, losses, optimisers, families) and fields that must fit each
other are compared, before any data is read or anything is compiled.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from jaxsyn.config import Config, Model
from jaxsyn.data.loader import tasks
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.fields import from_config
from jaxsyn.models import contract
from jaxsyn.models.spec import ModelSpec, Named, Parts, Windows
from jaxsyn.syntax import PARTS, WINDOWS
from jaxsyn.training import losses, optimiser
from jaxsyn.training.step import Recipe

PLACES = {"encoder": "source", "decoder": "target", "cross": "source"}


@dataclasses.dataclass(frozen=True)
class Plan:
  """A config, resolved.

  Attributes:
    config: as checked.
    spec: what the model is made from.
    recipe: what a training step needs.
    needs: features of the data that parts and losses read in training.
    tag: id put around each source that is to be translated; None: none.
  """

  config: Config
  spec: ModelSpec
  recipe: Recipe
  needs: frozenset[str]
  tag: int | None = None

  @property
  def translation_needs(self) -> frozenset[str]:
    """Features of the source side that translating reads."""
    return frozenset(
      need
      for need in _needs(self.spec.parts, "needs") | _context_needs(self.spec)
      if need.startswith("source")
    )


def resolve(config: Config, manifest: Mapping[str, Mapping]) -> Plan:
  """Checks that the fields fit, and makes what they name.

  Args:
    config: of `jaxsyn.config.read_config`.
    manifest: of the data: its "vocabulary" (side -> {"size", "sha256", ...})
      and its "relations" (side -> names), where it has trees.

  Raises:
    InputError: names the fields that do not fit, their values and what to do.
  """
  _check_fit(config)
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
  parts = read_parts(config)
  symbols = len(tasks.symbols(config.data.second, manifest))
  spec = ModelSpec(
    config.model,
    parts,
    source["size"] + symbols,
    target["size"] + symbols,
    relations.get("source", 0),
    relations.get("target", 0),
    read_contexts(config),
  )
  model = contract.make(spec)
  terms = losses.read_losses(config.losses)
  for name, term in terms.items():
    term.check(f"config.losses.{name}", spec)
  needs = frozenset().union(
    _needs(parts, "needs"),
    _needs(parts, "needs_in_training"),
    _context_needs(spec),
    *(term.needs for term in terms.values()),
  )
  recipe = Recipe(
    model=model,
    losses=terms,
    optimiser=optimiser.make(config.optimiser, config.model.width),
    accumulate=config.optimiser.accumulate,
    ema=config.train.ema,
  )
  tag = tasks.tag(config.data.second, manifest)
  return Plan(config, spec, recipe, needs, tag)


def read_parts(config: Config) -> Parts:
  """The parts of a config at their places, in table order.

  Raises:
    InputError: unknown part or option, a part at a place or in a family where
      it does not work, two that replace the same score, or options beyond the model's sizes.
  """
  found: dict[str, Named] = {}
  for place in PLACES:
    section = getattr(config.parts, place)
    for name in section:
      if name not in PARTS:
        raise InputError(
          f"config.parts.{place} has no part {name!r}. "
          f"{did_you_mean(name, PARTS)}"
        )
    named = []
    for name, kind in PARTS.items():
      if name not in section:
        continue
      where = f"config.parts.{place}.{name}"
      if place not in kind.places:
        raise InputError(f"{where}: it works in {', '.join(kind.places)} only.")
      part = from_config(kind, section[name], where)
      contract.FAMILIES[config.model.family].check_part(where, place, part)
      part.check(where, config.model)
      named.append((name, part))
    _check_clashes(f"config.parts.{place}", named, config.model)
    found[place] = tuple(named)
  return Parts(**found)


def read_contexts(config: Config) -> Windows:
  """The windows of a config, in table order.

  Raises:
    InputError: unknown window or option, or options that do not fit.
  """
  section = config.contexts
  for name in section:
    if name not in WINDOWS:
      raise InputError(
        f"config.contexts has no window {name!r}. {did_you_mean(name, WINDOWS)}"
      )
  named = []
  for name, kind in WINDOWS.items():
    if name in section:
      where = f"config.contexts.{name}"
      named.append((name, from_config(kind, section[name], where)))
      named[-1][1].check(where)
  return tuple(named)


def _check_clashes(where: str, named: list, model: Model) -> None:
  layers = max(model.encoder_layers, model.decoder_layers)
  replacing = [(name, part) for name, part in named if part.replaces]
  for (one, first), (other, second) in itertools.combinations(replacing, 2):
    sizes = layers, model.heads
    if not first.cells(*sizes) & second.cells(*sizes):
      continue
    if first.embeds:
      raise InputError(
        f"{where}: {one} and {other} both take the last dimensions of the "
        "embeddings; keep one of them, or set the other's size to 0."
      )
    raise InputError(
      f"{where}: {one} and {other} both replace the scores of a head; keep "
      "one of them, or give them other layers or heads."
    )


def _needs(parts: Parts, kind: str) -> frozenset[str]:
  """Features that the parts read, of one kind of needs, by name."""
  return frozenset(
    f"{side}_{need}"
    for place, side in PLACES.items()
    for _, part in parts.at(place)
    for need in getattr(part, kind)
  )


def _context_needs(spec: ModelSpec) -> frozenset[str]:
  """Features that the windows read."""
  return frozenset(
    f"source_{need}" for _, window in spec.contexts for need in window.needs
  )


def _check_fit(config: Config) -> None:
  """Fields that must fit each other; each alone is in its bounds."""
  train, decode = config.train, config.decode
  if decode.nbest > decode.beam:
    raise InputError(
      f"config.decode.nbest={decode.nbest} is more than "
      f"config.decode.beam={decode.beam}; a beam gives as many as it keeps."
    )
  if decode.max_length_factor == decode.max_length_offset == 0:
    raise InputError(
      "config.decode.max_length_factor and config.decode.max_length_offset are "
      "both 0, so no output has room for a subword; set one of them back."
    )
  if config.data.second.brackets == "constituency" and (
    config.data.tree != "parsed"
  ):
    raise InputError(
      f"config.data.tree={config.data.tree!r} is a dependency tree and does not "
      "reach config.data.second.brackets='constituency'; set one of them back."
    )
  if train.average > train.keep:
    raise InputError(
      f"config.train.average={train.average} is more than "
      f"config.train.keep={train.keep}: as many checkpoints must be kept."
    )
