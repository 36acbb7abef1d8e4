"""What a term of the objective is.

A loss returns (sum, count) and reads the model's output and the attention maps
it published, never the model. The objective is the weighted sum of each term's
mean, so a term's weight means the same for any batch size.

After this file: `losses`, the table, and `head_losses`, those on attention.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxsyn.data.schema import PAD
from jaxsyn.errors import InputError
from jaxsyn.models.spec import ModelSpec

Array = jax.Array
Shares = dict[str, tuple[Array, Array]]


def real_targets(batch: Mapping[str, Array]) -> Array:
  """1.0 for target subwords, the end sign included; 0.0 for padding (BT)."""
  return (batch["target_id_BT"] != PAD).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Loss:
  """Base of the losses; what a config may say of one.

  Attributes:
    weight: of the term's mean in the objective.
  """

  weight: float = 1.0

  needs: ClassVar[tuple[str, ...]] = ()  # facts of the batch it reads

  # Reads maps of a second pass in which the decoder sees all of the target.
  full_context = False

  def check(self, where: str, spec: ModelSpec) -> None:
    """Raises InputError where options, or what the model publishes, do not fit.

    Args:
      where: dotted name of the section, for the message.
      spec: what the model is made from.
    """
    if self.weight < 0:
      raise InputError(f"{where}.weight must be 0 or more, got {self.weight}.")

  def __call__(
    self,
    logits_BTV: Array,
    maps: Mapping[str, Any],
    batch: Mapping[str, Array],
  ) -> tuple[Array, Array]:
    """The sum over a batch, and over how many; the latter without gradient.

    Args:
      logits_BTV: of every target position.
      maps: what attention and parts published, by module.
      batch: as the model got it.
    """
    raise NotImplementedError

  def measure(
    self, maps: Mapping[str, Any], batch: Mapping[str, Array]
  ) -> Shares:
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
