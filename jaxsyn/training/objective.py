"""Base class of losses, the weighted terms of the training objective.

A loss reads the logits and the published attention maps, never the model, and
returns a sum and a count for each row of a batch. Both are added over all rows that
belong together (devices, hosts, the batches of an update, of a log record or of a
validation) before they are divided:

  objective = Σ over terms of weight · (Σ sums / Σ counts)

A weight therefore means the same for any batch size, and results do not depend on
how examples are batched.

A count is a number of real items, such as target subwords or words with a parent.
The weight of an example (`weight_B`, config.data.second.weight) multiplies its sums
but not its counts; otherwise it would cancel in a batch of one task. Rows of padding
have weight and count 0.
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

Batch = Mapping[str, Array]
Ratio = tuple[Array, Array]  # a sum and a count
AuxiliaryMetrics = dict[str, Ratio]


def real_targets(batch: Batch) -> Array:
  """Returns a float mask (BT) of non-padding target positions, EOS included."""
  return (batch["target_id_BT"] != PAD).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Loss(Choice):
  """Base class of the losses, with their options.

  Attributes:
    required_features: Features of a batch that the loss reads.
    by_position: Whether the loss only reads logits and is a sum over target
      positions. It is then computed for some positions at a time if the logits
      of all would need too much memory.
    positions: Features with an axis of target positions that such a loss reads.
    full_context: Whether the loss reads maps of a second decoder pass, in which
      every position sees all others.
  """

  weight: Amount = option(
    1.0, "Weight of the mean loss in the training objective."
  )

  required_features: ClassVar[tuple[str, ...]] = ()
  by_position: ClassVar[bool] = False
  positions: ClassVar[tuple[str, ...]] = ()
  full_context = False

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    """Checks the loss's options against the model.

    Args:
      at: Config path of the loss.
      spec: Specification of the model.

    Raises:
      InputError: The options or the published maps do not fit.
    """

  def with_defaults(self, spec: ModelSpec) -> Loss:
    """Returns the loss after resolving options that depend on the model."""
    return self

  def required_maps(self, spec: ModelSpec) -> tuple[tuple[str, int], ...]:
    """Returns the (stack, layer) pairs whose attention weights the loss reads.

    These are published even if config.model.attention is "fused".
    """
    return ()

  def __call__(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    """Returns a batch's example-weighted loss sum, and its item count.

    Args:
      logits_BTV: Logits of the target positions.
      maps: Published maps.
      batch: Batch of the model; without `weight_B`, all weights are 1.
    """
    sum_B, count_B = self.of_rows(logits_BTV, maps, batch)
    if "weight_B" in batch:
      sum_B = sum_B * batch["weight_B"]
    return jnp.sum(sum_B), jnp.sum(count_B)

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    """Returns the unweighted loss sum and the item count of each batch row.

    Both are float32 with the axis B.

    The count has no gradient.
    """
    raise NotImplementedError

  def measure(self, maps: Maps, batch: Batch) -> AuxiliaryMetrics:
    """Returns metrics for validation, such as the accuracy of a parsing head."""
    return {}


def report(
  means: Mapping[str, float], losses: Mapping[str, Loss]
) -> dict[str, float]:
  """Returns the total loss and its terms as a dict for the log.

  Args:
    means: Mean of each term.
    losses: Terms by name.

  Returns:
    "loss", the objective; with several terms also "loss/NAME", and
    "weighted/NAME" unless the weight is 1.
  """
  weighted = {name: losses[name].weight * mean for name, mean in means.items()}
  values = {"loss": sum(weighted.values())}
  if len(means) > 1:
    for name, mean in means.items():
      values[f"loss/{name}"] = mean
      if losses[name].weight != 1.0:
        values[f"weighted/{name}"] = weighted[name]
  return values
