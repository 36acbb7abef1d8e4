"""Heads that see only a word's neighbours in the tree.

Zhang et al. 2020, "SG-Net: Syntax-Guided Machine Reading Comprehension"
(arXiv:1908.05147), section 3: a word sees itself and its ancestors. Li et al.
2021, "Improving BERT with Syntax-aware Local Attention" (arXiv:2012.15150): it
sees what is near in the tree, and a gate mixes that with attention to all. Both
recalled; they have layers or heads of their own beside the model's, here chosen
heads of the model are changed, and nothing is added but the gate.

Letters: X another word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.data.schema import FAR
from jaxsyn.options import At, option, other_default
from jaxsyn.options.bounds import Range
from jaxsyn.syntax.gaussian import HIDDEN
from jaxsyn.syntax.heads import (
  Chosen,
  HeadsPart,
  OnHeads,
  of_heads,
  on_heads,
  onto_heads,
)
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.parents import parents_BWX
from jaxsyn.syntax.part import Part, Site, View


def _siblings(parent_BWX: Array) -> Array:
  """Whether w and x have one parent; roots have none."""
  one_BWX = parent_BWX.astype(jnp.float32)
  return jnp.einsum("BWY,BXY->BWX", one_BWX, one_BWX) > 0


def _ancestors(parent_BWX: Array) -> Array:
  """Whether x is w or stands above it."""
  near_BWX = parent_BWX | jnp.eye(parent_BWX.shape[1], dtype=bool)
  # After k rounds, those up to 2**k edges above.
  for _ in range(max(1, (near_BWX.shape[1] - 1).bit_length())):
    one_BWX = near_BWX.astype(jnp.float32)
    near_BWX = jnp.einsum("BWX,BXY->BWY", one_BWX, one_BWX) > 0
  return near_BWX


def _turned(near_BWX: Array) -> Array:
  return jnp.swapaxes(near_BWX, 1, 2)


# Of `parents_BWX`, whether x is w's parent: to whether w sees x.
RELATIONS: dict[str, Callable[[Array], Array]] = {
  "parent": lambda parent_BWX: parent_BWX,
  "children": _turned,
  "siblings": _siblings,
  "ancestors": _ancestors,
  "descendants": lambda parent_BWX: _turned(_ancestors(parent_BWX)),
}


class _NeighbourHeads(HeadsPart):
  def setup(self) -> None:
    if self.spec.gate:
      vector = nn.initializers.xavier_uniform(-1, (), batch_axis=0)
      shape = len(self.heads), self.where.head_width
      self.gate_HK = self.param("gate_HK", vector, shape)
      zeros = nn.initializers.zeros_init()
      self.gate_H = self.param("gate_H", zeros, (len(self.heads),))

  def _near_BSS(self, view: View) -> Array:
    spec: NeighbourHeads = self.spec
    if spec.relation == "hops":
      near_BWW = view.tree_distance_BWW <= spec.hops
    else:
      near_BWW = RELATIONS[spec.relation](parents_BWX(view))
    near_BSS = view.of_pairs(near_BWW, 0) > 0
    same_BSS = view.word_BS[:, :, None] == view.word_BS[:, None, :]
    own_BSS = same_BSS & view.is_word_BS[:, :, None]
    itself_SS = jnp.eye(near_BSS.shape[1], dtype=bool)
    pad_BS1 = ~view.real_BS[:, :, None]  # a row that hides all sees other pads
    return near_BSS | own_BSS | itself_SS | pad_BS1

  def rescore(
    self, score_BHQM: Array, q_BQHK: Array, k_BMHK: Array, view: View
  ) -> Array:
    spec: NeighbourHeads = self.spec
    near_BSS = self._near_BSS(view)
    near_B1QM = view.if_parsed(near_BSS, jnp.ones_like(near_BSS))[:, None]
    publish(self, "near_BQM", near_B1QM[:, 0].astype(jnp.float32))
    if not spec.gate:
      # A sum, not a choice: the fused attention takes it as its bias.
      bias_B1QM = jnp.where(near_B1QM, 0.0, HIDDEN)
      return on_heads(spec.heads, score_BHQM + bias_B1QM, score_BHQM)
    q_BQHK = of_heads(self.heads, q_BQHK).astype(jnp.float32)
    logit_BHQ = self.where.head_width**0.5 * jnp.einsum(
      "BQHK,HK->BHQ", q_BQHK, self.gate_HK
    )
    logit_BHQ1 = (logit_BHQ + self.gate_H[:, None])[..., None]
    none_BHQ1 = jnp.zeros((*score_BHQM.shape[:3], 1), jnp.float32)
    gate_BHQ1 = onto_heads(self.heads, jax.nn.sigmoid(logit_BHQ1), none_BHQ1)
    publish(self, "gate_BHQ", gate_BHQ1[..., 0])
    real_B11M = view.real_BS[:, None, None, :]
    own_BHQM = of_heads(self.heads, score_BHQM, axis=1)
    whole_BHQM = jnp.where(real_B11M, own_BHQM, HIDDEN)
    local_BHQM = jnp.where(real_B11M & near_B1QM, own_BHQM, HIDDEN)
    # The weights are the mixture, and the scores its logarithm: the softmax
    # that follows leaves it as it is.
    mixed_BHQM = jnp.logaddexp(
      jax.nn.log_sigmoid(logit_BHQ1) + jax.nn.log_softmax(local_BHQM),
      jax.nn.log_sigmoid(-logit_BHQ1) + jax.nn.log_softmax(whole_BHQM),
    )
    mixed_BHQM = view.if_parsed(mixed_BHQM, own_BHQM)
    return onto_heads(self.heads, mixed_BHQM, score_BHQM)


@dataclasses.dataclass(frozen=True)
class NeighbourHeads(OnHeads):
  """Chosen heads see words of one relation to the query's word, and that word.

  All subwords of a word see all of those. A word without subwords is passed over:
  its children depend on its own parent; but `hops` are edges of the whole tree. EOS
  sees itself, and so does
  a word without such a relation; a sentence without a tree is seen whole. With a
  gate, of the query q of its head before it is divided by √K,

    weight = g · local + (1 - g) · whole,  g = sigmoid(u · q + b)
  """

  layers: Chosen = other_default(OnHeads, "layers", None)
  heads: Chosen = other_default(OnHeads, "heads", (0, 1))
  relation: Literal[
    "parent", "children", "siblings", "ancestors", "descendants", "hops"
  ] = option(
    "hops",
    'Which words: "parent", "children", "siblings", "ancestors" (SG-Net), '
    '"descendants", or those up to `hops` edges away (Li et al.).',
  )
  hops: Annotated[int, Range(1, FAR - 1)] = option(
    2, 'Of relation="hops".', unit="edges"
  )
  gate: bool = option(
    False, "Mixes what the neighbours give with what all words give."
  )

  part: ClassVar[type[Part]] = _NeighbourHeads

  @property
  def additive(self) -> bool:
    return not self.gate

  @property
  def reads(self) -> tuple[str, ...]:
    return ("tree_distance",) if self.relation == "hops" else ("head",)

  def check(self, at: At, site: Site) -> None:
    super().check(at, site)
    if self.relation != "hops":
      self.refuse_changed(at, ["hops"], f"relation={self.relation!r}")
