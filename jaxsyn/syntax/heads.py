"""Which layers and heads a part works on: options shared by most parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import CountOrOff
from jaxsyn.syntax.modifier import Modifier, ModifierSpec, StackShape

HeadChoice = tuple[int, ...] | None  # None: all of them


@dataclasses.dataclass(frozen=True)
class OnHeads(ModifierSpec):
  """A part on chosen heads of chosen layers."""

  layers: HeadChoice = option(
    (0,),
    "Layers of the stack with this modifier, from 0; None: all, or the "
    "`lowest` ones.",
  )
  heads: HeadChoice = option(
    (0,),
    "Attention heads of each of those layers with this modifier, from 0; "
    "None: all; (): none, which is the baseline.",
  )
  lowest: CountOrOff = option(
    0,
    "Number of lowest layers with this modifier, if `layers` is None and "
    "the stack has as many; 0: all layers.",
  )

  disabled_options: ClassVar[Mapping[str, Any]] = {"heads": ()}

  def in_layer(self, layer: int) -> bool:
    if self.layers is None:
      return not self.lowest or layer < self.lowest
    return layer in self.layers

  def active_heads(self, layers: int, heads: int) -> set[tuple[int, int]]:
    return {
      (layer, head)
      for layer in filter(self.in_layer, range(layers))
      for head in resolve_heads(self.heads, heads)
    }

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    for field, values, size in (
      ("layers", self.layers, stack_shape.layers),
      ("heads", self.heads, stack_shape.heads),
    ):
      if values and len(set(values)) < len(values):
        raise (at / field).error(f"={values} names one of the {field} twice.")
      for value in values or ():
        if not 0 <= value < size:
          raise (at / field).error(
            f": {value} is not one of the {size} {field} of the {stack_shape.stack}; "
            f"they count from 0 to {size - 1}."
          )


class HeadsModifier(Modifier):
  """Base of modules that have something of their own for each chosen head."""

  @property
  def heads(self) -> tuple[int, ...]:
    return resolve_heads(self.spec.heads, self.site.heads)


def resolve_heads(choice: HeadChoice, size: int) -> tuple[int, ...]:
  """The numbers chosen among the first `size`."""
  return tuple(range(size)) if choice is None else choice


def on_heads(
  heads: HeadChoice, new_BHQM: Array, old_BHQM: Array, axis: int = 1
) -> Array:
  """The new scores on the chosen heads, the old ones on the others.

  The head axis stays explicit, so a head can only ever be changed by its own
  sentence's facts.

  Args:
    heads: as in `OnHeads`.
    new_BHQM, old_BHQM: scores, or anything else of four axes.
    axis: which of them counts heads.
  """
  head_count = old_BHQM.shape[axis]
  if heads is None or len(set(heads)) == head_count:
    return new_BHQM
  shape = [1, 1, 1, 1]
  shape[axis] = head_count
  return jnp.where(
    np.isin(np.arange(head_count), heads).reshape(shape), new_BHQM, old_BHQM
  )


def of_heads(heads: tuple[int, ...], x: Array, axis: int = 2) -> Array:
  """The chosen heads alone, in the order chosen.

  By slices: by a list of numbers it is a gather, and its gradient a scatter.

  Args:
    heads: one or more.
    x: queries or keys, or anything else that has all heads along an axis.
    axis: which of them counts heads.
  """
  if heads == tuple(range(x.shape[axis])):
    return x
  slices = [jax.lax.slice_in_dim(x, h, h + 1, axis=axis) for h in heads]
  return jnp.concatenate(slices, axis)


def onto_heads(
  heads: tuple[int, ...], new: Array, old: Array, axis: int = 1
) -> Array:
  """`old` with the chosen heads replaced: `of_heads` the other way round.

  Args:
    heads: as in `of_heads`.
    new: of the chosen heads.
    old: of all heads.
    axis: which of them counts heads.
  """
  head_count = old.shape[axis]
  if heads == tuple(range(head_count)):
    return new
  shape = [1] * old.ndim
  shape[axis] = head_count
  head_1H11 = np.arange(head_count).reshape(shape)
  for i, head in enumerate(heads):
    one = jax.lax.slice_in_dim(new, i, i + 1, axis=axis)
    old = jnp.where(head_1H11 == head, one, old)
  return old
