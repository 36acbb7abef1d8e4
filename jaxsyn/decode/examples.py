"""What a model reads of some sentences, on the host; of an ensemble, each member.

Before this file: `jaxsyn.data.loader.collate`. After it: `translator` and `forced`.
"""

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

# Of `data.sentence.example.encode_all`; of an ensemble, one of each member.
Example = Mapping[str, np.ndarray] | tuple[Mapping[str, np.ndarray], ...]
Batches = Batch | tuple[Batch, ...]


class Batcher:
  """Makes batches of examples."""

  def __init__(
    self,
    features: Sequence[str] = (),
    *,
    members: Sequence[Sequence[str]] = (),
    batch_transform: BatchTransform | None = None,
  ):
    """Sets it up.

    Args:
      features: of the source side that the model reads, beyond the ids.
      members: of an ensemble, those of each member instead.
      batch_transform: a caller's own function on every host batch.
    """
    self._joint, self._change = bool(members), batch_transform
    self._features = [
      tuple(dict.fromkeys(("source_id", *names)))
      for names in members or [features]
    ]

  def subwords(self, example: Example) -> int:
    """S of an example, EOS included; that of the longest member."""
    return max(
      len(member_example["source_id"]) for member_example in _members(example)
    )

  def words(self, example: Example) -> int:
    """W of an example; 0 where no feature tells."""
    pairs = zip(_members(example), self._features)
    return max(
      words_of(member_example, features) for member_example, features in pairs
    )

  def __call__(
    self, examples: Sequence[Example], *, subwords: int, words: int, rows: int
  ) -> Batches:
    """The batch of at most so many examples, padded to these sizes."""
    batches = [
      apply_batch_transform(
        pad(
          [_members(example)[index] for example in examples],
          features,
          subwords=subwords,
          words=words,
          rows=rows,
        ),
        self._change,
      )
      for index, features in enumerate(self._features)
    ]
    return tuple(batches) if self._joint else batches[0]


def _members(example: Example) -> Sequence[Mapping[str, np.ndarray]]:
  return example if isinstance(example, tuple) else (example,)
