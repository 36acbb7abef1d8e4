"""A caller's own function on every batch: the same for training and translating.

Before this file: `columns`, of which batches are made. After it: `split`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxsyn.data.loader.columns import Batch
from jaxsyn.errors import InputError

BatchTransform = Callable[[Batch], Batch]


def apply_batch_transform(
  batch: Batch, transform: BatchTransform | None
) -> Batch:
  """The batch after a caller's own function, e.g. with its weighting matrix.

  Double precision becomes single, as the model computes.

  Raises:
    InputError: the function gave no dict of arrays with as many rows.
  """
  if transform is None:
    return batch
  rows = len(batch["source_id_BS"])
  new = transform(dict(batch))
  if not isinstance(new, dict):
    raise InputError(f"the change of a batch returned {type(new).__name__}.")
  for name, array in new.items():
    array = np.asarray(array)
    if array.ndim == 0 or len(array) != rows:
      raise InputError(
        f"the change of a batch made {name} of shape {array.shape}; its first "
        f"axis must be the {rows} rows of the batch."
      )
    single = array.dtype == np.float64
    new[name] = array.astype(np.float32) if single else array
  return new
