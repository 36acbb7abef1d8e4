"""Distillation from a teacher that reads trees to a student that does not.

The teacher, another run, adds its outputs to every batch before the training step
(`jaxsyn.session.teacher`). Translation with the student then needs no parser.
Using this to distill trees is our idea.

Letters: C subword that the teacher finds probable.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import PAD
from jaxsyn.models.contract import EncoderDecoder, forward, sentence_features
from jaxsyn.models.spec import ModelSpec
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Count, Layer
from jaxsyn.syntax.heads import take_heads
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.training.attention_options import (
  MIN_WEIGHT,
  LayerLoss,
  check_heads,
  check_layer,
  layer_index,
)
from jaxsyn.training.objective import (
  AuxiliaryMetrics,
  Batch,
  Loss,
  Ratio,
  real_targets,
)

# Features of a batch: the teacher's attention, and its probable subwords with
# their probabilities.
TEACHER_ATTENTION = "source_taught_BHSS"
TEACHER_IDS, TEACHER_PROBS = "target_taught_id_BTC", "target_taught_p_BTC"


@dataclasses.dataclass(frozen=True)
class TeacherLoss(Loss):
  """Base class of the losses that imitate the outputs of another run.

  Attributes:
    sides: Sides of a batch that the teacher reads.
  """

  teacher: str = option(
    "",
    "Run directory of the teacher, which must have been trained on the same "
    "prepared data and, if it reads trees, with the same trees. It is needed "
    "only in training.",
  )
  checkpoint: str = option(
    "",
    'Checkpoint of the teacher: "best", "last" or a step; empty: the one that '
    "is used for translation.",
  )

  sides: ClassVar[tuple[str, ...]] = ("source",)

  def required_maps_of_teacher(
    self, at: ConfigPath, spec: ModelSpec
  ) -> ModelSpec:
    """Returns the teacher's model spec, set to expose arrays the loss reads.

    Args:
      at: Config path of this loss.
      spec: Specification of the teacher.

    Raises:
      InputError: The teacher does not have what the options name.
    """
    return spec

  def teacher_features(
    self, model: EncoderDecoder, params: Any, batch: Batch
  ) -> dict[str, Array]:
    """Computes the teacher's outputs, which are added to a batch as features.

    Args:
      model: Model of `required_maps_of_teacher`.
      params: Parameters of the teacher.
      batch: Features of `sides`.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Distillation(LayerLoss, TeacherLoss):
  """Cross-entropy of attention heads against attention heads of a teacher.

  With the weights T of the teacher's heads and S of the student's,
  -Σ over m of T_hqm log S_hqm, as a mean over heads h and real subwords q. The
  cross-entropy of attention follows the distillation of encoders (Jiao et al.
  2020, "TinyBERT", arXiv:1909.10351, section 3.1, with the mean squared error of
  scores; cited from memory).
  """

  teacher_layer: Layer = option(
    0,
    "Encoder layer of the teacher whose attention is imitated, from 0, or "
    "from the end if negative.",
  )
  teacher_heads: tuple[int, ...] = option(
    (0, 1), "Attention heads of the teacher's layer that are imitated, from 0."
  )
  layer: Layer = option(
    0,
    "Encoder layer of this model whose attention imitates the teacher's, "
    "from 0, or from the end if negative.",
  )
  heads: tuple[int, ...] = option(
    (0, 1),
    "Attention heads of this model's layer, from 0; each head imitates the "
    "one at the same index in `teacher_heads`.",
  )

  stack: ClassVar[str] = "encoder"

  def required_maps_of_teacher(
    self, at: ConfigPath, spec: ModelSpec
  ) -> ModelSpec:
    shape = spec.stack_shape("encoder")
    layer = self.teacher_layer
    check_layer(at / "teacher_layer", layer, shape.layers, "encoder")
    check_heads(at / "teacher_heads", self.teacher_heads, shape.heads)
    published = ("encoder", layer_index(layer, shape.layers))
    maps = (*spec.published_maps, published)
    return dataclasses.replace(spec, published_maps=maps)

  def teacher_features(
    self, model: EncoderDecoder, params: Any, batch: Batch
  ) -> dict[str, Array]:
    _, state = model.apply(
      {"params": params},
      batch["source_id_BS"],
      sentence_features(batch, "source"),
      method="encode",
      mutable=[COLLECTION],
    )
    layers = model.spec.stack_shape("encoder").layers
    layer = layer_index(self.teacher_layer, layers)
    weight_BHSS = _head_weights(Maps.of(state), layer, self.teacher_heads)
    return {TEACHER_ATTENTION: weight_BHSS.astype(jnp.float32)}

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    super().check(at, spec)
    check_heads(at / "heads", self.heads, spec.stack_shape("encoder").heads)
    if len(self.heads) != len(self.teacher_heads):
      raise (at / "heads").error(
        f"={self.heads} must be as many as teacher_heads={self.teacher_heads}: "
        "each learns one of them."
      )

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    weight_BHQM = _head_weights(maps, self.layer, self.heads)
    log_BHQM = jnp.log(jnp.maximum(weight_BHQM, MIN_WEIGHT))
    is_real_B1Q = (batch["source_id_BS"] != PAD)[:, None]
    loss_BHQ = -jnp.sum(batch[TEACHER_ATTENTION] * log_BHQM, axis=3)
    loss_BHQ = jnp.where(is_real_B1Q, loss_BHQ, 0.0)
    count_BHQ = jnp.broadcast_to(is_real_B1Q, loss_BHQ.shape)
    return loss_BHQ.sum((1, 2)), count_BHQ.astype(jnp.float32).sum((1, 2))

  def measure(self, maps: Maps, batch: Batch) -> AuxiliaryMetrics:
    """Returns how often student and teacher heads have the same argmax."""
    weight_BHQM = _head_weights(maps, self.layer, self.heads)
    ours_BHQ = jnp.argmax(weight_BHQM, axis=3)
    theirs_BHQ = jnp.argmax(batch[TEACHER_ATTENTION], axis=3)
    is_real_B1Q = (batch["source_id_BS"] != PAD)[:, None]
    right = jnp.sum(is_real_B1Q & (ours_BHQ == theirs_BHQ))
    count = jnp.sum(jnp.broadcast_to(is_real_B1Q, ours_BHQ.shape))
    return {"taught": (right.astype(jnp.float32), count.astype(jnp.float32))}


