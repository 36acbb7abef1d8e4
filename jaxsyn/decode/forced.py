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
from jaxsyn.data.loader.change import Change
from jaxsyn.data.schema import EOS, PAD
from jaxsyn.decode.ensemble import Ensemble, forward
from jaxsyn.decode.examples import Batcher, Example
from jaxsyn.decode.translator import Tell, untold
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
    change: Change | None = None,
  ):
    """Sets it up; parameters are given with each call.

    Args:
      model: that is asked.
      features, members, change: as of `jaxsyn.decode.translator.Translator`.
    """
    self._batcher = Batcher(features, members=members, change=change)

    def log_p(params: Any, batch: Any, id_BT: jax.Array) -> jax.Array:
      if isinstance(batch, tuple):
        batch = tuple({**own, "target_id_BT": id_BT} for own in batch)
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
    tell: Tell = untold,
  ) -> list[np.ndarray]:
    """log_p_T of each target: of its subwords and, last, of EOS.

    Args:
      params: of the model.
      examples: of `jaxsyn.data.sentence.example.encode`.
      targets: subwords of each, without EOS.
      tell: called with how many more are scored.
    """
    found: list[np.ndarray] = [np.empty(0)] * len(examples)
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
      taken = [i for i in order[:rows] if sizes[i] == size]
      order = order[len(taken) :]
      rows = min(rows, doubled(len(taken), 1))
      id_BT = np.full((rows, length), PAD, np.int32)
      for row, i in enumerate(taken):
        id_BT[row, : len(targets[i]) + 1] = [*targets[i], EOS]
      batch = read(
        [examples[i] for i in taken], subwords=source, words=words, rows=rows
      )
      with self._counter.calls((rows, *size)):
        log_p_BT = np.asarray(self._log_p(params, batch, id_BT))
      for row, i in enumerate(taken):
        found[i] = log_p_BT[row, : len(targets[i]) + 1]
      tell(len(taken))
    return found


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
