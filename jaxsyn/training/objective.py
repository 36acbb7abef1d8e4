"""What a term of the objective is, and the one rule by which it is a mean.

A loss reads the model's output and the attention maps it published, never the
model, and gives each row of a batch a sum and a count. Both are added up over
all that is looked at together (rows, devices, hosts, tasks; the batches of an
update, of a log line, of a validation) before the one is divided by the other:

  objective = Σ over terms of weight · (Σ sums / Σ counts)

So a term's weight means the same for any batch size, and neither training nor
what is logged depends on how examples fell into batches: a mean of their means
would have a subword of a short batch count more than one of a long.

A count is of real items: target subwords, subwords with a parent. What an
example weighs (`weight_B`, config.data.second.weight) multiplies its sums, in
every term, and not its counts, or it would cancel where a batch is of one task:
with weight .3 the gradient of such a batch is .3 of what it is with 1. Rows of
padding have no items; they weigh and count nothing.

After this file: `losses`, the table, and `head_losses`, those on attention.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import PAD
from jaxsyn.models.spec import ModelSpec
from jaxsyn.options import Choice, ConfigPath, option
from jaxsyn.options.bounds import Amount
from jaxsyn.syntax.maps import Maps

Batch = Mapping[str, Array]  # as the model gets it
Ratio = tuple[Array, Array]  # a sum, and over how many
AuxiliaryMetrics = dict[str, Ratio]


def real_targets(batch: Batch) -> Array:
  """1.0 for target subwords, EOS included; 0.0 for padding (BT)."""
  return (batch["target_id_BT"] != PAD).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Loss(Choice):
  """Base of the losses; what a config may say of one."""

  weight: Amount = option(
    1.0, "Weight of the loss's mean in the training objective."
  )

  required_features: ClassVar[
    tuple[str, ...]
  ] = ()  # facts of the batch it reads

  # It reads logits alone, and adds up over target positions: then it is given
  # some of them at a time where logits of all would fill the memory.
  by_position: ClassVar[bool] = False
  positions: ClassVar[
    tuple[str, ...]
  ] = ()  # facts of a batch, of positions too

  # Reads maps of a second pass in which the decoder sees all of the target.
  full_context = False

  @property
  def has_teacher(self) -> bool:
    """Whether another run makes what it reads, which may read trees itself."""
    return False

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    """Raises InputError where options, or what the model publishes, do not fit.

    Args:
      at: where in the config they stand.
      spec: what the model is made from.
    """

  def with_defaults(self, spec: ModelSpec) -> Loss:
    """The same with what follows from the model, as a layer from its end."""
    return self

  def required_maps(self, spec: ModelSpec) -> tuple[tuple[str, int], ...]:
    """(place, layer) of attention whose weights it reads.

    There they are made also where config.model.attention="fused" makes none.
    """
    return ()

  def __call__(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    """The sum over a batch, rows times what they weigh, and over how many.

    Args:
      logits_BTV: of every target position.
      maps: what attention and parts published.
      batch: as the model got it; without `weight_B` every row weighs 1.
    """
    sum_B, count_B = self.of_rows(logits_BTV, maps, batch)
    if "weight_B" in batch:
      sum_B = sum_B * batch["weight_B"]
    return jnp.sum(sum_B), jnp.sum(count_B)

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    """The sum of each row, and over how many items (float32, both B).

    What a row weighs is not its concern; the count has no gradient.
    """
    raise NotImplementedError

  def measure(self, maps: Maps, batch: Batch) -> AuxiliaryMetrics:
    """Scores of what it teaches, as name -> (sum, count); for validation."""
    return {}


def report(
  means: Mapping[str, float], losses: Mapping[str, Loss]
) -> dict[str, float]:
  """Terms of the objective for the log, raw and weighted.

  Args:
    means: of the terms, by name.
    losses: the terms.

  Returns: "loss", the objective; of several terms "loss/NAME" too, and where
    the weight is not 1 "weighted/NAME".
  """
  weighted = {name: losses[name].weight * mean for name, mean in means.items()}
  values = {"loss": sum(weighted.values())}
  if len(means) > 1:
    for name, mean in means.items():
      values[f"loss/{name}"] = mean
      if losses[name].weight != 1.0:
        values[f"weighted/{name}"] = weighted[name]
  return values