@dataclasses.dataclass(frozen=True)
class WordDistillation(TeacherLoss):
  """Cross-entropy of the predicted subwords against a teacher's distribution.

  With the probabilities q of the teacher's k most probable subwords, normalized
  to 1, and p of the student, -Σ over k of q_k log p_k, as a mean over target
  subwords with EOS. Sources, cited from memory: Hinton et al. 2015
  (arXiv:1503.02531) at temperature 1; word by word, Kim & Rush 2016
  (arXiv:1606.07947), section 3.1; the k most probable, Tan et al. 2019
  (arXiv:1902.10461).
  """

  top: Count = option(
    16,
    "Number k of the teacher's most probable subwords that the loss uses "
    "at each target position.",
  )

  sides: ClassVar[tuple[str, ...]] = ("source", "target")
  by_position: ClassVar[bool] = True
  positions: ClassVar[tuple[str, ...]] = (TEACHER_IDS, TEACHER_PROBS)

  def teacher_features(
    self, model: EncoderDecoder, params: Any, batch: Batch
  ) -> dict[str, Array]:
    logits_BTV: Any = model.apply(
      {"params": params}, batch, train=False, method=forward
    )
    k = min(self.top, logits_BTV.shape[-1])
    logits_BTC, id_BTC = jax.lax.top_k(logits_BTV.astype(jnp.float32), k)
    p_BTC = jax.nn.softmax(logits_BTC, axis=-1)
    return {TEACHER_IDS: id_BTC, TEACHER_PROBS: p_BTC}

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    real_BT = real_targets(batch)
    chosen_BTC = jnp.take_along_axis(logits_BTV, batch[TEACHER_IDS], axis=-1)
    wanted_BT = jnp.sum(
      batch[TEACHER_PROBS] * chosen_BTC.astype(jnp.float32), axis=-1
    )
    lse_BT = jax.nn.logsumexp(logits_BTV.astype(jnp.float32), axis=-1)
    loss_BT = (lse_BT - wanted_BT) * real_BT
    return jnp.sum(loss_BT, axis=1), jnp.sum(real_BT, axis=1)


def _head_weights(maps: Maps, layer: int, heads: tuple[int, ...]) -> Array:
  """Returns the attention weights (BHQM) of some heads in an encoder layer."""
  (published,) = maps.find(
    stack="encoder", layer=layer, modifier="", kind="weight_BHQM"
  )
  return take_heads(heads, published.value, axis=1)
