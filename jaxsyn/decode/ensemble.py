"""Ensembles: one or several models whose log probabilities are averaged.

An ensemble is log-linear: the log probabilities of the next subword are averaged
with weights, and renormalized over the vocabulary at each step,

  log p(y | past) = Σ_m w_m · log p_m(y | past) - log Σ_v exp Σ_m w_m · log p_m(v)

with weights that sum to 1, so that an ensemble of a model with itself is that model.
(Marian does not renormalize; fairseq averages probabilities.)

Each model reads its own features: parameters, batches, encoder outputs and caches are
sequences with one entry per model. Models may have different architectures and source
vocabularies, but share the target vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.models.contract import EncoderDecoder


@dataclasses.dataclass(frozen=True)
class Ensemble:
  """One or several models with their weights.

  Attributes:
    models: Models.
    weights: Weight of each model; the sum is 1.
  """

  models: tuple[EncoderDecoder, ...]
  weights: tuple[float, ...] = (1.0,)

  def apply(
    self,
    method: str | Callable[..., Any],
    params: Sequence[Any],
    *arguments: Sequence[Any],
    **shared: Any,
  ) -> tuple[Any, ...]:
    """Calls a method of each model, and returns the results.

    Args:
      method: Name of a method of `EncoderDecoder`, or a function of a model.
      params: Parameters of each model.
      *arguments: Arguments, each with one value per model.
      **shared: Arguments with one value for all models.
    """
    return tuple(
      model.apply({"params": one}, *of_model, method=method, **shared)
      for model, one, *of_model in zip(
        self.models, params, *arguments, strict=True
      )
    )

  def average(self, logits: Sequence[Array]) -> Array:
    """Returns the weighted mean of the models' log probabilities (..., V).

    Those of one model are its logits. Symbols that only some models have (those of
    auxiliary tasks) are dropped.
    """
    if len(logits) == 1:
      return logits[0]
    V = min(x.shape[-1] for x in logits)
    weighted = [
      weight * jax.nn.log_softmax(x.astype(jnp.float32), axis=-1)[..., :V]
      for weight, x in zip(self.weights, logits)
    ]
    return functools.reduce(operator.add, weighted)
