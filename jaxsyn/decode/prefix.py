"""Constrains translations to begin with the prefix in their request.

A prefix is compiled to a small automaton over subwords. Its complete words,
which are followed by a space, are split into subwords as the vocabulary does.
The rest, the last word, may be continued: from each of its characters any
subword may follow that is a beginning of the remaining text, or that begins
with the complete remaining text. So "The far" can become "The farmer", even if
the vocabulary splits "far" differently from the beginning of "farmer". A space
at the end marks the last word as complete.

In each step the subwords that are allowed are a range of the pieces in
alphabetical order (those that begin with the remaining text) and a few others
(its beginnings). After the prefix every subword is allowed. Log
probabilities are those of the model, without renormalization.

Letters: X state of an automaton; E edge: a subword that leads to another state of
the prefix.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
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
  """State of a prefix automaton: the subwords that may come next.

  Attributes:
    first, stop: Range of the sorted pieces that complete the prefix.
    edges: Other allowed subwords, and the state that each leads to.
  """

  first: int
  stop: int
  edges: dict[int, int]


# All states but the last, in which every subword is allowed.
Automaton = tuple[State, ...]


@dataclasses.dataclass(frozen=True)
class OutputRequest:
  """Index of a sentence to translate, and its required output prefix.

  Attributes:
    index: Index of the sentence in the input, on which samples depend.
    prefix: Automaton of the text that it must begin with; () without a prefix.
  """

  index: int = 0
  prefix: Automaton = ()

  @property
  def positions(self) -> int:
    """Maximum number of subwords of the prefix, plus one for EOS."""
    return len(self.prefix) + 1


class PrefixCompiler:
  """Callable that compiles prefixes into automata over one vocabulary."""

  def __init__(self, vocabulary: Vocabulary):
    self._vocabulary = vocabulary
    pieces = vocabulary.pieces(range(vocabulary.size))
    self._id = {piece: i for i, piece in enumerate(pieces) if i >= len(SPECIAL)}
    self._sorted = sorted(self._id)
    self._longest = max(map(len, self._sorted))

  @property
  def rank_V(self) -> np.ndarray:
    """Rank of each subword in code-point order; -1 for special symbols."""
    rank_V = np.full(self._vocabulary.size, -1, np.int32)
    for rank, piece in enumerate(self._sorted):
      rank_V[self._id[piece]] = rank
    return rank_V

  def __call__(self, text: str) -> Automaton:
    """Compiles a prefix's text to an automaton; () for an empty prefix.

    Raises:
      InputError: The prefix cannot be written with the vocabulary.
    """
    if not text.strip():
      return ()
    written = self._vocabulary.written(text)
    if text[-1:].isspace():
      written += BLANK
    last = max(written.rfind(BLANK), 0)
    complete = self._vocabulary.ids(written[:last].replace(BLANK, " "))
    rest = written[last:]
    states = [State(0, 0, {id_: i + 1}) for i, id_ in enumerate(complete)]
    # From the end, because a state is useful only if its edges lead on.
    offset = len(states)
    leads_on = [*[False] * len(rest), True]
    rest_states: list[State] = []
    for at in reversed(range(len(rest))):
      remaining = rest[at:]
      first = bisect.bisect_left(self._sorted, remaining)
      stop = bisect.bisect_left(self._sorted, remaining + chr(0x10FFFF))
      edges = {
        self._id[remaining[:size]]: offset + at + size
        for size in range(1, min(len(remaining), self._longest + 1))
        if remaining[:size] in self._id and leads_on[at + size]
      }
      leads_on[at] = bool(edges) or first < stop
      rest_states.append(State(first, stop, edges))
    is_unknown = any(id_ < len(SPECIAL) for id_ in complete)
    if is_unknown or not leads_on[0]:
      raise InputError(
        f"the prefix {text[:60]!r} cannot be written with the subwords of the "
        "target vocabulary: it has words or characters that they lack."
      )
    return (*states, *reversed(rest_states))


@struct.dataclass
class Prefix:
  """Prefix automata of several sentences, and the state of each hypothesis.

  Attributes:
    first_BX, stop_BX: Range of the sorted pieces that complete the prefix.
    token_BXE: Subwords of the edges, then PAD.
    next_BXE: States that the edges lead to.
    length_B: Index of the last state, in which every subword is allowed.
    state_BN: State of each open hypothesis; one per sentence before the first
      subword, then N.
  """

  first_BX: Array
  stop_BX: Array
  token_BXE: Array
  next_BXE: Array
  length_B: Array
  state_BN: Array

  def mask(self, logits_BNV: Array, rank_V: np.ndarray) -> Array:
    """Returns the logits, with NEG_INF at subwords that violate a prefix.

    Args:
      logits_BNV: Logits of the subwords, and of symbols with larger ids.
      rank_V: `PrefixCompiler.rank_V`, of the subwords.
    """
    is_free_BN = self.state_BN >= self.length_B[:, None]
    state_BN = jnp.minimum(self.state_BN, self.token_BXE.shape[1] - 1)
    first_BN = gather_beams(self.first_BX, state_BN)
    stop_BN = gather_beams(self.stop_BX, state_BN)
    symbols = logits_BNV.shape[-1] - len(rank_V)
    rank_V = np.pad(rank_V, (0, symbols), constant_values=-1)
    allowed_BNV = first_BN[..., None] <= rank_V
    allowed_BNV = allowed_BNV & (stop_BN[..., None] > rank_V)
    allowed_BNV = allowed_BNV | is_free_BN[..., None]
    token_BNE = gather_beams(self.token_BXE, state_BN)
    B, N = state_BN.shape
    edge = jnp.arange(B)[:, None, None], jnp.arange(N)[:, None], token_BNE
    allowed_BNV = allowed_BNV.at[edge].set(True)  # PAD is never produced
    return jnp.where(allowed_BNV, logits_BNV, NEG_INF)

  def append(self, beam_BN: Array, last_BN: Array) -> Prefix:
    """Advances the automata after each hypothesis is extended by a subword.

    Args:
      beam_BN: Hypothesis that each new one extends.
      last_BN: Subword that extends it.
    """
    old_BN = gather_beams(self.state_BN, beam_BN)
    state_BN = jnp.minimum(old_BN, self.token_BXE.shape[1] - 1)
    is_edge_BNE = gather_beams(self.token_BXE, state_BN) == last_BN[..., None]
    # A state has a subword once; a subword without edge completes the prefix.
    next_BN = jnp.sum(
      is_edge_BNE * gather_beams(self.next_BXE, state_BN), axis=-1
    )
    new_BN = jnp.where(is_edge_BNE.any(-1), next_BN, self.length_B[:, None])
    is_free_BN = old_BN >= self.length_B[:, None]
    new_BN = jnp.where(is_free_BN, self.length_B[:, None], new_BN)
    return dataclasses.replace(self, state_BN=new_BN)


def batch_prefixes(
  automata: Sequence[Automaton], sizes: tuple[int, int]
) -> Prefix:
  """Combines the prefix automata of several sentences into padded arrays.

  Args:
    automata: Automaton of each sentence; () without a prefix.
    sizes: X and E, at least those of `padded_sizes`.
  """
  (X, E), B = sizes, len(automata)
  first_BX, stop_BX = np.zeros((2, B, X), np.int32)
  token_BXE = np.full((B, X, E), PAD, np.int32)
  next_BXE = np.zeros((B, X, E), np.int32)
  for row, states in enumerate(automata):
    for x, state in enumerate(states):
      first_BX[row, x], stop_BX[row, x] = state.first, state.stop
      for e, (token, next_state) in enumerate(state.edges.items()):
        token_BXE[row, x, e], next_BXE[row, x, e] = token, next_state
  length_B = np.array([len(states) for states in automata], np.int32)
  state_B1 = np.zeros((B, 1), np.int32)
  arrays: Any = first_BX, stop_BX, token_BXE, next_BXE, length_B, state_B1
  return Prefix(*arrays)


def padded_sizes(automata: Sequence[Automaton]) -> tuple[int, int]:
  """Returns padded counts of automaton states, and of edges per state.

  The number of states X is 8 times a power of 2, that of edges E 4 times one.
  """
  states = max((len(automaton) for automaton in automata), default=1)
  all_states = itertools.chain.from_iterable(automata)
  edges = max((len(state.edges) for state in all_states), default=1)
  return doubled(max(states, 1), 8), doubled(max(edges, 1), 4)
