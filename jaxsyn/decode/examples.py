"""Pads encoded source sentences to NumPy batches, also for ensembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxsyn.data.loader.collate import (
  Batch,
  BatchTransform,
  apply_batch_transform,
  pad,
  words_of,
)

# Arrays of `data.sentence.example.encode_all`; for an ensemble, one per member.
Example = Mapping[str, np.ndarray] | tuple[Mapping[str, np.ndarray], ...]
Batches = Batch | tuple[Batch, ...]


class Batcher:
  """Callable that makes padded batches of source sentences."""

  def __init__(
    self,
    features: Sequence[str] = (),
    *,
    members: Sequence[Sequence[str]] = (),
    batch_transform: BatchTransform | None = None,
  ):
    """Sets the features in the batches, and the user's batch transform.

    Args:
      features: Source features that the model reads, in addition to the ids.
      members: For an ensemble, the features of each member instead.
      batch_transform: Function of the user applied to every host batch.
    """
    self._is_ensemble, self._transform = bool(members), batch_transform
    self._features = [
      tuple(dict.fromkeys(("source_id", *names)))
      for names in members or [features]
    ]

  def subwords(self, example: Example) -> int:
    """Returns the source length with EOS; for an ensemble, the maximum."""
    return max(len(arrays["source_id"]) for arrays in _members(example))

  def words(self, example: Example) -> int:
    """Returns the number of source words; 0 if no feature is per word."""
    return max(
      words_of(arrays, features)
      for arrays, features in zip(_members(example), self._features)
    )

  def __call__(
    self, examples: Sequence[Example], *, subwords: int, words: int, rows: int
  ) -> Batches:
    """Pads at most `rows` examples to a batch of the given sizes."""
    batches = [
      apply_batch_transform(
        pad(
          [_members(example)[member] for example in examples],
          features,
          subwords=subwords,
          words=words,
          rows=rows,
        ),
        self._transform,
      )
      for member, features in enumerate(self._features)
    ]
    return tuple(batches) if self._is_ensemble else batches[0]


def _members(example: Example) -> Sequence[Mapping[str, np.ndarray]]:
  return example if isinstance(example, tuple) else (example,)
