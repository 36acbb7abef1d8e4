"""Rotary position embeddings for positions in the sentence or in the tree.

Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding"
(arXiv:2104.09864), Eqs. 14, 15 and 34: pair i of the channels (2i, 2i + 1) is
rotated by p · θ_i, θ_i = base^(-2i / K), so that the product of query and key
depends on the difference of their positions p. Positions in the tree are ours.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import ConfigPath, option
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.heads import OnAllHeads, on_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier, StackShape

BASE = 10000.0  # of the rotation frequencies, as in the paper


def rotate(x_BSHK: Array, angle_BSK: Array) -> Array:
  """Rotates channel pairs of queries or keys by position-dependent angles.

  Args:
    x_BSHK: Queries or keys. If K is odd, the last channel is not rotated.
    angle_BSK: Angle of each pair, with half as many channels K; B may be 1.
  """
  cos, sin = (f(angle_BSK)[:, :, None] for f in (jnp.cos, jnp.sin))
  paired = 2 * angle_BSK.shape[-1]
  even, odd = (x_BSHK[..., i:paired:2].astype(jnp.float32) for i in (0, 1))
  pairs = even * cos - odd * sin, even * sin + odd * cos
  new_BSHK = jnp.stack(pairs, -1).reshape(*x_BSHK.shape[:-1], paired)
  new_BSHK = new_BSHK.astype(x_BSHK.dtype)
  return jnp.concatenate([new_BSHK, x_BSHK[..., paired:]], -1)


class _TreeRotary(Modifier):
  def _rotary_position_BS(
    self, features: SentenceFeatures, by: str, position_S: Array
  ) -> Array:
    """Returns subword positions by sentence order, tree depth or parent."""
    line_1S = position_S[None].astype(jnp.float32)
    if by == "line":
      return line_1S
    # Roots have depth 1; EOS and padding have 0.
    tree_BS = features.depth_BS + 1 if by == "depth" else features.parent_mid_BS
    line_BS = jnp.broadcast_to(line_1S, tree_BS.shape)
    return features.where_parsed(tree_BS.astype(jnp.float32), line_BS)

  def _angle_BSK(self, features: SentenceFeatures, position_S: Array) -> Array:
    pairs = self.site.head_width // 2
    speed_K = BASE ** (-jnp.arange(pairs) / pairs)
    first, second = self.spec.by
    first_BS = self._rotary_position_BS(features, first, position_S)
    second_BS = self._rotary_position_BS(features, second, position_S)
    # Alternating, so that both kinds have slow and fast rotations.
    is_second_K = jnp.arange(pairs) % 2 == 1
    position_BSK = jnp.where(
      is_second_K, second_BS[..., None], first_BS[..., None]
    )
    return position_BSK * speed_K

  def project(
    self, q_BQHK: Array, k_BMHK: Array, features: SentenceFeatures
  ) -> tuple[Array, Array]:
    heads = self.spec.heads
    angle_BQK = self._angle_BSK(features, features.position_Q)
    angle_BMK = self._angle_BSK(features, features.position_M)
    # Mean factor of the product of two equal vectors after rotation.
    angle_BQMK = angle_BQK[:, :, None] - angle_BMK[:, None, :]
    factor_BQM = jnp.cos(angle_BQMK).mean(-1)
    shape = (len(q_BQHK), *factor_BQM.shape[1:])
    publish(self, "turned_BQM", jnp.broadcast_to(factor_BQM, shape))
    return (
      on_heads(heads, rotate(q_BQHK, angle_BQK), q_BQHK, axis=2),
      on_heads(heads, rotate(k_BMHK, angle_BMK), k_BMHK, axis=2),
    )


@dataclasses.dataclass(frozen=True)
class TreeRotary(OnAllHeads):
  """Rotary embeddings of two kinds of positions, each in half of the channels.

  With two positions in the sentence it equals the paper; other positions replace
  those of every second pair of channels. In a decoder, past keys are rotated
  again in each step, because the cache holds keys before `project`.
  """

  by: tuple[
    Literal["line", "depth", "parent"], Literal["line", "depth", "parent"]
  ] = option(
    ("line", "depth"),
    "Two kinds of positions: the first one rotates channel pairs 1, 3, 5, "
    '..., and the second one the other pairs. Kinds: "line", the position in '
    'subwords; "depth", the number of edges below the root plus 1 (0 for '
    'EOS); "parent", the middle subword position of the parent.',
  )

  modifier: ClassVar[type[Modifier]] = _TreeRotary
  stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

  @property
  def required_features(self) -> tuple[str, ...]:
    names = {"line": "", "depth": "head", "parent": "parent_mid"}
    return tuple(dict.fromkeys(names[by] for by in self.by if names[by]))

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    super().check(at, stack_shape)
    if (
      stack_shape.stack == "decoder"
      and self.is_active(stack_shape)
      and self.required_features
    ):
      raise (at / "by").error(
        f"={self.by}: the output of a decoder has no tree; use ('line', 'line')."
      )
