"""Which layers and heads a part works on: options shared by most parts."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxsyn.errors import InputError
from jaxsyn.syntax.part import Spec

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class OnHeads(Spec):
  """A part on chosen heads of chosen layers.

  Attributes:
    layers: layers of its place, from 0.
    heads: heads of each of those layers, from 0. None chosen: the baseline.
  """

  layers: tuple[int, ...] = (0,)
  heads: tuple[int, ...] = (0,)

  def check(self, where: str, model) -> None:
    place = where.split(".")[-2]
    layers = (
      model.encoder_layers if place == "encoder" else model.decoder_layers
    )
    for field, values, size in (
      ("layers", self.layers, layers),
      ("heads", self.heads, model.heads),
    ):
      for value in values:
        if not 0 <= value < size:
          raise InputError(
            f"{where}.{field}: {value} is not one of the {size} {field} of "
            f"the {place}; they count from 0 to {size - 1}."
          )


def on_heads(heads: tuple[int, ...], new_BHQM: Array, old_BHQM: Array) -> Array:
  """The new scores on the chosen heads, the old ones on the others.

  The head axis stays explicit, so a head can only ever be changed by its own
  sentence's facts.
  """
  number = old_BHQM.shape[1]
  chosen_1H11 = np.isin(np.arange(number), heads)[None, :, None, None]
  return jnp.where(chosen_1H11, new_BHQM, old_BHQM)
