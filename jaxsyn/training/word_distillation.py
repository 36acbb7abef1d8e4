"""Distilled words: a model learns what a run that reads trees would write.

A teacher that reads trees gives each target position a distribution over the
vocabulary, of which its k most probable subwords count, with probabilities q that are
made to add up to 1. With p those of the student, which reads the same past,

  -Σ over k of q_k log p_k

as a mean over target subwords, EOS included. Hinton et al. 2015
(arXiv:1503.02531) at temperature 1; word by word in translation: Kim & Rush 2016
(arXiv:1606.07947), section 3.1; the k most probable alone: Tan et al. 2019
(arXiv:1902.10461). The three are recalled. That the teacher reads trees, and the
student none, is ours.

Letters: C subword that the teacher finds probable.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.models.contract import EncoderDecoder, forward
from jaxsyn.options import option
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.maps import Maps
from jaxsyn.training.distillation import TeacherLoss
from jaxsyn.training.objective import Batch, Ratio, real_targets

ID, P = "target_taught_id_BTC", "target_taught_p_BTC"  # of a batch


@dataclasses.dataclass(frozen=True)
class WordDistillation(TeacherLoss):
  """Cross-entropy of the predicted subwords against a teacher's distribution."""

  top: Count = option(
    16,
    "Number k of the teacher's most probable subwords that the loss uses "
    "at each target position.",
  )

  sides: ClassVar[tuple[str, ...]] = ("source", "target")
  by_position: ClassVar[bool] = True
  positions: ClassVar[tuple[str, ...]] = (ID, P)

  def teacher_features(
    self, model: EncoderDecoder, params: Any, batch: Batch
  ) -> dict[str, Array]:
    logits_BTV: Any = model.apply(
      {"params": params}, batch, train=False, method=forward
    )
    k = min(self.top, logits_BTV.shape[-1])
    logits_BTC, id_BTC = jax.lax.top_k(logits_BTV.astype(jnp.float32), k)
    return {ID: id_BTC, P: jax.nn.softmax(logits_BTC, axis=-1)}

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    real_BT = real_targets(batch)
    chosen_BTC = jnp.take_along_axis(logits_BTV, batch[ID], axis=-1)
    wanted_BT = jnp.sum(batch[P] * chosen_BTC.astype(jnp.float32), axis=-1)
    lse_BT = jax.nn.logsumexp(logits_BTV.astype(jnp.float32), axis=-1)
    loss_BT = (lse_BT - wanted_BT) * real_BT
    return jnp.sum(loss_BT, axis=1), jnp.sum(real_BT, axis=1)
