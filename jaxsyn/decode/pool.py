"""Sentences that are searched together, in places that are used again.

A batch is done when its slowest sentence is. Here a finished sentence leaves
and the next that waits takes its place, at a position of its own: the programs
keep their static sizes, and nearly all of their work is for open sentences.

Before this file: `programs`. After it: `translator`.

Letters: P sentence that takes a place.
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
  NO_STEP_LIMIT,
  STEPS,
  DecodingPrograms,
  Size,
  grown,
)
from jaxsyn.decode.search import DecodeRequest, Hypotheses

ROOM = 16  # outputs that a cache has room for at first; doubled when it is full
SHRINK_FACTOR = (
  4  # a search moves to fewer places when so many times fewer are taken
)
CANCEL_STEPS = 32  # at most between two checks whether sentences are wanted


class Pool:
  """A search that goes on while sentences of about one length come and go."""

  def __init__(
    self,
    programs: DecodingPrograms,
    params: Any,
    numbers: Sequence[int],
    *,
    size: Size,
    batch_of: Callable[[Sequence[int], Size], tuple[Batches, DecodeRequest]],
    is_wanted: Callable[[int], bool] | None = None,
  ):
    """Sets it up.

    Args:
      programs: of the model.
      params: of the model.
      numbers: of the sentences, in the order in which they take places.
      size: at first; it holds any of the sentences.
      batch_of: from at most `size.rows` numbers to a batch and what is asked
        of it.
      is_wanted: whether a sentence's translation is still wanted, by number. A
        sentence that is not is cancelled. None: all are.
    """
    self._programs, self._params, self._batch_of = programs, params, batch_of
    self._is_wanted = is_wanted
    self._to_read = collections.deque(numbers)
    self._read: Any = None
    # Numbers that were read and wait, with their rows of what was read.
    self._waiting: collections.deque[tuple[int, int]] = collections.deque()
    self._size = size = next(grown(programs, size, params))
    self._places: list[int | None] = [None] * size.places
    self._search = programs.empty(size, params)
    self._filled = STEPS  # room that the steps until the next look need

  def __call__(self) -> Iterator[tuple[int, Hypotheses]]:
    """Numbers of sentences and their hypotheses, as they are finished."""
    self._drop_unwanted()
    while self._to_read or self._waiting or self._occupied():
      self._fit()
      self._advance()
      yield from self._finished()
      self._drop_unwanted()

  def _drop_unwanted(self) -> None:
    """Removes sentences whose translation is no longer wanted."""
    wanted = self._is_wanted
    if wanted is None:
      return
    self._to_read = collections.deque(filter(wanted, self._to_read))
    self._waiting = collections.deque(
      pair for pair in self._waiting if wanted(pair[1])
    )
    # The device searches on in such a place until another sentence takes it.
    self._places = [
      None if one is None or not wanted(one) else one for one in self._places
    ]

  def _occupied(self) -> list[tuple[int, int]]:
    """Places with a sentence, and its number."""
    return [(p, one) for p, one in enumerate(self._places) if one is not None]

  def _fit(self) -> None:
    """Changes to a size for what is not finished, if it is worth the move."""
    old, occupied = self._size, self._occupied()
    unfinished = len(occupied) + len(self._waiting) + len(self._to_read)
    places, room = old.places, old.room
    if unfinished <= places // SHRINK_FACTOR:
      places = doubled(unfinished, old.few)
    if self._filled > room:
      room = min(doubled(self._filled, room), old.length)
    size = self._size = dataclasses.replace(old, places=places, room=room)
    if size == old:
      return
    place_B = np.full(places, old.places, np.int32)
    place_B[: len(occupied)] = [place for place, _ in occupied]
    self._search = self._programs.move(
      old, size, self._params, self._search, place_B
    )
    self._places = [index for _, index in occupied]
    self._places += [None] * (places - len(occupied))

  def _read_more(self) -> None:
    count = min(len(self._to_read), self._size.rows)
    read = [self._to_read.popleft() for _ in range(count)]
    self._waiting.extend(enumerate(read))
    batch, request = self._batch_of(read, self._size)
    self._read = self._programs.read(self._size, self._params, batch, request)

  def _advance(self) -> None:
    """Lets sentences take free places, and searches on."""
    size = self._size
    if not self._waiting and self._to_read:
      self._read_more()
    free = [p for p, index in enumerate(self._places) if index is None]
    entering = min(len(free), len(self._waiting), size.few)
    row_P = np.zeros(size.few, np.int32)
    place_P = np.full(size.few, size.places, np.int32)
    for index, place in enumerate(free[:entering]):
      row_P[index], self._places[place] = self._waiting.popleft()
      place_P[index] = place
    if self._waiting or self._to_read:
      # At once, while more can enter.
      wanted = size.few if entering == len(free) else 0
    else:  # until those that are left fit into a smaller size
      min_places = size.places // SHRINK_FACTOR
      wanted = size.places - (min_places if min_places >= size.few else 0)
    max_steps = NO_STEP_LIMIT
    if self._is_wanted is not None:
      max_steps = self._filled + CANCEL_STEPS
    self._search = self._programs.search(
      size,
      self._params,
      self._search,
      self._read,
      row_P,
      place_P,
      wanted,
      max_steps,
    )

  def _finished(self) -> Iterator[tuple[int, Hypotheses]]:
    """Frees the places of sentences that are finished."""
    open_B, at_B = jax.device_get((self._search.open_B, self._search.at_B))
    done = [slot for slot in self._occupied() if not open_B[slot[0]]]
    if done:
      ended = jax.device_get(self._search.ended)
    for place, index in done:
      self._places[place] = None
      yield index, jax.tree.map(operator.itemgetter(place), ended)
    self._filled = int((at_B * open_B).max()) + STEPS
