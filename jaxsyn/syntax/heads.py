"""Selection of the layers and attention heads that a modifier changes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsyn.options import ConfigPath, option, with_default
from jaxsyn.options.bounds import CountOrOff
from jaxsyn.syntax.modifier import Modifier, ModifierSpec, StackShape

HeadChoice = tuple[int, ...] | None  # None: all


@dataclasses.dataclass(frozen=True)
class OnHeads(ModifierSpec):
  """Base class of modifier options that select attention heads and layers."""

  layers: HeadChoice = option(
    (0,),
    "Layers with this modifier, numbered from 0; None: all layers, or only "
    "the lowest ones if `lowest` is set.",
  )
  heads: HeadChoice = option(
    (0,),
    "Indices of the attention heads with this modifier, from 0, the same in "
    "each layer; None: all heads; (): no heads, as in the baseline.",
  )
  lowest: CountOrOff = option(
    0,
    "If `layers` is None: number of layers with this modifier, counted from "
    "the lowest (larger numbers mean all layers); 0: all layers.",
  )

  disabled_options: ClassVar[Mapping[str, Any]] = {"heads": ()}

  def in_layer(self, layer: int) -> bool:
    if self.layers is None:
      return not self.lowest or layer < self.lowest
    return layer in self.layers

  def active_heads(self, layers: int, heads: int) -> set[tuple[int, int]]:
    active_layers = filter(self.in_layer, range(layers))
    indices = head_indices(self.heads, heads)
    return set(itertools.product(active_layers, indices))

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
            f": {value} is not one of the {size} {field} of the "
            f"{stack_shape.stack}; they count from 0 to {size - 1}."
          )


@dataclasses.dataclass(frozen=True)
class OnAllHeads(OnHeads):
  """Base class of modifier options that default to all heads and layers."""

  layers: HeadChoice = with_default(OnHeads, "layers", None)
  heads: HeadChoice = with_default(OnHeads, "heads", None)


class HeadsModifier(Modifier):
  """Base class of modules that act on selected attention heads."""

  @property
  def heads(self) -> tuple[int, ...]:
    """Indices of the selected attention heads."""
    return head_indices(self.spec.heads, self.site.heads)


def head_indices(choice: HeadChoice, size: int) -> tuple[int, ...]:
  """Returns the indices of the selected attention heads; None selects all."""
  return tuple(range(size)) if choice is None else choice


def on_heads(heads: HeadChoice, new: Array, old: Array, axis: int = 1) -> Array:
  """Returns new values for the selected attention heads, old ones for the rest.

  Args:
    heads: Selected heads; None: all.
    new, old: Scores, or another array with four axes.
    axis: Axis of the heads.
  """
  head_count = old.shape[axis]
  if heads is None or len(set(heads)) == head_count:
    return new
  shape = [1, 1, 1, 1]
  shape[axis] = head_count
  is_selected = np.isin(np.arange(head_count), heads).reshape(shape)
  return jnp.where(is_selected, new, old)


def take_heads(heads: tuple[int, ...], x: Array, axis: int = 2) -> Array:
  """Extracts the selected attention heads from an array, in the given order.

  It concatenates slices, because the gradient of a gather is a scatter.

  Args:
    heads: Indices of one or more heads.
    x: Queries or keys, or another array with all heads.
    axis: Axis of the heads.
  """
  if heads == tuple(range(x.shape[axis])):
    return x
  slices = [jax.lax.slice_in_dim(x, h, h + 1, axis=axis) for h in heads]
  return jnp.concatenate(slices, axis)


def put_heads(
  heads: tuple[int, ...], new: Array, old: Array, axis: int = 1
) -> Array:
  """Replaces the selected attention heads in an array; inverts `take_heads`.

  Args:
    heads: Indices of one or more heads.
    new: Array with the selected heads only.
    old: Array with all heads.
    axis: Axis of the heads.
  """
  head_count = old.shape[axis]
  if heads == tuple(range(head_count)):
    return new
  shape = [1] * old.ndim
  shape[axis] = head_count
  index_1H11 = np.arange(head_count).reshape(shape)
  for i, head in enumerate(heads):
    new_head = jax.lax.slice_in_dim(new, i, i + 1, axis=axis)
    old = jnp.where(index_1H11 == head, new_head, old)
  return old
