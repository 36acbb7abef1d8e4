"""Source dependency representation: what stands around a word in the tree.

Chen, Wang, Utiyama, Liu, Tamura, Sumita & Zhao 2017, "Neural Machine
Translation with Source Dependency Representation" (EMNLP, D17-1304), model 1;
their model 2 is a window, `jaxsyn.syntax.windows.source_dependency`. The paper
is recalled: its text was not at hand. It pools pairs and convolves again; here
there is one convolution, and one maximum over the whole unit.

Letters: U place in a unit of words; O offset in a kernel; P channel of one.
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
from jaxsyn.syntax.last_dimensions import LastDimensions, LastDimensionsModifier
from jaxsyn.syntax.modifier import Modifier, SentenceFeatures

# Values of the paper: maximum number of words in a unit, and width of the
# convolution in words.
LENGTH, KERNEL = 10, 3


def membership(view: SentenceFeatures) -> Array:
  """Which word each subword belongs to; boolean BSW, a word more than heads.

  That last word is nobody: the one of EOS and of pads.
  """
  nobody = view.head_BW.shape[1]
  word_BS = jnp.where(view.real_BS & view.is_word_BS, view.word_BS, nobody)
  return word_BS[:, :, None] == jnp.arange(nobody + 1)


def units(view: SentenceFeatures, length: int) -> tuple[Array, Array]:
  """The unit ⟨parent, siblings, children⟩ of each word, in this order.

  Siblings and children stand as in the sentence. Roots have no parent and are
  no siblings of each other. A word of which no subword begins (one that lies
  within another's piece) is in no unit: there is nothing to know it by.

  Args:
    view: with word_BS and head_BW.
    length: U; what comes later is cut off.

  Returns: member_BWU, word numbers from 0, and real_BWU, False beyond the end
    of a unit, where the member is nobody. A row more than heads: that of
    nobody, which is empty. U is `length`, or less where no unit can be so long.
  """
  nobody = view.head_BW.shape[1]
  index_W = jnp.arange(nobody + 1)
  head_BW = jnp.pad(
    view.head_BW, ((0, 0), (0, 1)), mode="constant", constant_values=nobody
  )
  seen_BW = jnp.any(membership(view), axis=1) & (index_W < nobody)
  parent_BWW = head_BW[:, :, None] == index_W
  child_BWW = index_W[:, None] == head_BW[:, None, :]
  sibling_BWW = head_BW[:, :, None] == head_BW[:, None, :]
  # A root is its own head, as it is its children's: they pass for siblings of
  # it, in the same places, and it for one of theirs, unless the parent's test
  # comes last.
  group_BWW = jnp.where(child_BWW, 2, 3)
  group_BWW = jnp.where(sibling_BWW, 1, group_BWW)
  group_BWW = jnp.where(parent_BWW, 0, group_BWW)
  other_BWW = (index_W[:, None] != index_W) & seen_BW[:, None, :]
  # Sorting by group, then place, and not by counting: far faster on a CPU.
  step = nobody + 1
  rank_BWW = jnp.where(other_BWW, group_BWW, 3) * step + index_W
  rank_BWU = jnp.sort(rank_BWW, axis=-1)[:, :, :length]
  real_BWU = rank_BWU < 3 * step
  return jnp.where(real_BWU, rank_BWU % step, nobody), real_BWU


class Surroundings(nn.Module):
  """V of each subword: a convolution over the unit of its word, pooled.

  V = tanh(max_u (b + Σ_o K_oᵀ x_{u+o})) over the members u of the unit, x the
  mean of a word's subwords. Beyond both ends of a unit stands a learned vector
  "/", which starts from zeros; an empty unit is one "/". So V does not depend
  on `length` where nothing is cut off. The tanh, being monotone, may wait until
  after the maximum.

  Attributes:
    size: P, channels of the convolution.
  """

  size: int

  @nn.compact
  def __call__(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    """v_BSP of embeddings; EOS's and pads' is that of an empty unit."""
    D = x_BSD.shape[-1]
    kernel_ODP = self.param(
      "kernel", nn.initializers.lecun_normal(), (KERNEL, D, self.size)
    ).astype(x_BSD.dtype)
    bias_P = self.param("bias", nn.initializers.zeros, (self.size,))
    slash_D = self.param("slash", nn.initializers.zeros, (D,))
    of_BSW = membership(view).astype(x_BSD.dtype)
    count_BW = jnp.maximum(jnp.sum(of_BSW, axis=1), 1)
    x_BWD = jnp.einsum("BSW,BSD->BWD", of_BSW, x_BSD) / count_BW[..., None]
    x_BWD = x_BWD.at[:, -1].set(slash_D.astype(x_BSD.dtype))
    # Words are multiplied before they are gathered: each stands in many units.
    y_OBWP = jnp.einsum("BWD,ODP->OBWP", x_BWD, kernel_ODP)
    member_BWU, real_BWU = units(view, LENGTH)
    U = member_BWU.shape[-1]
    side, nobody = KERNEL // 2, x_BWD.shape[1] - 1
    around_BWU = jnp.pad(
      member_BWU,
      ((0, 0), (0, 0), (side, side)),
      mode="constant",
      constant_values=nobody,
    )

    def take(y_WP: Array, at_WU: Array) -> Array:
      return jnp.take(y_WP, at_WU, axis=0, mode="clip")

    h_BWUP = bias_P.astype(x_BSD.dtype)
    for o in range(KERNEL):
      h_BWUP = h_BWUP + jax.vmap(take)(y_OBWP[o], around_BWU[:, :, o : o + U])
    # The first place counts even in an empty unit: it is a "/" then.
    pooled_BWU1 = (real_BWU | (jnp.arange(U) == 0))[..., None]
    # The largest, by its place: a maximum's own gradient, which shares out
    # between equals, takes a CPU twice as long.
    among_BWUP = jnp.where(pooled_BWU1, jax.lax.stop_gradient(h_BWUP), -jnp.inf)
    first_BW1P = jnp.argmax(among_BWUP, axis=2, keepdims=True)
    largest_BWUP = jnp.arange(U)[:, None] == first_BW1P
    h_BWP = jnp.sum(jnp.where(largest_BWUP, h_BWUP, 0), axis=2)
    return jnp.einsum("BSW,BWP->BSP", of_BSW, jnp.tanh(h_BWP))


class _SourceDependency(LastDimensionsModifier):
  def setup(self) -> None:
    self.surroundings = Surroundings(self.spec.size)

  def last_dimensions(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    return self.surroundings(x_BSD, view)


@dataclasses.dataclass(frozen=True)
class SourceDependency(LastDimensions):
  """Embedding whose last dimensions encode the tree neighbors of the word.

  All subwords of a word bear its V. Words are embedded whole for it, with the
  dimensions that V then takes, so these learn too. A sentence without a tree
  keeps its embeddings. Positions and dropout come afterwards.
  """

  size: CountOrOff = option(
    48,
    "Number of last dimensions of the embedding that hold V, the vector "
    "of a word's tree neighbors; 260 of 620 in the paper. 0: none.",
  )

  modifier: ClassVar[type[Modifier]] = _SourceDependency
  required_features: ClassVar[tuple[str, ...]] = ("head",)
  what: ClassVar[str] = "V"
