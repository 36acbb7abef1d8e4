"""Distilled trees: attention is to look where that of a tree-aware run looks.

A run that reads trees (PASCAL, say) teaches one that reads none. With T the weights
of the teacher's chosen heads in a layer of its encoder, head by head those of the
student's, S,

  -Σ over m of T_hqm log S_hqm

as a mean over the real subwords q and the heads h. So translating needs no parser:
what the tree says comes from the sentence. The cross-entropy of attention is as in
distillation of encoders (Jiao et al. 2020, "TinyBERT", arXiv:1909.10351, section
3.1, which takes the mean squared error of scores; recalled); to distil trees so is
ours.

The teacher runs on every batch before the step (`jaxsyn.session.teacher`), which
reads what it makes as facts of the batch.

After this file: `word_distillation`, of what the teacher would write.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import PAD
from jaxsyn.models.contract import EncoderDecoder, sentence_features
from jaxsyn.models.spec import ModelSpec
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Layer
from jaxsyn.syntax.heads import of_heads
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.training.objective import AuxiliaryMetrics, Batch, Loss, Ratio

TEACHER_PREFIX = "source_taught_BHSS"  # of a batch
_MIN_WEIGHT = 1e-30  # a weight, so that its logarithm is finite


@dataclasses.dataclass(frozen=True)
class TeacherLoss(Loss):
  """Base of the losses that learn from another run; which that is."""

  teacher: str = option(
    "",
    "Run directory of the teacher, a run on the same prepared data and, "
    "if it reads trees, the same trees. Only training reads it.",
  )
  checkpoint: str = option(
    "",
    'Checkpoint of the teacher: "best", "last" or a step; empty: the one '
    "that it translates with.",
  )

  sides: ClassVar[tuple[str, ...]] = ("source",)  # that the teacher reads

  @property
  def has_teacher(self) -> bool:
    return bool(self.teacher and self.weight)

  def required_maps_of_teacher(
    self, at: ConfigPath, spec: ModelSpec
  ) -> ModelSpec:
    """The teacher's model, publishing what is to be learnt.

    Args:
      at: where this loss's options stand.
      spec: the teacher's own.

    Raises:
      InputError: it has not what is to be learnt.
    """
    return spec

  def teacher_features(
    self, model: EncoderDecoder, params: Any, batch: Batch
  ) -> dict[str, Array]:
    """What the teacher adds to a batch.

    Args:
      model: of `asked`.
      params: the teacher's.
      batch: of `sides`.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Distillation(TeacherLoss):
  """Cross-entropy of attention heads against those of a teacher."""

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
    "Attention heads of this model's layer, from 0; each one imitates the "
    "head at the same place in `teacher_heads`.",
  )

  def required_maps_of_teacher(
    self, at: ConfigPath, spec: ModelSpec
  ) -> ModelSpec:
    site, layer = spec.stack_shape("encoder"), self.teacher_layer
    check_heads(
      at, "teacher_", layer, self.teacher_heads, site.layers, site.heads
    )
    shown = (*spec.published_maps, ("encoder", layer % site.layers))
    return dataclasses.replace(spec, published_maps=shown)

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
    (published,) = Maps.of(state).find(
      place="encoder",
      layer=self.teacher_layer % layers,
      part="",
      kind="weight_BHQM",
    )
    weight_BHSS = of_heads(self.teacher_heads, published.value, axis=1)
    return {TEACHER_PREFIX: weight_BHSS.astype(jnp.float32)}

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    site = spec.stack_shape("encoder")
    check_heads(at, "", self.layer, self.heads, site.layers, site.heads)
    if len(self.heads) != len(self.teacher_heads):
      raise (at / "heads").error(
        f"={self.heads} must be as many as teacher_heads={self.teacher_heads}: "
        "each learns one of them."
      )

  def required_maps(self, spec: ModelSpec) -> tuple[tuple[str, int], ...]:
    return (("encoder", self.with_defaults(spec).layer),)

  def with_defaults(self, spec: ModelSpec) -> Distillation:
    layers = spec.stack_shape("encoder").layers
    return dataclasses.replace(self, layer=self.layer % layers)

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    log_BHQM = jnp.log(jnp.maximum(self._weights(maps), _MIN_WEIGHT))
    real_B1Q = _real(batch)
    loss_BHQ = -jnp.sum(batch[TEACHER_PREFIX] * log_BHQM, axis=3)
    loss_BHQ = jnp.where(real_B1Q, loss_BHQ, 0.0)
    count_BHQ = jnp.broadcast_to(real_B1Q, loss_BHQ.shape)
    return loss_BHQ.sum((1, 2)), count_BHQ.astype(jnp.float32).sum((1, 2))

  def measure(self, maps: Maps, batch: Batch) -> AuxiliaryMetrics:
    """How often the strongest of a head is that of the teacher's."""
    real_B1Q = _real(batch)
    ours, theirs = (
      jnp.argmax(x, axis=3)
      for x in (self._weights(maps), batch[TEACHER_PREFIX])
    )
    right = jnp.sum(real_B1Q & (ours == theirs))
    count = jnp.sum(jnp.broadcast_to(real_B1Q, ours.shape))
    return {"taught": (right.astype(jnp.float32), count.astype(jnp.float32))}

  def _weights(self, maps: Maps) -> Array:
    (published,) = maps.find(
      place="encoder", layer=self.layer, part="", kind="weight_BHQM"
    )
    return of_heads(self.heads, published.value, axis=1)


def check_heads(
  at: ConfigPath,
  whose: str,
  layer: int,
  heads: tuple[int, ...],
  layers: int,
  H: int,
) -> None:
  """Raises InputError unless an encoder has a layer and heads.

  Args:
    at: the options.
    whose: "" or "teacher_", of their names.
    layer, heads: that are asked for.
    layers, H: how many there are.
  """
  if not -layers <= layer < layers:
    raise (at / f"{whose}layer").error(
      f": {layer} is not one of the {layers} layers of the encoder; they count "
      f"from 0 to {layers - 1}, or from -1 back."
    )
  for head in heads:
    if not 0 <= head < H:
      raise (at / f"{whose}heads").error(
        f": {head} is not one of the {H} heads of the layer; they count from 0 "
        f"to {H - 1}."
      )
  if not heads or len(set(heads)) < len(heads):
    raise (at / f"{whose}heads").error(f"={heads} must name heads, each once.")


def _real(batch: Batch) -> Array:
  return (batch["source_id_BS"] != PAD)[:, None]
