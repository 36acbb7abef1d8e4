"""Relative positions: a vector for every kind of pair, beside key and value.

Shaw, Uszkoreit & Vaswani 2018, "Self-Attention with Relative Position
Representations" (arXiv:1803.02155), section 3. The base serves every part that
gives each pair (q, m) one of a few labels and learns a vector a label:

  score = q · (k_m + a^K_label) / √K        mixed = Σ_m weight · (v_m + a^V_label)

There is never a vector a pair: queries meet the labels' vectors first, weights
are summed by label first (section 3.3 goes half that way).

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

from jaxsyn.options import option, with_default
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.heads import HeadChoice, HeadsModifier, OnHeads, on_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier, SentenceFeatures

FEW = 8  # up to so many labels a chain of choices beats a matrix product


def _one_hot_QML(label_1QM: Array, labels: int, dtype: jnp.dtype) -> Array:
  return jax.nn.one_hot(label_1QM[0], labels, dtype=dtype)


@jax.custom_vjp
def spread(value_BQHL: Array, label_BQM: Array) -> Array:
  """What a query has for the label of each pair.

  out[b,h,q,m] = value[b,q,h,label[b,q,m]]

  Gathering and, backwards, scattering are slow on many machines. So labels
  that all sentences share (B = 1 in label_BQM) make a matrix product; labels
  of each sentence a chain of choices, its price growing with their number.

  Args:
    value_BQHL: floats; heads within queries, as a product leaves them.
    label_BQM: from 0, of a small number L; -1: no label, the value is 0.

  Returns: out_BHQM.
  """
  labels = value_BQHL.shape[-1]
  if len(label_BQM) == 1 and labels > FEW:
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
  """The sum over the pairs of each label: `spread` the other way round.

  out[b,q,h,l] = Σ_m weight[b,h,q,m] · [label[b,q,m] = l]

  Args:
    weight_BHQM: floats.
    label_BQM: as in `spread`.
    labels: how many there are, L.

  Returns: out_BQHL.
  """
  if len(label_BQM) == 1:
    one_hot_QML = _one_hot_QML(label_BQM, labels, weight_BHQM.dtype)
    return jnp.einsum("BHQM,QML->BQHL", weight_BHQM, one_hot_QML)
  # One reduction with a sum a label reads the weights once.
  exact = jnp.promote_types(weight_BHQM.dtype, jnp.float32)
  of_label = tuple(
    jnp.where(label_BQM[:, None] == label, weight_BHQM, 0).astype(exact)
    for label in range(labels)
  )
  sums = jax.lax.reduce(
    of_label,
    (jnp.zeros((), exact),) * labels,
    lambda one, other: tuple(a + b for a, b in zip(one, other)),
    (3,),
  )
  sum_BHQL = jnp.stack(sums, -1).astype(weight_BHQM.dtype)
  return jnp.swapaxes(sum_BHQL, 1, 2)


# Both are linear and each is the other's transpose, so each is the other's
# derivative. JAX's own of a reduction of many sums takes a CPU about a hundred
# times as long (6 labels, 48 subwords: 4 ms for 0.04).
spread.defvjp(
  lambda value_BQHL, label_BQM: (
    spread(value_BQHL, label_BQM),
    (label_BQM, value_BQHL.shape[-1]),
  ),
  lambda kept, out_BHQM: (collect(out_BHQM, *kept), None),
)
collect.defvjp(
  lambda weight_BHQM, label_BQM, labels: (
    collect(weight_BHQM, label_BQM, labels),
    label_BQM,
  ),
  lambda labels, label_BQM, out_BQHL: (spread(out_BQHL, label_BQM), None),
)


@dataclasses.dataclass(frozen=True)
class Labelled(OnHeads):
  """A learnt vector for each label of a pair, shared by a layer's heads."""

  layers: HeadChoice = with_default(OnHeads, "layers", None)
  heads: HeadChoice = with_default(OnHeads, "heads", None)
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
  def additive(self) -> bool:
    return not self.values  # whose vectors are summed by weight

  @property
  def labels(self) -> int:
    """How many there are."""
    return 2 * self.clip + 1


class LabelledModifier(HeadsModifier):
  """Base of the modules; they say what label a pair has."""

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

  def used(self, view: SentenceFeatures) -> int:
    """Labels that pairs can have here: the first rows of a table."""
    return self.spec.labels

  def label_BQM(self, view: SentenceFeatures) -> Array:
    """Label of each pair, from 0; -1: none. B is 1 where sentences share it."""
    raise NotImplementedError

  def clipped(self, distance: Array) -> Array:
    """Labels of signed distances: -clip is label 0."""
    clip = self.spec.clip
    return jnp.clip(distance, -clip, clip) + clip

  def rescore(
    self,
    score_BHQM: Array,
    q_BQHK: Array,
    k_BMHK: Array,
    view: SentenceFeatures,
  ) -> Array:
    if self.key_LK is None:
      return score_BHQM
    key_LK = self.key_LK[: self.used(view)].astype(q_BQHK.dtype)
    of_label_BQHL = jnp.einsum(
      "BQHK,LK->BQHL", q_BQHK, key_LK, preferred_element_type=jnp.float32
    )
    bias_BHQM = spread(of_label_BQHL, self.label_BQM(view))
    publish(self, "bias_BHQM", bias_BHQM)
    return on_heads(self.spec.heads, score_BHQM + bias_BHQM, score_BHQM)

  def mix(
    self, mixed_BQHK: Array, weight_BHQM: Array, view: SentenceFeatures
  ) -> Array:
    if self.value_LK is None:
      return mixed_BQHK
    value_LK = self.value_LK[: self.used(view)].astype(mixed_BQHK.dtype)
    of_label_BQHL = collect(weight_BHQM, self.label_BQM(view), self.used(view))
    new_BQHK = mixed_BQHK + jnp.einsum(
      "BQHL,LK->BQHK", of_label_BQHL.astype(mixed_BQHK.dtype), value_LK
    )
    return on_heads(self.spec.heads, new_BQHK, mixed_BQHK, axis=2)


class _Relative(LabelledModifier):
  def used(self, view: SentenceFeatures) -> int:
    # A decoder hides what stands after the query, so half of them is enough.
    halved = self.site.stack == "decoder" and not view.full_context
    return self.spec.clip + 1 if halved else self.spec.labels

  def label_BQM(self, view: SentenceFeatures) -> Array:
    distance_QM = view.position_M[None, :] - view.position_Q[:, None]
    label_QM = self.clipped(distance_QM)
    return jnp.minimum(label_QM, self.used(view) - 1)[None]


@dataclasses.dataclass(frozen=True)
class Relative(Labelled):
  """Relative positions with the label clip(m - q), in subwords (Eq. 7).

  In a decoder distances are of positions in the sentence, so that decoding
  step by step is the same as all at once.
  """

  clip: Count = option(
    16,
    "Maximum distance k in the sentence; larger ones are clipped to it. "
    "Omote et al. 2019 use 2.",
    unit="subwords",
  )

  modifier: ClassVar[type[Modifier]] = _Relative
  stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
