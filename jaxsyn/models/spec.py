"""Specification of a model: sizes, vocabularies and modifiers of each stack.

A `ModelSpec` is frozen and hashable, so that a module made from it can be a
static argument of `jit`. `jaxsyn.plan` makes and checks it. An `Architecture`
has the options, checks and module of one kind of model;
`jaxsyn.models.architectures` registers them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

from flax import linen as nn

from jaxsyn.options import (
  Choice,
  ConfigPath,
  NamedSpecs,
  Registry,
  choice,
  choices,
  option,
)
from jaxsyn.options.bounds import Units
from jaxsyn.syntax import MODIFIERS, AttentionSite, ModifierSpec, StackShape


@dataclasses.dataclass(frozen=True)
class Placement:
  """Attention modifiers of the encoder, the decoder and the cross-attention."""

  encoder: NamedSpecs[ModifierSpec] = choices(
    MODIFIERS, "Modifiers of the encoder's self-attention."
  )
  decoder: NamedSpecs[ModifierSpec] = choices(
    MODIFIERS, "Modifiers of the decoder's self-attention."
  )
  cross: NamedSpecs[ModifierSpec] = choices(
    MODIFIERS, "Modifiers of the cross-attention."
  )

  def modifiers_in(self, stack: str) -> NamedSpecs[ModifierSpec]:
    """Returns (name, spec) pairs of a stack's modifiers, in registry order."""
    return getattr(self, stack)

  def modifiers_at_embeddings(self, stack: str) -> NamedSpecs[ModifierSpec]:
    """Returns a stack's modifiers that change its embeddings or output."""
    modifiers = self.modifiers_in(stack)
    return tuple((name, m) for name, m in modifiers if m.at_embeddings)

  def shared_modifiers(self, stack: str) -> NamedSpecs[ModifierSpec]:
    """Returns a stack's modifiers that compute values for all its layers."""
    modifiers = self.modifiers_in(stack)
    return tuple((name, m) for name, m in modifiers if m.is_shared)

  def modifiers_in_layer(
    self, stack: str, layer: int
  ) -> NamedSpecs[ModifierSpec]:
    """Returns a stack's attention modifiers in one layer."""
    return tuple(
      (name, m)
      for name, m in self.modifiers_in(stack)
      if not m.at_embeddings and m.in_layer(layer)
    )


@dataclasses.dataclass(frozen=True)
class Architecture(Choice):
  """Base class of the options of one architecture, such as the Transformer."""

  module: ClassVar[type[nn.Module]]  # an `EncoderDecoder`
  remats: ClassVar[tuple[str, ...]] = ("none",)  # of config.train.remat
  attentions: ClassVar[tuple[str, ...]] = ("einsum",)  # config.model.attention

  def layers(self, stack: str) -> int:
    """Returns the number of layers of the encoder, decoder or cross stack."""
    return 1

  def attention_heads(self) -> int:
    """Returns the number H of attention heads of each layer."""
    return 1

  @property
  def required_features(self) -> tuple[str, ...]:
    """Source features that the architecture itself reads."""
    return ()

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    """Raises InputError if options of the architecture are not compatible.

    Args:
      at: Location of the options in the config.
      spec: The complete model.
    """

  def check_modifier(
    self, at: ConfigPath, stack: str, modifier: ModifierSpec
  ) -> None:
    """Raises InputError for a modifier that the architecture cannot use.

    Args:
      at: Location of the modifier in the config.
      stack: Stack of the modifier.
      modifier: Options of the modifier.
    """


# Filled by `jaxsyn.models.architectures`: a model's module needs its spec.
ARCHITECTURES: Registry[Architecture] = Registry("family")


@dataclasses.dataclass(frozen=True)
class Model:
  """Options of the model, and a section for each architecture."""

  family: Architecture = choice(
    ARCHITECTURES,
    "transformer",
    "Architecture of the model; set by the system.",
  )
  width: Units = option(
    128,
    'Model width D; in "gru", the embedding size.',
    common=True,
  )
  tie_embeddings: bool = option(
    True,
    "Whether source and target share an embedding table, which needs a "
    "joint vocabulary.",
  )
  tie_output: bool = option(
    True, "Whether the output projection shares the target embedding table."
  )
  attention: Literal["einsum", "fused"] = option(
    "einsum",
    'Implementation of attention in a Transformer: "einsum", or "fused", '
    'JAX\'s own function, which never materializes scores. "fused" works with '
    "modifiers that only add to scores, does not support attention_dropout, "
    "uses cuDNN on NVIDIA GPUs in bfloat16 (not measured yet), and is slower "
    "on CPUs.",
    resume=True,
  )
  dtype: Literal["float32", "bfloat16"] = option(
    "float32",
    "Data type of activations; parameters are always float32.",
    common=True,
  )


@dataclasses.dataclass(frozen=True)
class ModelSpec:
  """Complete specification of a model: options, vocabulary sizes and modifiers.

  Attributes:
    model: Section config.model.
    modifiers: Section config.parts.
    source_vocabulary, target_vocabulary: Vocabulary sizes V.
    source_relations, target_relations: Numbers of dependency relations, which
      have ids from 1.
    source_labels, target_labels: Number of labels of each annotation.
    remat: Option config.train.remat.
    published_maps: (stack, layer) of attention that publishes its weights
      although config.model.attention is "fused", and so is computed by einsum.
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
    """Options of the selected architecture, an `Architecture`."""
    return self.model.family

  def stack_shape(self, stack: str) -> StackShape:
    """Returns a stack's number of layers, number of heads and width."""
    return StackShape(
      stack,
      layers=self.architecture.layers(stack),
      heads=self.architecture.attention_heads(),
      width=self.model.width,
    )

  def attention_site(self, stack: str, layer: int) -> AttentionSite:
    """Returns the location and sizes of a layer's attention.

    Layer -1 stands for the embeddings.
    """
    relations, labels = self.source_relations, self.source_labels
    if stack == "decoder":
      relations, labels = self.target_relations, self.target_labels
    return AttentionSite(
      stack,
      layer,
      heads=self.architecture.attention_heads(),
      width=self.model.width,
      dtype=self.model.dtype,
      relations=relations,
      labels=labels,
    )
