"""Logits of a batch: all at once, or some target positions at a time.

One for each subword of the vocabulary, they are the largest array of a step:
1.6 GiB in bfloat16 of 25,000 target subwords and a vocabulary of 32,000, and as
much again for their gradient. What is added up of them has no need of all at
once.

Before this file: `objective`. After it: `step`.

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
  """Of every target position, not made before they are asked for.

  Attributes:
    model: makes them.
    params: of it.
    state_BTD: what it makes them of.
    held: the most that may be there at once; those of one position of each
      sentence are in any case.
  """

  model: EncoderDecoder
  params: Any
  state_BTD: Array
  held: int

  def all_BTV(self) -> Array:
    """All at once."""
    return self._of(self.state_BTD)

  def _of(self, state_BTD: Array) -> Array:
    variables = {"params": self.params}
    logits_BTV: Any = self.model.apply(variables, state_BTD, method="logits")
    return logits_BTV

  def add_up(
    self,
    of: Callable[[Array, Batch], Sums],
    batch: Batch,
    positions: Iterable[str] = (),
  ) -> Sums:
    """`of(logits_BTV, batch)`, sums over target positions, of all of them.

    Where not all are held, of equally many positions of each sentence at a
    time, whose logits are made again in the backward pass: one product more of
    the three that they take.

    Args:
      of: returns a tree of sums; it reads of the batch what is of a position
        in "target_id_BT" and `positions` alone.
      batch: as the model got it.
      positions: facts of target positions, each BT and maybe more axes.
    """
    cut_up = {name: batch[name] for name in ("target_id_BT", *positions)}
    B, T = batch["target_id_BT"].shape
    at_once = max(1, self.held // (B * self.model.spec.target_vocabulary))
    if at_once >= T:
      return of(self.all_BTV(), batch)
    parts = -(-T // at_once)
    size = -(-T // parts)

    def cut(x_BT: Array) -> Array:
      room = ((0, 0), (0, parts * size - T)) + ((0, 0),) * (x_BT.ndim - 2)
      x_BT = jnp.pad(x_BT, room, constant_values=PAD)
      # Positions, not sentences: these may lie on different devices.
      return jnp.moveaxis(x_BT.reshape(B, parts, size, *x_BT.shape[2:]), 1, 0)

    def some(state_BPD: Array, chunk_batch: Batch) -> Sums:
      return of(self._of(state_BPD), {**batch, **chunk_batch})

    @jax.checkpoint
    def add(sums: Sums, part: tuple[Array, Batch]) -> tuple[Sums, None]:
      return jax.tree.map(jnp.add, sums, some(*part)), None

    pieces = jax.tree.map(cut, (self.state_BTD, cut_up))
    shapes = jax.eval_shape(some, *jax.tree.map(lambda x: x[0], pieces))
    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.scan(add, none, pieces)[0]
