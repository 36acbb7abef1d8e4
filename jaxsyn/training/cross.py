"""The cross-attention that a loss reads: which layer, and what it published."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jaxsyn.models.spec import ModelSpec
from jaxsyn.options import ConfigPath
from jaxsyn.syntax.maps import Maps

# As attention publishes them, and each window of a recurrent decoder.
KINDS = ("weight_BHQM", "weight_BTS")


def check_layer(at: ConfigPath, layer: int, spec: ModelSpec) -> None:
  """Raises InputError unless the decoder has a layer.

  Args:
    at: where in the config it stands.
    layer: from 0, or from the end; -2 is the only one of a decoder of one.
    spec: of the model.
  """
  layers = spec.stack_shape("decoder").layers
  if not -max(layers, 2) <= layer < layers:
    raise at.error(
      f": {layer} is not one of the {layers} layers of the decoder; "
      f"they count from 0 to {layers - 1}, or from -1 back."
    )


def layer_of(layer: int, layers: int) -> int:
  """The number, from 0, of a layer that `check_layer` let pass."""
  return layer if layer >= 0 else max(layer + layers, 0)


def heads(maps: Maps, layer: int) -> Array:
  """Weights of a layer's heads (BHTS); of a recurrent decoder its windows' are.

  Raises:
    InputError: nothing publishes them.
  """
  head_maps = [
    one.value if one.address.kind == KINDS[0] else one.value[:, None]
    for one in maps.find(place="cross", layer=layer)
    if one.address.kind in KINDS
  ]
  if not head_maps:
    maps.find(place="cross", layer=layer, kind=KINDS[0])  # which says so
  return jnp.concatenate(head_maps, axis=1)
