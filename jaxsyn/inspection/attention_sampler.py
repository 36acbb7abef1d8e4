"""What a model looks at while it is trained: pictures for the writers of its log.

Before this file: `inspector`, which reads sentences and pools maps. After it:
`jaxsyn.train`, which gives it to the validation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.figure import Figure

from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.inspection import pictures
from jaxsyn.inspection.inspector import (
  SentenceTooLongError,
  read_source,
  seen_by_encoder,
)
from jaxsyn.inspection.maps import Map, MapReader
from jaxsyn.inspection.sentence import ReadSource
from jaxsyn.plan import Plan
from jaxsyn.storage import files
from jaxsyn.trained.member import source_reader
from jaxsyn.trained.workdir import Run

LONGEST = 512  # subwords


class AttentionSampler:
  """Draws the encoder's attention in a few sentences of a prepared split."""

  def __init__(
    self,
    plan: Plan,
    manifest: dict[str, Any],
    split: str,
    count: int,
    *,
    batch_transform: BatchTransform | None = None,
  ):
    """Reads the sentences.

    Args:
      plan: of the run.
      manifest: of its data.
      split: of which the first `count` sentences are drawn.
      count: so many.
      batch_transform: a caller's own function on every host batch.
    """
    config = plan.config
    directory = files.path_of(config.data.directory)
    reader = source_reader(
      Run(directory, config, manifest), plan, longest=LONGEST
    )
    self._read: list[ReadSource] = []
    for source in _parsed(Dataset(directory), split):
      if len(self._read) == count:
        break
      try:
        read = read_source(reader, plan.tag, source)
      except SentenceTooLongError:
        continue
      if read is not None:
        self._read.append(read)
    self._maps = MapReader(
      plan.recipe.model, reader.features, batch_transform=batch_transform
    )

  def __call__(self, params: Any) -> list[tuple[str, Figure]]:
    """Name and picture of each sentence; parameters are whole on one device."""
    panels_made = []
    for i, maps in seen_by_encoder(self._maps, params, self._read):
      if chosen := informative_maps(maps):
        panels = pictures.panels(chosen)
        figure = pictures.matrices(panels, pictures.title(chosen))
        panels_made.append((f"attention/{i + 1}", figure))
    return sorted(panels_made, key=lambda one: one[0])


def informative_maps(maps: Iterable[Map]) -> Map | None:
  """The layer of the encoder where a part first acts, or its first."""
  encoder = [m for m in maps if m.place == "encoder"]
  return next((m for m in encoder if any(m.parts)), next(iter(encoder), None))


def _parsed(dataset: Dataset, split: str) -> list[Source]:
  """The source of a prepared split, with its trees if it has any."""
  if trees := dataset.trees(split, "source"):
    return [*trees]
  lines = dataset.text(split, "source")
  return [conllu.unparsed(line) for line in lines]
