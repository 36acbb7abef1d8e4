"""Source dependency representation: an encoding of a word's tree neighbors.

Chen, Wang, Utiyama, Liu, Tamura, Sumita & Zhao 2017, "Neural Machine
Translation with Source Dependency Representation" (EMNLP, D17-1304, from memory),
model 1; their model 2 is `jaxsyn.syntax.windows.source_dependency`. The paper
pools pairs and convolves again; here there is one convolution and one maximum
over the complete unit.

Letters: U position in a unit of words; O offset in a kernel; P channel.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import CountOrOff
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.last_dimensions import LastDimensions, replace_last
from jaxsyn.syntax.modifier import Modifier

# Values of the paper: maximum number of words in a unit, and width of the
# convolution in words.
LENGTH, KERNEL = 10, 3


def membership(features: SentenceFeatures) -> Array:
  """Returns a mask (BSW) of the subwords that belong to each word.

  There is one more word than parents, "no word": that of EOS and padding.
  """
  no_word = features.head_BW.shape[1]
  is_word_BS = features.real_BS & features.is_word_BS
  word_BS = jnp.where(is_word_BS, features.word_BS, no_word)
  return word_BS[:, :, None] == jnp.arange(no_word + 1)


def units(features: SentenceFeatures, length: int) -> tuple[Array, Array]:
  """Returns each word's unit of tree neighbors: parent, siblings, children.

  Siblings and children are in sentence order. Roots have no parent and are not
  siblings of each other. A word without subwords is in no unit.

  Args:
    features: Features with `word_BS` and `head_BW`.
    length: Maximum number U of members; later ones are dropped.

  Returns:
    member_BWU, indices of words, and real_BWU, False beyond the end of a unit,
    where the member is "no word". The last row is the empty unit of "no word".
    U is at most the number of words.
  """
  no_word = features.head_BW.shape[1]
  index_W = jnp.arange(no_word + 1)
  head_BW = jnp.pad(
    features.head_BW, ((0, 0), (0, 1)), mode="constant", constant_values=no_word
  )
  has_subwords_BW = jnp.any(membership(features), axis=1) & (index_W < no_word)
  is_parent_BWW = head_BW[:, :, None] == index_W
  is_child_BWW = index_W[:, None] == head_BW[:, None, :]
  is_sibling_BWW = head_BW[:, :, None] == head_BW[:, None, :]
  # A root and its children have the same parent, the root, and so count as
  # siblings. Therefore the parent's test comes last.
  group_BWW = jnp.where(is_child_BWW, 2, 3)
  group_BWW = jnp.where(is_sibling_BWW, 1, group_BWW)
  group_BWW = jnp.where(is_parent_BWW, 0, group_BWW)
  is_other_BWW = (index_W[:, None] != index_W) & has_subwords_BW[:, None, :]
  # Sorting by group and position is much faster on a CPU than counting.
  step = no_word + 1
  rank_BWW = jnp.where(is_other_BWW, group_BWW, 3) * step + index_W
  rank_BWU = jnp.sort(rank_BWW, axis=-1)[:, :, :length]
  real_BWU = rank_BWU < 3 * step
  return jnp.where(real_BWU, rank_BWU % step, no_word), real_BWU


class Surroundings(nn.Module):
  """Convolutional encoder of each word's tree neighbors, with max-pooling.

  V = tanh(max_u (b + Σ_o K_oᵀ x_{u+o})) over the members u of the unit; x is the
  mean of a word's subwords. A learned vector "/", initialized to 0, pads both
  ends of a unit; an empty unit is one "/". So V depends on the maximum length
  only if members are dropped.

  Attributes:
    size: Number P of channels.
  """

  size: int

  @nn.compact
  def __call__(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    """Returns an encoding of each subword's tree neighbors (BSP)."""
    D = x_BSD.shape[-1]
    kernel_ODP = self.param(
      "kernel", nn.initializers.lecun_normal(), (KERNEL, D, self.size)
    ).astype(x_BSD.dtype)
    bias_P = self.param("bias", nn.initializers.zeros, (self.size,))
    slash_D = self.param("slash", nn.initializers.zeros, (D,))
    in_word_BSW = membership(features).astype(x_BSD.dtype)
    count_BW = jnp.maximum(jnp.sum(in_word_BSW, axis=1), 1)
    x_BWD = jnp.einsum("BSW,BSD->BWD", in_word_BSW, x_BSD) / count_BW[..., None]
    x_BWD = x_BWD.at[:, -1].set(slash_D.astype(x_BSD.dtype))
    # Words are multiplied before they are gathered, as each is in many units.
    y_OBWP = jnp.einsum("BWD,ODP->OBWP", x_BWD, kernel_ODP)
    member_BWU, real_BWU = units(features, LENGTH)
    U = member_BWU.shape[-1]
    side, no_word = KERNEL // 2, x_BWD.shape[1] - 1
    around_BWU = jnp.pad(
      member_BWU,
      ((0, 0), (0, 0), (side, side)),
      mode="constant",
      constant_values=no_word,
    )

    def take(y_WP: Array, at_WU: Array) -> Array:
      return jnp.take(y_WP, at_WU, axis=0, mode="clip")

    h_BWUP = bias_P.astype(x_BSD.dtype)
    for o in range(KERNEL):
      h_BWUP = h_BWUP + jax.vmap(take)(y_OBWP[o], around_BWU[:, :, o : o + U])
    # The first position counts even in an empty unit, as a "/".
    pooled_BWU1 = (real_BWU | (jnp.arange(U) == 0))[..., None]
    # By argmax, because the gradient of `max`, which is shared between equal
    # values, takes twice as long on a CPU.
    among_BWUP = jnp.where(pooled_BWU1, jax.lax.stop_gradient(h_BWUP), -jnp.inf)
    first_BW1P = jnp.argmax(among_BWUP, axis=2, keepdims=True)
    largest_BWUP = jnp.arange(U)[:, None] == first_BW1P
    h_BWP = jnp.sum(jnp.where(largest_BWUP, h_BWUP, 0), axis=2)
    return jnp.einsum("BSW,BWP->BSP", in_word_BSW, jnp.tanh(h_BWP))


class _SourceDependency(Modifier):
  def setup(self) -> None:
    self.surroundings = Surroundings(self.spec.size)

  def embed(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    return replace_last(x_BSD, self.surroundings(x_BSD, features), features)


@dataclasses.dataclass(frozen=True)
class SourceDependency(LastDimensions):
  """Token embeddings whose last dimensions encode a word's tree neighbors.

  All subwords of a word have its encoding V. It is computed from complete
  embeddings, with the dimensions that it replaces, so that these are trained
  too. A sentence without a tree keeps its embeddings. Positions and dropout are
  applied afterwards.
  """

  size: CountOrOff = option(
    48,
    "Size of V, the vector of a word's tree neighbors, which replaces the "
    "last dimensions of the embedding; 260 of 620 dimensions in the paper. 0: "
    "none.",
  )

  modifier: ClassVar[type[Modifier]] = _SourceDependency
  required_features: ClassVar[tuple[str, ...]] = ("head",)
  content: ClassVar[str] = "V"
