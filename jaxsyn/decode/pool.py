"""Continuous batching: waiting sentences replace finished sentences.

A static batch takes as long as its slowest sentence. In a pool a finished sentence
leaves its slot and the next waiting sentence enters it, so that programs of static
sizes spend nearly all of their time on open sentences.

Letters: P sentence that enters a slot.
"""

from __future__ import annotations

import collections
import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.decode.examples import Batches
from jaxsyn.decode.programs import (
  CACHE_GROWTH,
  NO_STEP_LIMIT,
  STEPS,
  DecodingPrograms,
  PoolSize,
  cache_sizes,
)
from jaxsyn.decode.search import DecodeRequest, Hypotheses

# The initial length of a decoder cache, and the share of the slots that is still
# needed when a pool shrinks. With 64 and 8, fewer programs were compiled: the first
# 400 captions took 37 seconds of processor time instead of 51, but all later ones
# took 30 % longer.
CACHE_LENGTH = 32
SHRINK_FACTOR = 4
CANCEL_STEPS = 32  # maximum steps between two checks of `is_wanted`


class Pool:
  """Slots for decoding sentences of similar length by continuous batching."""

  def __init__(
    self,
    programs: DecodingPrograms,
    params: Any,
    indices: Sequence[int],
    *,
    size: PoolSize,
    batch_of: Callable[
      [Sequence[int], PoolSize], tuple[Batches, DecodeRequest]
    ],
    is_wanted: Callable[[int], bool] | None = None,
  ):
    """Creates empty slots, and a queue of the sentences to decode.

    Args:
      programs: Programs of the models.
      params: Parameters of the models.
      indices: Indices of the sentences, in the order in which they enter.
      size: Initial size, which must hold any of the sentences.
      batch_of: Returns the batches of at most `size.encode_rows` sentences, and
        their request.
      is_wanted: Whether the translation of a sentence is still wanted;
        unwanted sentences are cancelled. None: all are wanted.
    """
    self._programs, self._params, self._batch_of = programs, params, batch_of
    self._is_wanted = is_wanted
    self._to_encode = collections.deque(indices)
    self._encoded: Any = None
    # Encoded sentences that wait for a slot: (row of the encoded batch, index).
    self._waiting: collections.deque[tuple[int, int]] = collections.deque()
    self._size = size = next(cache_sizes(programs, size, params))
    self._slots: list[int | None] = [None] * size.slots
    self._search = programs.empty(size, params)
    self._filled = STEPS  # cache length needed until the next check

  def __call__(self) -> Iterator[tuple[int, Hypotheses]]:
    """Yields each sentence's index and hypotheses as soon as it is finished."""
    self._cancel_unwanted()
    while self._to_encode or self._waiting or self._occupied():
      self._resize()
      self._advance()
      yield from self._finished()
      self._cancel_unwanted()

  def _cancel_unwanted(self) -> None:
    is_wanted = self._is_wanted
    if is_wanted is None:
      return
    self._to_encode = collections.deque(filter(is_wanted, self._to_encode))
    self._waiting = collections.deque(
      (row, index) for row, index in self._waiting if is_wanted(index)
    )
    # The device searches in such a slot until another sentence enters it.
    self._slots = [
      None if index is None or not is_wanted(index) else index
      for index in self._slots
    ]

  def _occupied(self) -> list[tuple[int, int]]:
    """Returns pairs (slot, sentence index) of all occupied slots."""
    return [(s, i) for s, i in enumerate(self._slots) if i is not None]

  def _resize(self) -> None:
    """Enlarges a full decoder cache, and shrinks the pool near the end."""
    old, occupied = self._size, self._occupied()
    unfinished = len(occupied) + len(self._waiting) + len(self._to_encode)
    slots, cache_length = old.slots, old.cache_length
    if unfinished <= slots // SHRINK_FACTOR:
      slots = doubled(unfinished, old.entering)
    while self._filled > cache_length < old.length:
      cache_length = min(CACHE_GROWTH * cache_length, old.length)
    size = self._size = dataclasses.replace(
      old, slots=slots, cache_length=cache_length
    )
    if size == old:
      return
    slot_B = np.full(slots, old.slots, np.int32)
    slot_B[: len(occupied)] = [slot for slot, _ in occupied]
    self._search = self._programs.move(
      old, size, self._params, self._search, slot_B
    )
    self._slots = [index for _, index in occupied]
    self._slots += [None] * (slots - len(occupied))

  def _encode_more(self) -> None:
    count = min(len(self._to_encode), self._size.encode_rows)
    indices = [self._to_encode.popleft() for _ in range(count)]
    self._waiting.extend(enumerate(indices))
    batches, request = self._batch_of(indices, self._size)
    self._encoded = self._programs.encode(
      self._size, self._params, batches, request
    )

  def _advance(self) -> None:
    """Fills free slots with sentences, and decodes until slots become free."""
    size = self._size
    if not self._waiting and self._to_encode:
      self._encode_more()
    free = [slot for slot, index in enumerate(self._slots) if index is None]
    entering = min(len(free), len(self._waiting), size.entering)
    row_P = np.zeros(size.entering, np.int32)
    slot_P = np.full(size.entering, size.slots, np.int32)
    for p, slot in enumerate(free[:entering]):
      row_P[p], self._slots[slot] = self._waiting.popleft()
      slot_P[p] = slot
    if self._waiting or self._to_encode:
      # 0 free slots: return at once, because more sentences can enter.
      wanted_free = size.entering if entering == len(free) else 0
    else:  # search until the remaining sentences fit into a smaller pool
      smaller = size.slots // SHRINK_FACTOR
      wanted_free = size.slots - (smaller if smaller >= size.entering else 0)
    max_position = NO_STEP_LIMIT
    if self._is_wanted is not None:
      max_position = self._filled + CANCEL_STEPS
    self._search = self._programs.search(
      size,
      self._params,
      self._search,
      self._encoded,
      row_P,
      slot_P,
      wanted_free,
      max_position,
    )

  def _finished(self) -> Iterator[tuple[int, Hypotheses]]:
    """Frees slots of finished sentences and yields (index, hypotheses)."""
    open_B, position_B = jax.device_get(
      (self._search.open_B, self._search.position_B)
    )
    done = [(slot, i) for slot, i in self._occupied() if not open_B[slot]]
    if done:
      ended = jax.device_get(self._search.ended)
    for slot, index in done:
      self._slots[slot] = None
      yield index, jax.tree.map(operator.itemgetter(slot), ended)
    self._filled = int((position_B * open_B).max()) + STEPS
