"""Specification of a model: sizes, vocabularies and modifiers of each stack.

It is frozen and hashable, so that a module made from it can be a static argument
of jit. `jaxsyn.plan` makes it from a config and checks it. An `Architecture` has
the options, checks and module of one kind of model; `jaxsyn.models.architectures`
registers them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

from flax import linen as nn

from jaxsyn.options import Choice, ConfigPath, Registry, choice, option
from jaxsyn.options.bounds import Units
from jaxsyn.syntax import AttentionSite, ModifierSpec, StackShape
from jaxsyn.syntax.placement import Placement


@dataclasses.dataclass(frozen=True)
class Architecture(Choice):
  """Base of the architectures: their options in addition to `Model`."""

  module: ClassVar[type[nn.Module]]  # an `EncoderDecoder`
  remats: ClassVar[tuple[str, ...]] = ("none",)  # of config.train.remat
  attentions: ClassVar[tuple[str, ...]] = ("einsum",)  # config.model.attention

  def layers(self, place: str) -> int:
    """Returns the number of layers of a stack: "encoder", "decoder" or "cross"."""
    return 1

  def attention_heads(self) -> int:
    """Returns H, the number of attention heads of each layer."""
    return 1

  @property
  def required_features(self) -> tuple[str, ...]:
    """Features of the source that the architecture itself reads."""
    return ()

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    """Raises InputError for options that are not compatible.

    Args:
      at: Location of the options in the config.
      spec: The complete model.
    """

  def check_modifier(
    self, at: ConfigPath, place: str, part: ModifierSpec
  ) -> None:
    """Raises InputError for a modifier that the architecture cannot use.

    Args:
      at: Location of the modifier in the config.
      place: Its stack.
      part: Its options.
    """


# Filled by `jaxsyn.models.architectures`: a model's module needs its spec.
ARCHITECTURES: Registry[Architecture] = Registry("family")


@dataclasses.dataclass(frozen=True)
class Model:
  """Model: options of all architectures, and a section for each."""

  family: Architecture = choice(
    ARCHITECTURES,
    "transformer",
    "Architecture of the model; set by the system.",
  )
  width: Units = option(
    128,
    'Width D of the model; the size of the embeddings in "gru".',
    common=True,
  )
  tie_embeddings: bool = option(
    True,
    "Whether source and target share an embedding table, which needs a "
    "joint vocabulary.",
  )
  tie_output: bool = option(
    True, "Whether the output projection is the target's embedding table."
  )
  attention: Literal["einsum", "fused"] = option(
    "einsum",
    'Implementation of attention in a Transformer: "einsum", or "fused", '
    'JAX\'s own function, which never materializes scores. "fused" works '
    "with modifiers that only add to scores, has no attention_dropout, "
    "uses cuDNN on NVIDIA GPUs in bfloat16 (not measured yet), and is "
    "slower on CPUs.",
    resume=True,
  )
  dtype: Literal["float32", "bfloat16"] = option(
    "float32",
    "Type of activations; parameters are always float32.",
    common=True,
  )


@dataclasses.dataclass(frozen=True)
class ModelSpec:
  """What a module of a family is made from; see the head of this file.

  Attributes:
    model: config.model.
    parts: config.parts.
    source_vocabulary, target_vocabulary: V of each side.
    source_relations, target_relations: dependency relations of the data,
      numbered from 1.
    source_labels, target_labels: how many labels each annotation has there.
    remat: config.train.remat.
    shown: (place, layer) of attention that publishes its weights though
      config.model.attention is "fused": it is computed as by "einsum".
  """

  model: Model
  modifiers: Placement
  source_vocabulary: int
  target_vocabulary: int
  source_relations: int = 0
  target_relations: int = 0
  source_labels: tuple[tuple[str, int], ...] = ()
  target_labels: tuple[tuple[str, int], ...] = ()
  remat: str = "none"
  published_maps: tuple[tuple[str, int], ...] = ()

  @property
  def architecture(self) -> Any:
    """A `Architecture`: which, its module knows."""
    return self.model.family

  def stack_shape(self, place: str) -> StackShape:
    """A place with its sizes, for what is to sit there."""
    return StackShape(
      place,
      layers=self.architecture.layers(place),
      heads=self.architecture.attention_heads(),
      width=self.model.width,
    )

  def attention_site(self, place: str, layer: int) -> AttentionSite:
    """What a part at a place is told; layer -1 is the embeddings."""
    relations, labels = self.source_relations, self.source_labels
    if place == "decoder":
      relations, labels = self.target_relations, self.target_labels
    return AttentionSite(
      place,
      layer,
      heads=self.architecture.attention_heads(),
      width=self.model.width,
      dtype=self.model.dtype,
      relations=relations,
      labels=labels,
    )
