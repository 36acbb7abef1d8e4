"""Ensemble decoding, which averages the log probabilities of several models.

The ensemble is log-linear: the log probabilities of the next subword are averaged
with weights, and renormalized over the vocabulary at each step,

  log p(y | past) = Σ_m w_m · log p_m(y | past) - log Σ_v exp Σ_m w_m · log p_m(v)

with weights that sum to 1, so that an ensemble of a model with itself is that model.
(Marian does not renormalize; fairseq averages probabilities.)

Each member reads its own features: sources, encoder outputs and caches are tuples
with one entry per member. Members may have different architectures and source
vocabularies, but share the target vocabulary.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.models import contract
from jaxsyn.models.contract import EncoderDecoder
from jaxsyn.syntax import SentenceFeatures


class Ensemble(nn.Module):
  """Ensemble of models with the decoding methods of one `EncoderDecoder`.

  The parameters are {"members_0": parameters of the first member, ...}.

  Attributes:
    members: Models.
    weights: Weight of each model; the sum is 1.
  """

  members: tuple[EncoderDecoder, ...]
  weights: tuple[float, ...]

  def encode(
    self, id_BS: Sequence[Array], source: Sequence[SentenceFeatures]
  ) -> tuple[Any, ...]:
    return self._each("encode", id_BS, source)

  def project_memory(self, encoded: Sequence[Any]) -> tuple[Any, ...]:
    return self._each("project_memory", encoded)

  def start(
    self, encoded: Sequence[Any], beams: int, length: int
  ) -> tuple[Any, ...]:
    member_count = len(self.members)
    return self._each(
      "start", encoded, [beams] * member_count, [length] * member_count
    )

  def advance(
    self,
    encoded: Sequence[Any],
    cache: Sequence[Any],
    token_BN: Array,
    at: Array,
  ) -> tuple[Array, tuple[Any, ...]]:
    member_count = len(self.members)
    advanced = self._each(
      "advance",
      encoded,
      cache,
      [token_BN] * member_count,
      [at] * member_count,
    )
    logits, caches = zip(*advanced)
    return self.average(logits), caches

  def reorder(self, cache: Sequence[Any], beam_BN: Array) -> tuple[Any, ...]:
    return self._each("reorder", cache, [beam_BN] * len(self.members))

  def average(self, logits: Sequence[Array]) -> Array:
    """Returns the weighted mean of the members' log probabilities (..., V).

    Symbols that only some members have (those of auxiliary tasks) are dropped.
    """
    V = min(x.shape[-1] for x in logits)
    weighted = [
      weight * jax.nn.log_softmax(x.astype(jnp.float32), axis=-1)[..., :V]
      for weight, x in zip(self.weights, logits)
    ]
    return functools.reduce(operator.add, weighted)

  def _each(self, method: str, *arguments: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
      getattr(member, method)(*member_arguments)
      for member, *member_arguments in zip(
        self.members, *arguments, strict=True
      )
    )


def forward(model: EncoderDecoder | Ensemble, batch: Any) -> Array:
  """Returns logits_BTV of all target positions, by teacher forcing.

  Call it as `model.apply(variables, batch, method=forward)`.

  Args:
    batch: Batch of `jaxsyn.models.contract.forward`; for an ensemble, a tuple
      with one per member.
  """
  if not isinstance(model, Ensemble):
    return contract.forward(model, batch, train=False)
  return model.average(
    [
      contract.forward(member, member_batch, train=False)
      for member, member_batch in zip(model.members, batch, strict=True)
    ]
  )
