"""Context-aware self-attention: queries and keys mixed with a sentence context.

Yang et al. 2019, "Context-Aware Self-Attention Networks" (arXiv:1902.05766);
compared by Peng et al., "Boosting Neural Machine Translation with
Dependency-Scaled Self-Attention Network".
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.arrays.product import product
from jaxsyn.options import ConfigPath, option, with_default
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.heads import (
  HeadChoice,
  HeadsModifier,
  OnHeads,
  put_heads,
  take_heads,
)
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier, StackShape


def mean_B1D(x_BSD: Array, real_BS: Array) -> Array:
  """Returns the mean vector of each sentence's subwords, padding excluded."""
  # At least 1, because 0 / 0 in a row of padding makes the gradient NaN.
  count_B11 = jnp.maximum(real_BS.sum(1), 1)[:, None, None]
  real_BSD = jnp.where(real_BS[:, :, None], x_BSD.astype(jnp.float32), 0.0)
  return (real_BSD.sum(1, keepdims=True) / count_B11).astype(x_BSD.dtype)


class _Gated(nn.Module):
  """Learned gate that mixes queries or keys with a context vector.

  The result is (1 - λ) X + λ C U for queries or keys X, a context C, a learned
  matrix U and the gate λ.
  """

  heads: int
  head_width: int

  @nn.compact
  def __call__(
    self, x_BSHK: Array, context_BSD: Array, scale: float
  ) -> tuple[Array, Array]:
    """Returns queries or keys mixed with a context, and the gate values.

    Args:
      x_BSHK: Queries or keys of the selected heads.
      context_BSD: Context C of any width D; S may be 1.
      scale: Factor by which x is multiplied, and the result too.

    Returns:
      The mixture, shaped as x_BSHK, and gate_BSH, λ in float32.
    """
    shape = self.heads, self.head_width
    context_DHK = self.param(
      "context_DHK",  # U
      nn.initializers.xavier_uniform(0, (1, 2)),
      (context_BSD.shape[-1], *shape),
    )
    # One vector per head; the heads do not add to its fan.
    vector = nn.initializers.xavier_uniform(-1, (), batch_axis=0)
    own_gate_HK = self.param("own_gate_HK", vector, shape)  # V
    context_gate_HK = self.param("context_gate_HK", vector, shape)  # V'
    context_BSHK = product(
      context_BSD, context_DHK.astype(x_BSHK.dtype), (((2,), (0,)), ((), ()))
    )

    def logit(y_BSHK: Array, gate_HK: Array) -> Array:
      return jnp.einsum("BSHK,HK->BSH", y_BSHK.astype(jnp.float32), gate_HK)

    gate_BSH = jax.nn.sigmoid(
      logit(x_BSHK, own_gate_HK) / scale + logit(context_BSHK, context_gate_HK)
    )
    gate_BSH1 = gate_BSH[..., None].astype(x_BSHK.dtype)
    new_BSHK = (1 - gate_BSH1) * x_BSHK + gate_BSH1 * (scale * context_BSHK)
    return new_BSHK, gate_BSH


class _Context(HeadsModifier):
  def setup(self) -> None:
    heads = len(self.heads)
    self.query = _Gated(heads, self.site.head_width)
    self.key = _Gated(heads, self.site.head_width)

  def _context_BSD(self, features: SentenceFeatures) -> Array:
    """Computes the context vectors from the inputs of this and lower layers.

    For means over the sentence, S is 1. D is a multiple of the model width.
    """
    inputs = features.inputs
    if self.spec.context == "deep":
      return jnp.concatenate(inputs[:-1], axis=-1)
    if self.spec.context == "global":
      inputs = inputs[-1:]
    return jnp.concatenate([mean_B1D(x, features.real_BS) for x in inputs], -1)

  def project(
    self, q_BQHK: Array, k_BMHK: Array, features: SentenceFeatures
  ) -> tuple[Array, Array]:
    context_BSD = self._context_BSD(features).astype(q_BQHK.dtype)

    def gated(
      module: _Gated, x_BSHK: Array, scale: float
    ) -> tuple[Array, Array]:
      selected_BSHK = take_heads(self.heads, x_BSHK)
      new_BSHK, gate_BSH = module(selected_BSHK, context_BSD, scale)
      zero_BSH = jnp.zeros(x_BSHK.shape[:3], gate_BSH.dtype)
      return (
        put_heads(self.heads, new_BSHK, x_BSHK, axis=2),
        put_heads(self.heads, gate_BSH, zero_BSH, axis=2),
      )

    q_BQHK, gate_BQH = gated(self.query, q_BQHK, self.site.head_width**-0.5)
    k_BMHK, gate_BMH = gated(self.key, k_BMHK, 1.0)
    publish(self, "query_gate_BQH", gate_BQH)
    publish(self, "key_gate_BMH", gate_BMH)
    return q_BQHK, k_BMHK


@dataclasses.dataclass(frozen=True)
class Context(OnHeads):
  """Learned gates that mix a context vector into queries and keys.

  Q̂ = (1 - λ) Q + λ C U,  λ = sigmoid(Q V + (C U) V')

  and the same for keys, with separate parameters. Q is the query before it is
  divided by √K; Q̂ is divided afterwards. It reads no tree.

  Choices that the paper leaves open: there is one λ per position and head,
  computed from the head's slices of Q and C U; U reads the context in the full
  model width; there are no biases; means exclude padding. The input of a layer
  is that of its attention, in a pre-norm model after the norm.
  """

  layers: HeadChoice = option(
    None,
    "Layers with this modifier, numbered from 0; None: all, as in the encoder "
    "of the paper.",
  )
  heads: HeadChoice = with_default(OnHeads, "heads", None)
  context: Literal["global", "deep", "deep_global"] = option(
    "global",
    'Context vector C: "global", the mean over the positions of the '
    'layer\'s input; "deep", the concatenated inputs of all previous '
    "layers at each position (none in the first layer, which stays "
    'unchanged); "deep_global", the concatenated means of the inputs of '
    "this layer and all previous ones.",
  )

  modifier: ClassVar[type[Modifier]] = _Context

  def in_layer(self, layer: int) -> bool:
    first = self.context == "deep" and layer == 0
    return super().in_layer(layer) and not first

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    super().check(at, stack_shape)
    is_disabled = () in (self.layers, self.heads)
    if not is_disabled and not self.is_active(stack_shape):
      raise (at / "context").error(
        "='deep' uses the inputs of previous layers, and the first layer of the "
        f"{stack_shape.stack} has none; select a layer above it."
      )
