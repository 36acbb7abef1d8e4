"""Forced decoding: log probabilities of given translations, in one pass.

For a translation found by a search the result is the log probability that the
search reports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxsyn import progress
from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.schema import EOS, PAD
from jaxsyn.decode.ensemble import Ensemble, forward
from jaxsyn.decode.examples import Batcher, Example
from jaxsyn.decode.translator import ProgressCallback, ignore_progress
from jaxsyn.models.contract import EncoderDecoder
from jaxsyn.training.losses import token_log_probability

SHORTEST = 16  # smallest padded length; the next ones are doubled
ROWS = 64  # maximum sentence pairs in a batch
POSITIONS = 4096  # maximum positions in a batch


class Forced:
  """Function that returns the log probabilities of given translations."""

  def __init__(
    self,
    model: EncoderDecoder | Ensemble,
    *,
    features: Sequence[str] = (),
    members: Sequence[Sequence[str]] = (),
    batch_transform: BatchTransform | None = None,
  ):
    """Initializes the function; model parameters are passed to each call.

    Args:
      model: Model or ensemble.
      features, members, batch_transform: See
        `jaxsyn.decode.examples.Batcher`.
    """
    self._batcher = Batcher(
      features, members=members, batch_transform=batch_transform
    )

    def log_p(params: Any, batch: Any, id_BT: jax.Array) -> jax.Array:
      if isinstance(batch, tuple):
        batch = tuple(
          {**member_batch, "target_id_BT": id_BT} for member_batch in batch
        )
      else:
        batch = {**batch, "target_id_BT": id_BT}
      logits_BTV: Any = model.apply({"params": params}, batch, method=forward)
      return token_log_probability(logits_BTV, id_BT)

    self._log_p = jax.jit(log_p)
    self._counter = progress.CompileCounter()

  @property
  def programs(self) -> tuple[int, int]:
    """Number of programs that are compiled, and that are needed."""
    return self._counter.programs

  def __call__(
    self,
    params: Any,
    examples: Sequence[Example],
    targets: Sequence[Sequence[int]],
    on_progress: ProgressCallback = ignore_progress,
  ) -> list[np.ndarray]:
    """Returns log_p_T of each target: of its subwords and of EOS.

    Args:
      params: Parameters of the model.
      examples: Examples of `jaxsyn.data.sentence.example.encode_all`.
      targets: Subwords of each target, without EOS.
      on_progress: Called with the number of further targets that are scored.
    """
    log_ps: list[np.ndarray] = [np.empty(0)] * len(examples)
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
      batch = self._batcher(
        [examples[i] for i in chosen], subwords=source, words=words, rows=rows
      )
      with self._counter.calls((rows, *size)):
        log_p_BT = np.asarray(self._log_p(params, batch, id_BT))
      for row, i in enumerate(chosen):
        log_ps[i] = log_p_BT[row, : len(targets[i]) + 1]
      on_progress(len(chosen))
    return log_ps


@dataclasses.dataclass(frozen=True)
class Scored:
  """Log probability of a given translation.

  Attributes:
    subwords: Pieces of the vocabulary, EOS last.
    log_p: Log probability of each, given the source and the earlier subwords.
    total: Sum of the log probabilities.
    score: Sum divided by the length penalty.
  """

  subwords: tuple[str, ...]
  log_p: tuple[float, ...]
  total: float
  score: float
