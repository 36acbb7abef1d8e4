"""Pads encoded source sentences to NumPy batches, one for each model."""

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

# Arrays of `data.sentence.example.encode_all`, for each model of an ensemble.
Example = tuple[Mapping[str, np.ndarray], ...]
Batches = tuple[Batch, ...]


class Batcher:
  """Callable that makes padded batches of source sentences."""

  def __init__(
    self,
    features: Sequence[Sequence[str]] = ((),),
    *,
    batch_transform: BatchTransform | None = None,
  ):
    """Creates a batcher for models that read the given source features.

    Args:
      features: Source features that each model reads, in addition to the ids.
      batch_transform: Function of the user applied to every host batch.
    """
    self._transform = batch_transform
    self._features = [
      tuple(dict.fromkeys(("source_id", *names))) for names in features
    ]

  def subwords(self, example: Example) -> int:
    """Returns the source length with EOS; the maximum over the models."""
    return max(len(arrays["source_id"]) for arrays in example)

  def words(self, example: Example) -> int:
    """Returns the number of source words; 0 if no feature is per word."""
    return max(map(words_of, example, self._features))

  def __call__(
    self, examples: Sequence[Example], *, subwords: int, words: int, rows: int
  ) -> Batches:
    """Pads at most `rows` examples to a batch of the given sizes per model."""
    batches = [
      pad(
        [example[index] for example in examples],
        features,
        subwords=subwords,
        words=words,
        rows=rows,
      )
      for index, features in enumerate(self._features)
    ]
    return tuple(
      apply_batch_transform(batch, self._transform) for batch in batches
    )
