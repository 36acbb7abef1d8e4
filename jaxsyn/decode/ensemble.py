"""Several models that translate as one, behind the contract of one.

Log-linear: the members' log probabilities of each next subword, weighted and
added up; what decoding makes of them is normalised again over the vocabulary at
each step,

  log p(y | past) = Σ_m w_m · log p_m(y | past) - log Σ_v exp Σ_m w_m · log p_m(v)

with weights that add up to 1. So a model with itself is that model. (Marian adds up
without normalising; fairseq takes the mean of the probabilities.)

Each member reads its own features of a sentence: sources, what is encoded and
caches are tuples, one of each. Members may be of different families and have
different source vocabularies; that of the target is one.
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
  """What decoding knows of `EncoderDecoder`, of several.

  Its parameters are {"members_0": those of the first, ...}.

  Attributes:
    members: the models.
    weights: of each; they add up to 1.
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
    logits, caches = zip(
      *self._each(
        *(
          "advance",
          encoded,
          cache,
          [token_BN] * member_count,
          [at] * member_count,
        )
      )
    )
    return self.mixed(logits), caches

  def reorder(self, cache: Sequence[Any], beam_BN: Array) -> tuple[Any, ...]:
    return self._each("reorder", cache, [beam_BN] * len(self.members))

  def mixed(self, logits: Sequence[Array]) -> Array:
    """The weighted sum of the members' log probabilities, (..., V).

    Of symbols beyond the subwords, which members for a second task have, those
    that all have.
    """
    V = min(x.shape[-1] for x in logits)
    parts = [
      weight * jax.nn.log_softmax(x.astype(jnp.float32), axis=-1)[..., :V]
      for weight, x in zip(self.weights, logits)
    ]
    return functools.reduce(operator.add, parts)

  def _each(self, method: str, *arguments: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
      getattr(member, method)(*member_arguments)
      for member, *member_arguments in zip(
        self.members, *arguments, strict=True
      )
    )


def ensemble(
  models: Sequence[EncoderDecoder], weights: Sequence[float]
) -> Ensemble:
  """The ensemble of some models.

  Args:
    models: any; the same may be there twice.
    weights: of each; they add up to 1.
  """
  return Ensemble(tuple(model.clone() for model in models), tuple(weights))


def params_of(params: Sequence[Any]) -> dict[str, Any]:
  """The parameters of an ensemble, of those of its members."""
  return {
    f"members_{index}": member_params
    for index, member_params in enumerate(params)
  }


def forward(model: EncoderDecoder | Ensemble, batch: Any) -> Array:
  """logits_BTV of every target position, given the true past.

  Used as a method: `model.apply(variables, batch, method=forward)`.

  Args:
    batch: of a model, as of `jaxsyn.models.contract.forward`; of an ensemble,
      one of each member.
  """
  if not isinstance(model, Ensemble):
    return contract.forward(model, batch, train=False)
  return model.mixed(
    [
      contract.forward(member, member_batch, train=False)
      for member, member_batch in zip(model.members, batch, strict=True)
    ]
  )
