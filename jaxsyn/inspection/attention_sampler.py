"""Draws attention of validation sentences during training.

`jaxsyn.train` imports this module only if figures are wanted, since it loads
matplotlib.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure

from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.sentence import conllu
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.decode.sources import SourceReader
from jaxsyn.inspection import pictures
from jaxsyn.inspection.inspector import (
  SentenceTooLongError,
  encoder_attention,
  read_source,
)
from jaxsyn.inspection.maps import Map, MapReader
from jaxsyn.inspection.sentence import ReadSource
from jaxsyn.plan import Plan
from jaxsyn.session.member import source_reader
from jaxsyn.session.workdir import Run
from jaxsyn.storage import files

LONGEST = 512  # subwords


class AttentionSampler:
  """Callable that plots encoder attention for a split's first sentences."""

  def __init__(
    self,
    plan: Plan,
    manifest: dict[str, Any],
    split: str,
    count: int,
    *,
    batch_transform: BatchTransform | None = None,
  ):
    """Reads the sentences whose attention is to be drawn.

    Args:
      plan: Plan of the run.
      manifest: Manifest of the dataset.
      split: Split whose first sentences are drawn.
      count: Number of sentences.
      batch_transform: User-defined function of every host batch.
    """
    directory = files.path_of(plan.config.data.directory)
    run = Run(directory, plan.config, manifest)
    reader = source_reader(run, longest=LONGEST)
    readable = _readable(reader, plan.tag, Dataset(directory), split)
    self._sources = list(itertools.islice(readable, count))
    self._maps = MapReader(
      plan.recipe.model, reader.features, batch_transform=batch_transform
    )

  def __call__(self, params: Any) -> list[tuple[str, Figure]]:
    """Draws the encoder attention; returns pairs (name, figure)."""
    figures = []
    for i, maps in encoder_attention(self._maps, params, self._sources):
      for chosen in informative_maps(maps):
        figures.append((f"attention/{i + 1}", pictures.picture(chosen)))
    return sorted(figures, key=lambda entry: entry[0])


def informative_maps(maps: Sequence[Map]) -> list[Map]:
  """Returns attention maps of the first encoder layer with modified attention.

  Without modifiers, returns that of the first layer, and for a recurrent encoder
  cross-attention, one map for each window.
  """
  encoder = [m for m in maps if m.place == "encoder"]
  if encoder:
    return [next((m for m in encoder if any(m.parts)), encoder[0])]
  cross = [m for m in maps if m.place == "cross"]
  return [m for m in cross if m.layer == cross[0].layer]


def _readable(
  reader: SourceReader, tag: int | None, dataset: Dataset, split: str
) -> Iterator[ReadSource]:
  """Yields the sentences of a split that are neither empty nor too long."""
  sources = dataset.trees(split, "source") or map(
    conllu.unparsed, dataset.text(split, "source")
  )
  for source in sources:
    try:
      read = read_source(reader, tag, source)
    except SentenceTooLongError:
      continue
    if read is not None:
      yield read
