"""Prefixes: text that a translation begins with, to the character.

A prefix is a small automaton over subwords. Its complete words, those with a blank
after them, are the subwords that the vocabulary cuts them into. The last word may go
on: what is left of it, character by character, may be taken by any subword that
begins what is left, or that begins with all of it, so that "The far" may become
"The farmer" though the vocabulary cuts "far" otherwise than the beginning of
"farmer". A blank at its end says that the last word is complete.

Each step allows what leads on from the state that a hypothesis is in: a range of the
subwords, sorted as they are written (all that begin with what is left), and a few
more (its beginnings). In the last state all is allowed; the log probabilities are
the model's own.

Letters: X state of an automaton; E subword that leads to another state than the last.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.schema import PAD, SPECIAL
from jaxsyn.data.sentence.segmentation import BLANK
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.errors import InputError
from jaxsyn.models.contract import gather_beams


@dataclasses.dataclass(frozen=True)
class State:
  """One state of an automaton.

  Attributes:
    first, beyond: places, among the sorted subwords, of those that complete it.
    others: subword -> state that it leads to.
  """

  first: int
  beyond: int
  others: dict[int, int]


Automaton = tuple[
  State, ...
]  # the last state, in which all is allowed, left out


class Prefixes:
  """Makes automata of prefixes, for one vocabulary."""

  def __init__(self, vocabulary: Vocabulary):
    self._vocabulary = vocabulary
    pieces = vocabulary.pieces(range(vocabulary.size))
    self._id = {piece: i for i, piece in enumerate(pieces) if i >= len(SPECIAL)}
    self._sorted = sorted(self._id)
    self._longest = max(map(len, self._sorted))

  @property
  def rank_V(self) -> np.ndarray:
    """Place of each subword among the sorted; -1 of signs."""
    rank_V = np.full(self._vocabulary.size, -1, np.int32)
    for place, piece in enumerate(self._sorted):
      rank_V[self._id[piece]] = place
    return rank_V

  def __call__(self, text: str) -> Automaton:
    """The automaton of a prefix; () of an empty one.

    Raises:
      InputError: the vocabulary cannot write it.
    """
    if not text.strip():
      return ()
    written = self._vocabulary.written(text)
    if text[-1:].isspace():
      written += BLANK
    last = max(written.rfind(BLANK), 0)
    complete = self._vocabulary.ids(written[:last].replace(BLANK, " "))
    rest = written[last:]
    states = [
      State(0, 0, {token: number + 1}) for number, token in enumerate(complete)
    ]
    offset = len(states)
    alive = [*[False] * len(rest), True]
    partial: list[State] = []
    for at in reversed(range(len(rest))):
      left = rest[at:]
      first = bisect.bisect_left(self._sorted, left)
      beyond = bisect.bisect_left(self._sorted, left + chr(0x10FFFF))
      others = {
        self._id[left[:size]]: offset + at + size
        for size in range(1, min(len(left), self._longest + 1))
        if left[:size] in self._id and alive[at + size]
      }
      alive[at] = bool(others) or first < beyond
      partial.append(State(first, beyond, others))
    unknown = any(token < len(SPECIAL) for token in complete)
    if unknown or not alive[0]:
      raise InputError(
        f"the prefix {text[:60]!r} cannot be written with the subwords of the "
        "target vocabulary: it has words or characters that they lack."
      )
    return (*states, *reversed(partial))


@struct.dataclass
class Prefix:
  """The automata of some sentences, and where their hypotheses are in them.

  Attributes:
    first_BX, beyond_BX: of each state, its range of sorted subwords.
    token_BXE: the other subwords, then PAD.
    next_BXE: states that they lead to.
    length_B: number of the last state, in which all is allowed.
    state_BN: of open hypotheses; before the first subword one, not N.
  """

  first_BX: Array
  beyond_BX: Array
  token_BXE: Array
  next_BXE: Array
  length_B: Array
  state_BN: Array

  def restricted(self, logits_BNV: Array, rank_V: np.ndarray) -> Array:
    """NEG_INF where a subword is not allowed.

    Args:
      logits_BNV: of subwords, and of symbols beyond them.
      rank_V: of `Prefixes`, of the subwords.
    """
    is_free_BN = self.state_BN >= self.length_B[:, None]
    state_BN = jnp.minimum(self.state_BN, self.token_BXE.shape[1] - 1)
    first_BN, beyond_BN = (
      gather_beams(edge_BX, state_BN)
      for edge_BX in (self.first_BX, self.beyond_BX)
    )
    beyond_all = logits_BNV.shape[-1] - len(rank_V)
    rank_V = np.pad(rank_V, (0, beyond_all), constant_values=-1)
    allowed_BNV = first_BN[..., None] <= rank_V
    allowed_BNV = allowed_BNV & (beyond_BN[..., None] > rank_V)
    allowed_BNV = allowed_BNV | is_free_BN[..., None]
    token_BNE = gather_beams(self.token_BXE, state_BN)
    B, N = state_BN.shape
    at = jnp.arange(B)[:, None, None], jnp.arange(N)[:, None], token_BNE
    allowed_BNV = allowed_BNV.at[at].set(True)  # PAD is never produced
    return jnp.where(allowed_BNV, logits_BNV, NEG_INF)

  def followed(self, beam_BN: Array, last_BN: Array) -> Prefix:
    """With other open hypotheses, each after one subword more."""
    was_BN = gather_beams(self.state_BN, beam_BN)
    state_BN = jnp.minimum(was_BN, self.token_BXE.shape[1] - 1)
    is_it_BNE = gather_beams(self.token_BXE, state_BN) == last_BN[..., None]
    # Each subword is there once; where it is not, it completes the prefix.
    next_BN = jnp.sum(
      is_it_BNE * gather_beams(self.next_BXE, state_BN), axis=-1
    )
    new_BN = jnp.where(is_it_BNE.any(-1), next_BN, self.length_B[:, None])
    is_free_BN = was_BN >= self.length_B[:, None]
    new_BN = jnp.where(is_free_BN, self.length_B[:, None], new_BN)
    return dataclasses.replace(self, state_BN=new_BN)


def batch_of(automata: Sequence[Automaton], sizes: tuple[int, int]) -> Prefix:
  """The prefixes of some sentences.

  Args:
    automata: one of each.
    sizes: X and E, of `sizes_of` or more.
  """
  (X, E), B = sizes, len(automata)
  first_BX, beyond_BX = np.zeros((2, B, X), np.int32)
  token_BXE = np.full((B, X, E), PAD, np.int32)
  next_BXE = np.zeros((B, X, E), np.int32)
  for row, states in enumerate(automata):
    for x, state in enumerate(states):
      first_BX[row, x], beyond_BX[row, x] = state.first, state.beyond
      for e, (token, to) in enumerate(state.others.items()):
        token_BXE[row, x, e], next_BXE[row, x, e] = token, to
  length_B = np.array([len(states) for states in automata], np.int32)
  state_B1 = np.zeros((B, 1), np.int32)
  made: Any = first_BX, beyond_BX, token_BXE, next_BXE, length_B, state_B1
  return Prefix(*made)


def sizes_of(automata: Sequence[Automaton]) -> tuple[int, int]:
  """X and E that hold these, doubled so that there are few."""
  most = max((len(states) for states in automata), default=1)
  others = max(
    (len(state.others) for states in automata for state in states), default=1
  )
  return doubled(max(most, 1), 8), doubled(max(others, 1), 4)
