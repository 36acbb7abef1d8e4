"""PASCAL: parent-scaled self-attention, with parent ignoring.

Bugliarello & Okazaki 2020, "Enhancing Machine Translation with
Dependency-Aware Self-Attention" (arXiv:1909.03149), section 3.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from jaxsyn.errors import InputError
from jaxsyn.syntax.heads import OnHeads, on_heads
from jaxsyn.syntax.part import Part, View

Array = jax.Array


def parent_gaussian_BQM(parent_BQ: Array, length_M: int, sigma: float) -> Array:
  """Normal density of each remembered position around the query's parent.

  out[b,q,m] = exp(-(m - parent[b,q])² / 2σ²) / (σ √(2π))

  Args:
    parent_BQ: middle of the parent word, in subwords from 0; fractional where
      the parent has an even number of subwords. A root is its own parent.
    length_M: number of remembered positions.
    sigma: standard deviation σ in subwords; the paper's variance is σ².

  Returns: density_BQM, float32, per subword; the tails beyond the sentence are
    cut off, so rows sum to at most 1.
  Raises: ValueError if sigma <= 0.
  Source: section 3.2; the normalising constant is part of the method, and acts
    as a temperature: it is 0.399 at the parent for σ = 1.
  """
  if sigma <= 0:
    raise ValueError(f"sigma must be > 0 (subwords), got {sigma}.")
  position_11M = jnp.arange(length_M, dtype=jnp.float32)[None, None, :]
  offset_BQM = position_11M - parent_BQ.astype(jnp.float32)[:, :, None]
  peak = 1.0 / (sigma * math.sqrt(2.0 * math.pi))
  return peak * jnp.exp(-0.5 * jnp.square(offset_BQM / sigma))


def parent_only_BQM(parent_BQ: Array, length_M: int) -> Array:
  """1 at the parent's middle, 0 elsewhere: "parent-only" of the ablation.

  Positions nearer than one subword count, so a fractional middle chooses both
  of its neighbours. Zero leaves a score of 0; it does not hide a position.
  Source: Table 7b; the window is how the authors' code reads it.
  """
  position_11M = jnp.arange(length_M, dtype=jnp.float32)[None, None, :]
  near_BQM = jnp.abs(position_11M - parent_BQ[:, :, None]) < 1.0
  return near_BQM.astype(jnp.float32)


class _ParentScaled(Part):
  def rescore(
    self,
    score_BHQM: Array,
    q_BQHK: Array,
    k_BMHK: Array,
    view: View,
    *,
    train: bool,
  ) -> Array:
    spec: ParentScaled = self.spec
    length = score_BHQM.shape[3]
    if spec.weighting == "parent_only":
      weighting_BQM = parent_only_BQM(view.parent_mid_BS, length)
    else:
      weighting_BQM = parent_gaussian_BQM(
        view.parent_mid_BS, length, spec.sigma
      )
    if view.parsed_B is not None:  # no tree: the plain score
      weighting_BQM = jnp.where(
        view.parsed_B[:, None, None], weighting_BQM, 1.0
      )
    weighting_BHQM = weighting_BQM[:, None]
    if train and spec.ignore > 0.0:
      # Drawn for each sentence, head and querying subword (§3.2): the whole
      # row of the matrix becomes ones, i.e. the score stays as it is.
      kept_BHQ1 = jax.random.bernoulli(
        self.make_rng("syntax"),
        1.0 - spec.ignore,
        (*score_BHQM.shape[:3], 1),
      )
      weighting_BHQM = jnp.where(kept_BHQ1, weighting_BHQM, 1.0)
    scaled_BHQM = score_BHQM * weighting_BHQM.astype(score_BHQM.dtype)
    return on_heads(spec.heads, scaled_BHQM, score_BHQM)


@dataclasses.dataclass(frozen=True)
class ParentScaled(OnHeads):
  """Scores of the chosen heads times a Gaussian around the parent.

  The product is on raw scores, as published: a small factor pulls a negative
  score *up* toward 0, so the heads must learn positive scores near parents.

  Attributes:
    sigma: standard deviation in subwords.
    weighting: "gaussian", or "parent_only": 1 at the parent and 0 elsewhere.
    ignore: probability of ignoring a subword's parent, in training only.
  """

  sigma: float = 1.0
  weighting: Literal["gaussian", "parent_only"] = "gaussian"
  ignore: float = 0.0

  part: ClassVar[type[Part]] = _ParentScaled
  needs: ClassVar[tuple[str, ...]] = ("parent_mid",)

  def check(self, where: str, model) -> None:
    super().check(where, model)
    if self.sigma <= 0:
      raise InputError(
        f"{where}.sigma must be above 0 (subwords), got {self.sigma}."
      )
    if not 0 <= self.ignore <= 1:
      raise InputError(
        f"{where}.ignore is a probability from 0 to 1, got {self.ignore}."
      )
