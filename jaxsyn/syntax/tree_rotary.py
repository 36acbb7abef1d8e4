"""Queries and keys that turn by where they stand, in the line and in the tree.

Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding"
(arXiv:2104.09864), Eqs. 14, 15 and 34: pair i of the channels (2i, 2i + 1) turns
by p · θ_i, θ_i = base^(-2i / K), so that a product of query and key knows the
difference of their places p. That p may be a place in the tree is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import ConfigPath, option, with_default
from jaxsyn.syntax.heads import HeadChoice, OnHeads, on_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier, SentenceFeatures, StackShape

BASE = 10000.0  # of the rotation frequencies, as in the paper


def turned(x_BSHK: Array, angle_BSK: Array) -> Array:
  """Vectors turned in the planes of their pairs of channels.

  Args:
    x_BSHK: where K is odd, the last channel stays as it is.
    angle_BSK: of each pair: its K is half of that of x. B may be 1.
  """
  cos, sin = (f(angle_BSK)[:, :, None] for f in (jnp.cos, jnp.sin))
  paired = 2 * angle_BSK.shape[-1]
  even, odd = (x_BSHK[..., i:paired:2].astype(jnp.float32) for i in (0, 1))
  pairs = even * cos - odd * sin, even * sin + odd * cos
  new_BSHK = jnp.stack(pairs, -1).reshape(*x_BSHK.shape[:-1], paired)
  new_BSHK = new_BSHK.astype(x_BSHK.dtype)
  return jnp.concatenate([new_BSHK, x_BSHK[..., paired:]], -1)


class _TreeRotary(Modifier):
  def _place_BS(
    self, view: SentenceFeatures, by: str, position_S: Array
  ) -> Array:
    """Where each stands, float32; in a sentence without a tree, in the line."""
    line_1S = position_S[None].astype(jnp.float32)
    if by == "line":
      return line_1S
    # Roots are at depth 1, and what has no word above them, at 0.
    place_BS = view.depth_BS + 1 if by == "depth" else view.parent_mid_BS
    line_BS = jnp.broadcast_to(line_1S, place_BS.shape)
    return view.where_parsed(place_BS.astype(jnp.float32), line_BS)

  def _angle_BSK(self, view: SentenceFeatures, position_S: Array) -> Array:
    """Of each pair of channels."""
    spec: TreeRotary = self.spec
    pairs = self.site.head_width // 2
    speed_K = BASE ** (-jnp.arange(pairs) / pairs)
    # The pairs take turns, so that both have slow ones and fast ones.
    places = [self._place_BS(view, by, position_S) for by in spec.by]
    second_K = jnp.arange(pairs) % 2 == 1
    place_BSK = jnp.where(second_K, places[1][..., None], places[0][..., None])
    return place_BSK * speed_K

  def project(
    self, q_BQHK: Array, k_BMHK: Array, view: SentenceFeatures
  ) -> tuple[Array, Array]:
    heads = self.spec.heads
    angle_BQK, angle_BMK = (
      self._angle_BSK(view, at) for at in (view.position_Q, view.position_M)
    )
    # What is left of the product of two equal vectors, over all pairs alike.
    angle_BQMK = angle_BQK[:, :, None] - angle_BMK[:, None, :]
    equal_BQM = jnp.cos(angle_BQMK).mean(-1)
    shape = (len(q_BQHK), *equal_BQM.shape[1:])
    publish(self, "turned_BQM", jnp.broadcast_to(equal_BQM, shape))
    return (
      on_heads(heads, turned(q_BQHK, angle_BQK), q_BQHK, axis=2),
      on_heads(heads, turned(k_BMHK, angle_BMK), k_BMHK, axis=2),
    )


@dataclasses.dataclass(frozen=True)
class TreeRotary(OnHeads):
  """Rotary positions of two kinds, for half of the channels of q and k each.

  With both in the line it is that of the paper, of which the other places take
  every second pair of channels. In a decoder the keys of the past turn anew at
  each step, as parts that make keys do.
  """

  layers: HeadChoice = with_default(OnHeads, "layers", None)
  heads: HeadChoice = with_default(OnHeads, "heads", None)
  by: tuple[
    Literal["line", "depth", "parent"], Literal["line", "depth", "parent"]
  ] = option(
    ("line", "depth"),
    "Positions that rotate the first, third, ... pair of channels, and "
    'the other pairs: "line", the position in subwords; "depth", the '
    'number of edges below the root plus 1 (0 for EOS); "parent", the '
    "middle of the parent in subwords.",
  )

  modifier: ClassVar[type[Modifier]] = _TreeRotary
  stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
  no_tree_options: ClassVar[Mapping[str, Any] | None] = {"by": ("line", "line")}

  @property
  def required_features(self) -> tuple[str, ...]:
    facts = {"line": "", "depth": "head", "parent": "parent_mid"}
    return tuple(dict.fromkeys(facts[by] for by in self.by if facts[by]))

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    super().check(at, stack_shape)
    if (
      stack_shape.stack == "decoder"
      and self.is_active(stack_shape)
      and self.required_features
    ):
      raise (at / "by").error(
        f"={self.by}: what a decoder writes has no tree; take ('line', 'line')."
      )
