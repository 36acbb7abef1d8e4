"""PASCAL: parent-scaled self-attention, with parent ignoring.

Bugliarello & Okazaki 2020, "Enhancing Machine Translation with
Dependency-Aware Self-Attention" (arXiv:1909.03149), section 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.options import ConfigPath, option, with_default
from jaxsyn.options.bounds import Probability
from jaxsyn.syntax.gaussian import Gaussian, GaussianModifier
from jaxsyn.syntax.heads import HeadChoice, OnHeads
from jaxsyn.syntax.modifier import Modifier, SentenceFeatures, StackShape

# Options of `Gaussian` that a weight of 0 or 1 has no use for.
SHAPES = ("sigma", "normalise")


def parent_offset_BQM(parent_BQ: Array, length_M: int) -> Array:
  """Signed distance of each remembered position from the query's parent.

  Args:
    parent_BQ: middle of the parent word, in subwords from 0; fractional where
      the parent has an even number of subwords. A root is its own parent.
    length_M: number of remembered positions.

  Returns: m - parent[b,q], float32, in subwords.
  """
  position_11M = jnp.arange(length_M, dtype=jnp.float32)[None, None, :]
  return position_11M - parent_BQ.astype(jnp.float32)[:, :, None]


def parent_only_BQM(parent_BQ: Array, length_M: int) -> Array:
  """True at the parent's middle: "parent-only" of the ablation, Table 7b.

  Positions nearer than one subword count: the middle subword of a parent of an
  odd number of them; of an even number, where the middle falls between two,
  both: 1 each, not 1/2. The paper, "weights are only placed on parents", does
  not say; it is what the authors' code does.
  """
  return jnp.abs(parent_offset_BQM(parent_BQ, length_M)) < 1.0


class _ParentScaled(GaussianModifier):
  def rescore(
    self,
    score_BHQM: Array,
    q_BQHK: Array,
    k_BMHK: Array,
    view: SentenceFeatures,
  ) -> Array:
    spec: ParentScaled = self.spec
    parent_BQ, length_M = view.parent_mid_BS, score_BHQM.shape[3]
    constant = None
    if spec.weighting == "parent_only":
      only_BHQM = parent_only_BQM(parent_BQ, length_M)[:, None]
      exponent_BHQM = jnp.where(only_BHQM, 0.0, -jnp.inf)  # weights 1 and 0
      constant = 1.0  # no density: with its peak the parent had 0.399
    else:
      exponent_BHQM = self.exponent(parent_offset_BQM(parent_BQ, length_M))
    ignored_BHQ1 = None
    if view.train and spec.ignore > 0.0:
      # Drawn for each sentence, head and querying subword (§3.2): the whole
      # row of the matrix becomes ones, i.e. the score stays as it is.
      ignored_BHQ1 = jax.random.bernoulli(
        self.make_rng("syntax"), spec.ignore, (*score_BHQM.shape[:3], 1)
      )
    return self.lay(
      score_BHQM,
      exponent_BHQM,
      view,
      constant=constant,
      untouched_BHQM=ignored_BHQ1,
    )


@dataclasses.dataclass(frozen=True)
class ParentScaled(Gaussian):
  """Gaussian around the middle of the parent, on the scores of chosen heads.

  Distances are in subwords, fractional; σ is in subwords. The density's constant
  is part of the method (section 3.2).
  """

  heads: HeadChoice = with_default(OnHeads, "heads", (0, 1))
  weighting: Literal["gaussian", "parent_only"] = option(
    "gaussian",
    'Weight of a subword: "gaussian", around the parent\'s middle; '
    '"parent_only" (Table 7b), 1 exactly at the parent\'s middle (see '
    '`parent_only_BQM`) and 0 elsewhere, which with apply="multiply" '
    "makes scores 0 and hides nothing. The latter has no σ.",
  )
  ignore: Probability = option(
    0.0,
    "Probability of ignoring a subword's parent in training, sampled for "
    'each layer, head and querying subword. The paper sets "each row" of '
    "the matrix and does not state whether heads or layers share the "
    "sample.",
  )

  modifier: ClassVar[type[Modifier]] = _ParentScaled
  required_features: ClassVar[tuple[str, ...]] = ("parent_mid",)
  noise_free_options: ClassVar[Mapping[str, Any]] = {"ignore": 0.0}

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    super().check(at, stack_shape)
    if self.weighting == "gaussian":
      return
    for field in dataclasses.fields(Gaussian):
      value = getattr(self, field.name)
      if field.name in SHAPES and value != field.default:
        raise (at / field.name).error(
          f"={value!r} shapes a Gaussian and does nothing "
          "with weighting='parent_only'; leave it at "
          f"{field.default!r}."
        )
