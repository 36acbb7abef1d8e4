"""Learned attention-score biases for the tree path between two words.

Ying et al. 2021, "Do Transformers Really Perform Bad for Graph Representation?"
(Graphormer, arXiv:2106.05234, from memory), sections 3.1.2 and 3.1.3: spatial
encoding (Eq. 6) and edge encoding (Eq. 7), there of molecules, here of
dependency trees. Eq. 7 multiplies a vector of the edge with one of its position
on the path; here each position, relation and direction has its own bias. As in
the authors' code (from memory), edge encodings cover 5 edges, and biases are
initialized from N(0, 0.02²).

Letters: L kind of a pair; R relation and direction of an edge; E edge of a path;
X word on a path.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.data.schema import OTHER_TREE
from jaxsyn.options import option
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.modifier import Modifier
from jaxsyn.syntax.pair_bias import PairBias, PairBiasModifier

# A lookup by a product with one-hot vectors, which a TPU would round.
EXACT = jax.lax.Precision.HIGHEST
INITIALIZER = nn.initializers.normal(0.02)
MAX_EDGES = 5  # number of first edges of a path that are encoded


def steps_BWW(features: SentenceFeatures) -> tuple[Array, Array]:
  """Counts the edges up and down on the tree path from one word to another.

  The edges up lead to the lowest common ancestor, and the edges down from it.

  Args:
    features: Features with `head_BW` and `tree_distance_BWW`.

  Returns:
    up_BWW and down_BWW, int32, for pairs of words in one tree.
  """
  # up + down is the distance, and up - down the difference of the depths.
  distance_BWW = features.tree_distance_BWW.astype(jnp.int32)
  depth_BW = features.depth_BW
  lower_BWW = depth_BW[:, :, None] - depth_BW[:, None, :]
  up_BWW = jnp.maximum(distance_BWW + lower_BWW, 0) // 2
  return up_BWW, jnp.maximum(distance_BWW - up_BWW, 0)


def edges_EBWW(
  features: SentenceFeatures, max_edges: int, relations: int
) -> Array:
  """Returns the (relation, direction) id of each tree path's first edges.

  Args:
    features: Features with `head_BW`, `relation_BW` and `tree_distance_BWW`.
    max_edges: Number E of first edges.
    relations: Number of relations, which have ids from 1; 0: unknown relation.

  Returns:
    edge_EBWW: relation of the word below the edge, plus 1 + `relations` for an
    edge that leads down; -1 where the path has ended.
  """
  distance_BWW = features.tree_distance_BWW.astype(jnp.int32)
  up_BWW, _ = steps_BWW(features)
  connected_BWW = distance_BWW != OTHER_TREE
  # Word x is the n-th on the path from q to m if it is n edges from q, and the
  # others of their distance from m. There is at most one such word.
  from_q_BQMX = distance_BWW[:, :, None, :]
  to_m_BQMX = distance_BWW[:, None, :, :]
  distance_BQM1 = distance_BWW[:, :, :, None]
  relation_B11X = features.relation_BW[:, None, None, :].astype(jnp.int32)

  def relation_at(n: int) -> Array:
    on_BQMX = (from_q_BQMX == n) & (to_m_BQMX == distance_BQM1 - n)
    return jnp.sum(jnp.where(on_BQMX, 1 + relation_B11X, 0), axis=-1) - 1

  at = [relation_at(n) for n in range(max_edges + 1)]
  edges = []
  for n in range(max_edges):
    down_BWW = jnp.where(at[n + 1] < 0, -1, at[n + 1] + 1 + relations)
    edge_BWW = jnp.where(n < up_BWW, at[n], down_BWW)
    edges.append(jnp.where(connected_BWW & (n < distance_BWW), edge_BWW, -1))
  return jnp.stack(edges)


class _TreeBias(PairBiasModifier):
  def make_parameters(self) -> None:
    spec: TreeBias = self.spec
    heads = len(self.heads)
    self.bias_LH = self.param("bias_LH", INITIALIZER, (spec.kinds, heads))
    if spec.edges:
      shape = MAX_EDGES, 2 * (1 + self.site.relations), heads
      self.edge_ERH = self.param("edge_ERH", INITIALIZER, shape)

  def _label_BWW(self, features: SentenceFeatures) -> Array:
    spec: TreeBias = self.spec
    clip, no_path = spec.clip, spec.kinds - 2
    distance_BWW = features.tree_distance_BWW.astype(jnp.int32)
    if spec.kind == "distance":
      label_BWW = jnp.minimum(distance_BWW, clip)
    else:
      up_BWW, down_BWW = (jnp.minimum(x, clip) for x in steps_BWW(features))
      label_BWW = (clip + 1) * up_BWW + down_BWW
    return jnp.where(distance_BWW == OTHER_TREE, no_path, label_BWW)

  def _edge_bias_BWWH(self, features: SentenceFeatures) -> Array:
    """Returns the mean bias of the edges on the path between two words."""
    edge_EBWW = edges_EBWW(features, MAX_EDGES, self.site.relations)
    one_EBWWR = jax.nn.one_hot(edge_EBWW, self.edge_ERH.shape[1])
    sum_BWWH = jnp.einsum(
      "EBWXR,ERH->BWXH", one_EBWWR, self.edge_ERH, precision=EXACT
    )
    count_BWW = jnp.sum(edge_EBWW >= 0, axis=0)
    return sum_BWWH / jnp.maximum(count_BWW, 1)[..., None]

  def bias_BHQM(self, features: SentenceFeatures) -> Array:
    spec: TreeBias = self.spec
    one_BWWL = jax.nn.one_hot(self._label_BWW(features), spec.kinds)
    bias_BWWH = jnp.einsum(
      "BWXL,LH->BWXH", one_BWWL, self.bias_LH, precision=EXACT
    )
    if spec.edges:
      bias_BWWH = bias_BWWH + self._edge_bias_BWWH(features)
    # Expanded to subwords; those without a word read row W.
    B, W, _, H = bias_BWWH.shape
    none_WWH = jnp.broadcast_to(self.bias_LH[-1], (B, W + 1, W + 1, H))
    padded_BWWH = none_WWH.at[:, :W, :W].set(bias_BWWH)
    word_BS = jnp.where(features.is_word_BS, features.word_BS, W)
    one_BSW = jax.nn.one_hot(word_BS, W + 1)
    bias_BHSS = jnp.einsum(
      "BSW,BWXH,BRX->BHSR", one_BSW, padded_BWWH, one_BSW, precision=EXACT
    )
    return features.where_parsed(bias_BHSS, 0.0)


@dataclasses.dataclass(frozen=True)
class TreeBias(PairBias):
  """Learned attention-score bias for the tree path of two words (Graphormer).

  The result is score + b_h[φ(q, m)] + c_hqm with the kind φ of the path and a
  term c for its edges. All subwords of a word have its position. Pairs of words
  in different trees share one bias, and pairs with EOS another; a sentence
  without a tree has no bias. A path of more than 254 edges counts as one of 254
  edges, and its edges are not encoded (c = 0). The paper's virtual node and
  centrality encoding are omitted.
  """

  kind: Literal["distance", "steps"] = option(
    "distance",
    'Kind φ of a pair of words: "distance", the number of edges between them, '
    'as published; "steps", the numbers of edges up to their lowest common '
    "ancestor and down from it, both clipped, which distinguish parent, "
    "child, sibling and ancestor (a factor in Kim et al. 2020, not checked "
    "against the paper).",
  )
  clip: Count = option(
    8,
    "Maximum distance or number of steps, K; larger values are clipped to it. "
    "The paper has no limit.",
    unit="edges",
  )
  edges: bool = option(
    False,
    "Whether to add a term c: a learned bias per edge (position on the path, "
    "relation, direction), averaged over the path.",
  )
  modifier: ClassVar[type[Modifier]] = _TreeBias

  @property
  def kinds(self) -> int:
    """Number of kinds of word pairs, including "no path" and "with EOS"."""
    steps = self.clip + 1
    return (steps if self.kind == "distance" else steps * steps) + 2

  @property
  def required_features(self) -> tuple[str, ...]:
    if self.edges:
      return ("tree_distance", "head", "relation")
    if self.kind == "steps":
      return ("tree_distance", "head")
    return ("tree_distance",)
