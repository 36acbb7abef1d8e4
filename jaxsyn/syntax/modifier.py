"""Base classes of attention modifiers: options and Linen modules.

A modifier overrides one or more stages of attention: `embed`, `project`,
`rescore`, `mix`, `adapt_output` and `adapt_encoding`. `jaxsyn.models.attention`
calls them; `jaxsyn.syntax.MODIFIERS` lists the modifiers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from flax import linen as nn
from jax import Array

from jaxsyn.options import Choice, ConfigPath
from jaxsyn.syntax.features import SentenceFeatures


@dataclasses.dataclass(frozen=True)
class StackShape:
  """Sizes of a stack (encoder, decoder or cross), which modifiers must fit.

  Attributes:
    stack: "encoder", "decoder" or "cross".
    layers: Number of layers.
    heads: Number H of attention heads of each layer.
    width: Width D of the model.
  """

  stack: str
  layers: int
  heads: int
  width: int


@dataclasses.dataclass(frozen=True)
class AttentionSite:
  """Location and sizes of an attention module or modifier in the model.

  Attributes:
    stack: "encoder", "decoder" or "cross".
    layer: Index from 0; -1 at the embeddings.
    heads: Number H of attention heads.
    width: Width D of the model.
    dtype: Type of activations.
    relations: Number of dependency relations, which have ids from 1.
    labels: Number of labels of each annotation, which have ids from 1.
    modifier: Name in the config, also the name of published maps.
  """

  stack: str
  layer: int
  heads: int
  width: int
  dtype: str
  relations: int = 0
  labels: tuple[tuple[str, int], ...] = ()
  modifier: str = ""

  @property
  def head_width(self) -> int:
    return self.width // self.heads

  def for_modifier(self, name: str) -> AttentionSite:
    """Returns a copy of this location with the name of a modifier."""
    return dataclasses.replace(self, modifier=name)


class Modifier(nn.Module):
  """Base class of modifier modules; their stages (methods) default to no-ops.

  A stage must ignore padding, treat sentences independently, and be causal in
  the decoder; `tests/test_every_modifier.py` tests this for the whole table.

  Attributes:
    spec: Options.
    site: Location and sizes.
  """

  spec: Any
  site: AttentionSite

  def make_shared_features(self, features: SentenceFeatures) -> Array:
    """Computes values that the modifier reuses in all layers of a stack.

    Layers read them in `features.shared_features`. A modifier that overrides
    this has one more module, at layer -1, which computes the values once. Its
    parameters are shared by all layers.
    """
    raise NotImplementedError

  def embed(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    """Changes the source embeddings before positions and dropout."""
    return x_BSD

  def project(
    self, q_BQHK: Array, k_BMHK: Array, features: SentenceFeatures
  ) -> tuple[Array, Array]:
    """Changes the queries and keys before attention scores are computed.

    Queries are already divided by √K, with the head width K.
    """
    return q_BQHK, k_BMHK

  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    """Changes the attention scores before masking.

    Scores are float32 whatever the type of queries and keys, and must stay so:
    rounding a weight or a bias to bfloat16 moves them by up to 0.4 %.
    """
    return score_BHQM

  def mix(
    self, mixed_BQHK: Array, weight_BHQM: Array, features: SentenceFeatures
  ) -> Array:
    """Changes the attention-weighted values before the output projection."""
    return mixed_BQHK

  def adapt_output(self, out_BQD: Array, features: SentenceFeatures) -> Array:
    """Changes the attention output before dropout and the residual sum."""
    return out_BQD

  def adapt_encoding(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    """Changes the output of the encoder before the decoder reads it."""
    return x_BSD


@dataclasses.dataclass(frozen=True)
class ModifierSpec(Choice):
  """Base class of attention-modifier options.

  A subclass has options as fields, its module in `modifier`, and the features
  that it reads in `required_features`. All else has a default.
  """

  modifier: ClassVar[type[Modifier]]
  # Stacks in which the modifier works.
  stacks: ClassVar[tuple[str, ...]] = ("encoder",)
  # Values of options with which the modifier has no effect.
  disabled_options: ClassVar[Mapping[str, Any]] = {}

  @property
  def required_features(self) -> tuple[str, ...]:
    """Features that the modifier reads, named as in `jaxsyn.data.schema`."""
    return ()

  @property
  def train_only_features(self) -> tuple[str, ...]:
    """Features that the modifier reads only in training."""
    return ()

  @property
  def is_additive(self) -> bool:
    """Whether the modifier changes attention scores only by adding to them.

    The option config.model.attention="fused" requires it.
    """
    stages = self.modifier
    return stages.rescore is Modifier.rescore and stages.mix is Modifier.mix

  @property
  def at_embeddings(self) -> bool:
    """Whether the modifier overrides `embed` or `adapt_encoding`."""
    stages = self.modifier
    return (
      stages.embed is not Modifier.embed
      or stages.adapt_encoding is not Modifier.adapt_encoding
    )

  @property
  def is_shared(self) -> bool:
    """Whether the modifier computes values that all layers share."""
    method = self.modifier.make_shared_features
    return method is not Modifier.make_shared_features

  @classmethod
  def fits(cls, field: str) -> bool:
    return field in cls.stacks

  def in_layer(self, layer: int) -> bool:
    """Returns whether the modifier acts in the layer with the given index."""
    return True

  def active_heads(self, layers: int, heads: int) -> set[tuple[int, int]]:
    """Returns (layer, head) pairs of the heads that the modifier changes."""
    return set(
      itertools.product(filter(self.in_layer, range(layers)), range(heads))
    )

  def exclusive_targets(self, stack_shape: StackShape) -> set[str]:
    """Returns descriptions of values that no other modifier may replace."""
    return set()

  def is_active(self, stack_shape: StackShape) -> bool:
    """Returns whether the modifier has any effect in a stack of layers."""
    is_disabled = self.disabled_options and all(
      getattr(self, n) == v for n, v in self.disabled_options.items()
    )
    if is_disabled:
      return False
    heads = self.active_heads(stack_shape.layers, stack_shape.heads)
    return self.at_embeddings or bool(heads)

  def make(self, site: AttentionSite) -> Modifier:
    """Creates the modifier's Linen module for a location in the model."""
    return self.modifier(self, site)

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    """Raises InputError if the modifier's options do not fit a stack.

    Args:
      at: Location of the options in the config.
      stack_shape: Stack and its sizes.
    """

  def reject_changed_options(
    self, at: ConfigPath, names: Iterable[str], reason: str
  ) -> None:
    """Raises InputError for options that are set but have no effect.

    Args:
      at: Location of the options in the config.
      names: Options without effect.
      reason: Value of the other option that makes them so.
    """
    for name in names:
      value, default = getattr(self, name), getattr(type(self), name)
      if value != default:
        raise (at / name).error(
          f"={value!r} does nothing with {reason}; leave it at {default!r}."
        )
