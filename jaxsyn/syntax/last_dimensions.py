"""Parts that write over the last dimensions of the embeddings.

Letters: P of a part's own dimensions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import CountOrOff
from jaxsyn.syntax.modifier import (
  Modifier,
  ModifierSpec,
  SentenceFeatures,
  StackShape,
)


@dataclasses.dataclass(frozen=True)
class LastDimensions(ModifierSpec):
  """A part of which two clash: each would take the other's dimensions."""

  size: CountOrOff = option(
    0, "Number of last dimensions of the embedding that are replaced; 0: none."
  )

  what: ClassVar[str]  # takes them, for messages
  embeds: ClassVar[bool] = True
  replaces: ClassVar[bool] = True
  disabled_options: ClassVar[Mapping[str, Any]] = {"size": 0}

  def active_heads(self, layers: int, heads: int) -> set[tuple[int, int]]:
    return last_cell(self.size)

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    if self.size > stack_shape.width:
      raise (at / "size").error(
        f"={self.size} must be from 0 to config.model.width={stack_shape.width}: "
        f"{self.what} takes so many dimensions of the token embedding."
      )


def last_cell(size: int) -> set[tuple[int, int]]:
  """`cells` of a part that takes some last dimensions: one that all take."""
  return {(-1, -1)} if size else set()


def with_last(x_BSD: Array, last_BSP: Array, view: SentenceFeatures) -> Array:
  """Embeddings whose last dimensions are a part's own, where there is a tree."""
  token_BSD = x_BSD[..., : x_BSD.shape[-1] - last_BSP.shape[-1]]
  last_BSP = last_BSP.astype(x_BSD.dtype)
  return view.where_parsed(jnp.concatenate([token_BSD, last_BSP], -1), x_BSD)


class LastDimensionsModifier(Modifier):
  """Base of the modules; they say what is written there."""

  def last_dimensions(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    """The part's own dimensions (own_BSP), from whole embeddings."""
    raise NotImplementedError

  def embed(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    return with_last(x_BSD, self.last_dimensions(x_BSD, view), view)
