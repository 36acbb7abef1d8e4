"""The training split as this host sees it: its rows of every batch.

Before this file: the data room. After it: `loop`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np

from jaxsyn.data.loader.batch_plan import BatchPlan, Planned, Position
from jaxsyn.data.loader.batches import Batch, Change, assemble, changed, stream
from jaxsyn.data.loader.columns import Columns


@dataclasses.dataclass(frozen=True)
class Feed:
  """The training split: facts, and which batch comes when.

  Attributes:
    columns: facts of all pairs.
    names: features in a batch.
    plan: batches of every epoch.
    change: a caller's own function on every host batch.
  """

  columns: Columns
  names: tuple[str, ...]
  plan: BatchPlan
  change: Change | None = None

  def batches(self, start: Position) -> Iterator[tuple[Position, Batch]]:
    """This host's batches from a position on, without end."""
    hosts = jax.process_index(), jax.process_count()
    for position, batch in stream(
      self.columns, self.names, self.plan, start, *hosts
    ):
      yield position, changed(batch, self.change)

  def empty(self) -> list[Batch]:
    """A batch of padding in every shape, to compile with."""
    nobody = np.empty(0, np.int64)
    batches = [
      assemble(
        self.columns,
        self.names,
        Planned(shape, nobody),
        jax.process_index(),
        jax.process_count(),
      )
      for shape in self.plan.shapes
    ]
    return [changed(batch, self.change) for batch in batches]
