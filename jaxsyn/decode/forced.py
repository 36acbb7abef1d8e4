"""Log probabilities of given translations, all positions in one pass.

The model reads the true past (teacher forcing), in few static shapes. What comes
out for a translation that a search found is what the search reports.

Before this file: `examples`. After it: `jaxsyn.session`.
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

SHORTEST = 16  # padded lengths double
ROWS = 64  # pairs in a batch, fewer where they are long:
POSITIONS = 4096  # target positions in a batch, at most


class Forced:
  """A model that tells how probable it finds translations."""

  def __init__(
    self,
    model: EncoderDecoder | Ensemble,
    *,
    features: Sequence[str] = (),
    members: Sequence[Sequence[str]] = (),
    batch_transform: BatchTransform | None = None,
  ):
    """Sets it up; parameters are given with each call.

    Args:
      model: that is asked.
      features, members, batch_transform: as of
        `jaxsyn.decode.translator.Translator`.
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
    """How many programs are compiled and how many are needed."""
    return self._counter.programs

  def __call__(
    self,
    params: Any,
    examples: Sequence[Example],
    targets: Sequence[Sequence[int]],
    on_progress: ProgressCallback = ignore_progress,
  ) -> list[np.ndarray]:
    """log_p_T of each target: of its subwords and, last, of EOS.

    Args:
      params: of the model.
      examples: of `jaxsyn.data.sentence.example.encode_all`.
      targets: subwords of each, without EOS.
      on_progress: called with how many more are scored.
    """
    log_ps: list[np.ndarray] = [np.empty(0)] * len(examples)
    read = self._batcher
    sizes = [
      (
        doubled(read.subwords(example), SHORTEST),
        doubled(max(read.words(example), 1), SHORTEST),
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
      batch = read(
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
  """How probable a given translation is.

  Attributes:
    subwords: as the vocabulary writes them, EOS last.
    log_p: of each of them, given the source and those before.
    total: their sum.
    score: that over the length penalty.
  """

  subwords: tuple[str, ...]
  log_p: tuple[float, ...]
  total: float
  score: float
