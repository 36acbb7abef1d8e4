"""Parts that write over the last dimensions of the embeddings.

Letters: P of a part's own dimensions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import At, option
from jaxsyn.options.bounds import CountOrOff
from jaxsyn.syntax.part import Part, Site, Spec, View


@dataclasses.dataclass(frozen=True)
class LastDimensions(Spec):
  """A part of which two clash: each would take the other's dimensions."""

  size: CountOrOff = option(0, "Dimensions taken, the last ones; 0: none.")

  what: ClassVar[str]  # takes them, for messages
  embeds: ClassVar[bool] = True
  replaces: ClassVar[bool] = True
  off: ClassVar[Mapping[str, Any]] = {"size": 0}

  def cells(self, layers: int, heads: int) -> set[tuple[int, int]]:
    return last_cell(self.size)

  def check(self, at: At, site: Site) -> None:
    if self.size > site.width:
      raise (at / "size").error(
        f"={self.size} must be from 0 to config.model.width={site.width}: "
        f"{self.what} takes so many dimensions of the token embedding."
      )


def last_cell(size: int) -> set[tuple[int, int]]:
  """`cells` of a part that takes some last dimensions: one that all take."""
  return {(-1, -1)} if size else set()


def with_last(x_BSD: Array, own_BSP: Array, view: View) -> Array:
  """Embeddings whose last dimensions are a part's own, where there is a tree."""
  token_BSD = x_BSD[..., : x_BSD.shape[-1] - own_BSP.shape[-1]]
  own_BSP = own_BSP.astype(x_BSD.dtype)
  return view.if_parsed(jnp.concatenate([token_BSD, own_BSP], -1), x_BSD)


class LastDimensionsPart(Part):
  """Base of the modules; they say what is written there."""

  def own(self, x_BSD: Array, view: View) -> Array:
    """The part's own dimensions (own_BSP), from whole embeddings."""
    raise NotImplementedError

  def embed(self, x_BSD: Array, view: View) -> Array:
    return with_last(x_BSD, self.own(x_BSD, view), view)
