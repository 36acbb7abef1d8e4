"""Computes logits of a batch at once, or some target positions at a time.

Logits are the largest array of a step: 1.6 GiB in bfloat16 for 25,000 target
subwords and a vocabulary of 32,000, and as much again for their gradient. Sums over
positions do not need all logits at once.

Letters: P some of the target positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import PAD
from jaxsyn.models.contract import EncoderDecoder
from jaxsyn.training.objective import Batch

Sums = TypeVar("Sums")


@dataclasses.dataclass(frozen=True)
class Logits:
  """Logits of all target positions, computed on demand.

  Attributes:
    model: Model that computes them.
    params: Parameters of the model.
    state_BTD: Decoder states.
    max_size: Maximum number of logits at a time; those of one position of each
      sentence may exceed it.
  """

  model: EncoderDecoder
  params: Any
  state_BTD: Array
  max_size: int

  def all_BTV(self) -> Array:
    """Computes the logits of all target positions at once."""
    return self._compute(self.state_BTD)

  def _compute(self, state_BTD: Array) -> Array:
    variables = {"params": self.params}
    logits_BTV: Any = self.model.apply(variables, state_BTD, method="logits")
    return logits_BTV

  def sum_over_positions(
    self,
    function: Callable[[Array, Batch], Sums],
    batch: Batch,
    positions: Iterable[str] = (),
  ) -> Sums:
    """Sums a function of the logits over all target positions.

    If there are too many logits, the function gets equally many positions of each
    sentence at a time. Their logits are computed again in the backward pass, which
    takes four products instead of three.

    Args:
      function: Function that returns a tree of sums over target positions. The
        only features with target positions that it may read are `target_id_BT`
        and `positions`.
      batch: Batch of the model.
      positions: Names of features with axes BT and possibly more.
    """
    cut_up = {name: batch[name] for name in ("target_id_BT", *positions)}
    B, T = batch["target_id_BT"].shape
    at_once = max(1, self.max_size // (B * self.model.spec.target_vocabulary))
    if at_once >= T:
      return function(self.all_BTV(), batch)
    parts = -(-T // at_once)
    size = -(-T // parts)
    padding = parts * size - T

    def cut(x_BT: Array) -> Array:
      widths = ((0, 0), (0, padding)) + ((0, 0),) * (x_BT.ndim - 2)
      x_BT = jnp.pad(x_BT, widths, constant_values=PAD)
      # Positions, since the sentences may be on different devices.
      return jnp.moveaxis(x_BT.reshape(B, parts, size, *x_BT.shape[2:]), 1, 0)

    def some(state_BPD: Array, chunk_batch: Batch) -> Sums:
      return function(self._compute(state_BPD), {**batch, **chunk_batch})

    @jax.checkpoint
    def add(sums: Sums, part: tuple[Array, Batch]) -> tuple[Sums, None]:
      return jax.tree.map(jnp.add, sums, some(*part)), None

    pieces = jax.tree.map(cut, (self.state_BTD, cut_up))
    shapes = jax.eval_shape(some, *jax.tree.map(lambda x: x[0], pieces))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.scan(add, zeros, pieces)[0]
