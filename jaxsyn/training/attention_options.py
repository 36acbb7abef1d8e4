"""Base class and option checks of losses that read attention heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsyn.models.spec import ModelSpec
from jaxsyn.options import ConfigPath
from jaxsyn.syntax.maps import Maps
from jaxsyn.training.objective import Loss

MIN_WEIGHT = 1e-30  # lower bound of attention weights in logarithms
_CROSS_KINDS = ("weight_BHQM", "weight_BTS")  # of attention, of GRU windows


def check_layer(at: ConfigPath, layer: int, layers: int, stack: str) -> None:
  """Raises InputError unless the encoder or decoder has the given layer.

  Args:
    at: Config path of the option.
    layer: Index of the layer, from 0 or negative from the end. In a decoder, -2
      is always valid: a decoder with one layer uses that layer.
    layers: Number of layers.
    stack: "encoder" or "decoder".

  Raises:
    InputError: There is no such layer.
  """
  lowest = min(-layers, -2) if stack == "decoder" else -layers
  if not lowest <= layer < layers:
    raise at.error(
      f": {layer} is not one of the {layers} layers of the {stack}; they count "
      f"from 0 to {layers - 1}, or from -1 back."
    )


def check_heads(at: ConfigPath, heads: Sequence[int], count: int) -> None:
  """Raises InputError unless the attention heads exist and are distinct.

  Raises:
    InputError: There is no such head, or the heads are not distinct.
  """
  for head in heads:
    if not 0 <= head < count:
      raise at.error(
        f": {head} is not one of the {count} heads of the layer; they count "
        f"from 0 to {count - 1}."
      )
  if not heads or len(set(heads)) < len(heads):
    raise at.error(f"={heads} must name heads, each once.")


def layer_index(layer: int, layers: int) -> int:
  """Converts a layer option, which may be negative, to an index from 0."""
  return layer if layer >= 0 else max(layer + layers, 0)


class LayerLoss(Loss):
  """Base class of the losses that read the attention weights of one layer.

  Attributes:
    stack: "encoder", or "cross" for the cross-attention of the decoder.
    layer: Option with the layer, from 0, or from the end if negative.
  """

  stack: ClassVar[str]
  layer: int

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    layers = spec.stack_shape(self.stack).layers
    stack = "decoder" if self.stack == "cross" else self.stack
    check_layer(at / "layer", self.layer, layers, stack)

  def with_defaults(self, spec: ModelSpec) -> Any:
    layers = spec.stack_shape(self.stack).layers
    layer = layer_index(self.layer, layers)
    # By name, since only subclasses declare the field.
    return dataclasses.replace(self, **{"layer": layer})

  def required_maps(self, spec: ModelSpec) -> tuple[tuple[str, int], ...]:
    return ((self.stack, self.with_defaults(spec).layer),)


def cross_attention(maps: Maps, layer: int) -> Array:
  """Returns the cross-attention weights (BHTS) of a layer.

  The windows of a recurrent decoder count as heads.

  Raises:
    InputError: The model does not publish them.
  """
  weights = [
    each.value if each.address.kind == "weight_BHQM" else each.value[:, None]
    for each in maps.find(stack="cross", layer=layer)
    if each.address.kind in _CROSS_KINDS
  ]
  if not weights:
    maps.find(stack="cross", layer=layer, kind="weight_BHQM")  # raises
  return jnp.concatenate(weights, axis=1)
