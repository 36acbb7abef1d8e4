"""Relative positions: learned vectors that are added to keys and values.

Shaw, Uszkoreit & Vaswani 2018, "Self-Attention with Relative Position
Representations" (arXiv:1803.02155), section 3. The base classes serve all
modifiers that give each pair (q, m) one of a few labels and learn a vector per
label:

  score = q · (k_m + a^K_label) / √K        mixed = Σ_m weight · (v_m + a^V_label)

No vector is ever made for a pair: queries are multiplied with the vectors of all
labels, and weights are summed by label (section 3.3 does the former).

Letters: L label of a pair.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.heads import HeadsModifier, OnAllHeads, on_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier

MAX_CHAIN = 8  # labels up to which a chain of `where` beats a matrix product


def _one_hot_QML(label_1QM: Array, labels: int, dtype: jnp.dtype) -> Array:
  return jax.nn.one_hot(label_1QM[0], labels, dtype=dtype)


@jax.custom_vjp
def spread(value_BQHL: Array, label_BQM: Array) -> Array:
  """Looks up a value for each query-key pair by its relative-position label.

  The result is value[b,q,h,label[b,q,m]]. Gathers, and scatters in the backward
  pass, are slow on many devices. Labels that all sentences share (B = 1 in
  label_BQM) use a matrix product; others use a chain of L `where`.

  Args:
    value_BQHL: Values of a query by label.
    label_BQM: Labels from 0; -1: no label, with value 0.

  Returns:
    out_BHQM.
  """
  labels = value_BQHL.shape[-1]
  if len(label_BQM) == 1 and labels > MAX_CHAIN:
    one_hot_QML = _one_hot_QML(label_BQM, labels, value_BQHL.dtype)
    return jnp.einsum("BQHL,QML->BHQM", value_BQHL, one_hot_QML)
  value_BHQL = jnp.swapaxes(value_BQHL, 1, 2)
  out_BHQM = jnp.zeros((), value_BHQL.dtype)
  for label in range(labels):
    out_BHQM = jnp.where(
      label_BQM[:, None] == label, value_BHQL[..., label : label + 1], out_BHQM
    )
  return out_BHQM


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def collect(weight_BHQM: Array, label_BQM: Array, labels: int) -> Array:
  """Sums each query's attention weights over the keys with the same label.

  The result is out[b,q,h,l] = Σ_m weight[b,h,q,m] · [label[b,q,m] = l], the
  transpose of `spread`.

  Args:
    weight_BHQM: Weights.
    label_BQM: Labels, as in `spread`.
    labels: Number L of labels.

  Returns:
    out_BQHL.
  """
  if len(label_BQM) == 1:
    one_hot_QML = _one_hot_QML(label_BQM, labels, weight_BHQM.dtype)
    return jnp.einsum("BHQM,QML->BQHL", weight_BHQM, one_hot_QML)
  # One reduction with L sums reads the weights once.
  sum_dtype = jnp.promote_types(weight_BHQM.dtype, jnp.float32)
  terms = tuple(
    jnp.where(label_BQM[:, None] == label, weight_BHQM, 0).astype(sum_dtype)
    for label in range(labels)
  )
  sums = jax.lax.reduce(
    terms,
    (jnp.zeros((), sum_dtype),) * labels,
    lambda first, second: tuple(a + b for a, b in zip(first, second)),
    (3,),
  )
  sum_BHQL = jnp.stack(sums, -1).astype(weight_BHQM.dtype)
  return jnp.swapaxes(sum_BHQL, 1, 2)


# Both functions are linear, and each is the transpose of the other, and so its
# derivative. JAX's derivative of a reduction with many sums takes 100 times as
# long on a CPU (6 labels, 48 subwords: 4 ms instead of 0.04).
spread.defvjp(
  lambda value_BQHL, label_BQM: (
    spread(value_BQHL, label_BQM),
    (label_BQM, value_BQHL.shape[-1]),
  ),
  lambda residuals, out_BHQM: (collect(out_BHQM, *residuals), None),
)
collect.defvjp(
  lambda weight_BHQM, label_BQM, labels: (
    collect(weight_BHQM, label_BQM, labels),
    label_BQM,
  ),
  lambda labels, label_BQM, out_BQHL: (spread(out_BQHL, label_BQM), None),
)


@dataclasses.dataclass(frozen=True)
class Labelled(OnAllHeads):
  """Base class of options for learned relative-position vectors.

  Each query-key pair has a label, and each label a vector, which the heads of a
  layer share.
  """

  keys: bool = option(True, "Whether label vectors a^K are added to the keys.")
  values: bool = option(
    True, "Whether label vectors a^V are added to the values."
  )
  tie: bool = option(
    False,
    "Whether keys and values share one table of label vectors; the papers "
    "have two tables.",
  )
  clip: Count = option(2, "Maximum distance; larger ones are clipped to it.")

  disabled_options: ClassVar[Mapping[str, Any]] = {
    "keys": False,
    "values": False,
  }

  @property
  def is_additive(self) -> bool:
    return not self.values

  @property
  def labels(self) -> int:
    """Number of distinct query-key labels, such as clipped distances."""
    return 2 * self.clip + 1


class LabelledModifier(HeadsModifier):
  """Base class of modules with a learned vector per relative-position label."""

  def setup(self) -> None:
    spec: Labelled = self.spec

    def table(name: str) -> Array:
      return self.param(
        name,
        nn.initializers.xavier_uniform(),
        (spec.labels, self.site.head_width),
      )

    both_LK = table("both_LK") if spec.tie else None
    self.key_LK = self.value_LK = None
    if spec.keys:
      self.key_LK = both_LK if spec.tie else table("key_LK")
    if spec.values:
      self.value_LK = both_LK if spec.tie else table("value_LK")

  def used_labels(self, features: SentenceFeatures) -> int:
    """Returns the number of labels that can occur; their vectors come first."""
    return self.spec.labels

  def label_BQM(self, features: SentenceFeatures) -> Array:
    """Returns the relative-position label of each query-key pair; -1: no label.

    B is 1 if labels do not depend on the sentence.
    """
    raise NotImplementedError

  def clipped(self, distance: Array) -> Array:
    """Clips signed distances and converts them to labels from 0."""
    clip = self.spec.clip
    return jnp.clip(distance, -clip, clip) + clip

  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    if self.key_LK is None:
      return score_BHQM
    query_BQHK = features.query_BQHK
    key_LK = self.key_LK[: self.used_labels(features)].astype(query_BQHK.dtype)
    by_label_BQHL = jnp.einsum(
      "BQHK,LK->BQHL", query_BQHK, key_LK, preferred_element_type=jnp.float32
    )
    bias_BHQM = spread(by_label_BQHL, self.label_BQM(features))
    publish(self, "bias_BHQM", bias_BHQM)
    return on_heads(self.spec.heads, score_BHQM + bias_BHQM, score_BHQM)

  def mix(
    self, mixed_BQHK: Array, weight_BHQM: Array, features: SentenceFeatures
  ) -> Array:
    if self.value_LK is None:
      return mixed_BQHK
    value_LK = self.value_LK[: self.used_labels(features)].astype(
      mixed_BQHK.dtype
    )
    by_label_BQHL = collect(
      weight_BHQM, self.label_BQM(features), self.used_labels(features)
    )
    new_BQHK = mixed_BQHK + jnp.einsum(
      "BQHL,LK->BQHK", by_label_BQHL.astype(mixed_BQHK.dtype), value_LK
    )
    return on_heads(self.spec.heads, new_BQHK, mixed_BQHK, axis=2)


class _Relative(LabelledModifier):
  def used_labels(self, features: SentenceFeatures) -> int:
    # A decoder sees no later keys, so half of the labels is enough.
    halved = self.site.stack == "decoder" and not features.full_context
    return self.spec.clip + 1 if halved else self.spec.labels

  def label_BQM(self, features: SentenceFeatures) -> Array:
    distance_QM = features.position_M[None, :] - features.position_Q[:, None]
    label_QM = self.clipped(distance_QM)
    return jnp.minimum(label_QM, self.used_labels(features) - 1)[None]


@dataclasses.dataclass(frozen=True)
class Relative(Labelled):
  """Relative position vectors for clipped distances in the sentence.

  The label of query q and key m is clip(m - q) (Eq. 7). In a decoder too,
  distances are those of positions in the sentence, so that decoding steps equal
  the parallel pass.
  """

  clip: Count = option(
    16,
    "Maximum distance k in the sentence; larger distances are clipped. Omote "
    "et al. 2019 use 2.",
    unit="subwords",
  )

  modifier: ClassVar[type[Modifier]] = _Relative
  stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
