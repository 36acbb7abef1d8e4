"""Forced decoding: scores given translations in one pass of the models.

The log probability of a translation found by a search equals the one that the
search reports.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.schema import EOS, PAD
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.examples import Batcher, Batches, Example
from jaxsyn.decode.translator import ProgressCallback, ignore_progress
from jaxsyn.models.contract import forward
from jaxsyn.training.losses import token_log_probability
from jaxsyn.utils import progress

SHORTEST = 16  # smallest padded length; the next ones are doubled
ROWS = 64  # maximum sentence pairs in a batch
POSITIONS = 4096  # maximum positions in a batch


class ForcedPass:
  """Callable that runs models on given translations in padded batches."""

  def __init__(
    self, compute: Callable[[Sequence[Any], Batches], Any], batcher: Batcher
  ):
    """Wraps `compute` in jax.jit; parameters are arguments of each call.

    Args:
      compute: Function (parameters and batches of the models) -> pytree of
        arrays whose first axes are the sentence and the target subword. The
        batches have `target_id_BT`.
      batcher: Function that makes batches of source sentences.
    """
    self._compute, self._batcher = jax.jit(compute), batcher
    self._counter = progress.CompileCounter()

  @property
  def programs(self) -> tuple[int, int]:
    """Pair (number of programs compiled so far, number of programs called)."""
    return self._counter.programs

  def __call__(
    self,
    params: Sequence[Any],
    examples: Sequence[Example],
    targets: Sequence[Sequence[int]],
    on_progress: ProgressCallback = ignore_progress,
  ) -> list[Any]:
    """Returns values, such as log probabilities, of each target's subwords.

    They are pytrees of NumPy arrays, like the result of `compute`.

    Args:
      params: Parameters of each model.
      examples: Arrays of each model.
      targets: Subwords of each target, without EOS.
      on_progress: Called with the number of further targets that are done.
    """
    values: list[Any] = [None] * len(examples)
    sizes = [
      (
        doubled(self._batcher.subwords(example), SHORTEST),
        doubled(max(self._batcher.words(example), 1), SHORTEST),
        doubled(len(target) + 1, SHORTEST),
      )
      for example, target in zip(examples, targets, strict=True)
    ]
    order = sorted(range(len(examples)), key=lambda i: sizes[i], reverse=True)
    while order:
      size = sizes[order[0]]
      source, words, length = size
      rows = max(1, min(ROWS, POSITIONS // max(size)))
      chosen = [i for i in order[:rows] if sizes[i] == size]
      order = order[len(chosen) :]
      rows = min(rows, doubled(len(chosen), 1))
      id_BT = np.full((rows, length), PAD, np.int32)
      for row, i in enumerate(chosen):
        id_BT[row, : len(targets[i]) + 1] = [*targets[i], EOS]
      batches = self._batcher(
        [examples[i] for i in chosen], subwords=source, words=words, rows=rows
      )
      batches = tuple({**batch, "target_id_BT": id_BT} for batch in batches)
      with self._counter.calls((rows, *size)):
        value_BT = jax.device_get(self._compute(params, batches))
      for row, i in enumerate(chosen):
        in_sentence = row, slice(len(targets[i]) + 1)
        values[i] = jax.tree.map(operator.itemgetter(in_sentence), value_BT)
      on_progress(len(chosen))
    return values


@dataclasses.dataclass(frozen=True)
class Scored:
  """Log probability of a given translation, by subword and in total.

  Attributes:
    subwords: Pieces of the vocabulary, EOS last.
    log_p: Log probability of each subword, given the source and earlier ones.
    total: Sum of the log probabilities.
    score: Sum divided by the length penalty.
  """

  subwords: tuple[str, ...]
  log_p: tuple[float, ...]
  total: float
  score: float


def log_probability(
  ensemble: Ensemble, params: Sequence[Any], batches: Batches
) -> Array:
  """Returns the log probability of each target subword, by sentence."""
  logits = ensemble.apply(forward, params, batches, train=False)
  id_BT: Any = batches[0]["target_id_BT"]
  return token_log_probability(ensemble.average(logits), id_BT)
