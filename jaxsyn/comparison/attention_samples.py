"""Writes attention figures of a few test sentences, in SYSTEM/seed_0/look.

The sentences are selected by length and are the same for all systems. The files
of sentence N are as in `jaxsyn.inspect`:

  N.json            words, tree, translation and all numbers
  N.tree.svg        dependency tree
  N.tree_read.svg   tree that a control reads instead
  N.tree_found.svg  parents that a supervised head predicts
  N.attention.svg   heads of one layer: the first of the encoder with a modifier
"""

from __future__ import annotations

import io
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from jaxsyn.data.options import Data
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.inspection import pictures
from jaxsyn.inspection.arcs import trees
from jaxsyn.inspection.attention_sampler import informative_maps
from jaxsyn.inspection.inspector import attention_of
from jaxsyn.inspection.sentence import Sentence, to_json
from jaxsyn.session import Session
from jaxsyn.storage import files

SENTENCES = 3
SHORTEST, LONGEST = 7, 13  # words


def sample(directory: str, split: str) -> list[Parse]:
  """Returns the trees of up to SENTENCES medium-length test sentences.

  Args:
    directory: Dataset directory.
    split: Name of a test split.

  Raises:
    InputError: The text or the trees are corrupt.
  """
  parses = Dataset(directory).trees(split, "source") or []
  fit = [p for p in parses if p.parsed and SHORTEST <= len(p.head_W) <= LONGEST]
  return fit[:: max(1, len(fit) // SENTENCES)][:SENTENCES]


def record(session: Session, data: Data, folder: pathlib.Path) -> None:
  """Writes attention figures of a run, for sentences of its first test set."""
  parses = sample(data.directory, data.test[0])
  try:
    sentences = attention_of(session, parses) if parses else []
  except InputError as error:  # scores are useful without figures
    print(f"no attention samples: {error}", flush=True)
    sentences = []
  write(sentences, folder)


def write(sentences: Sequence[Sentence], folder: pathlib.Path) -> None:
  """Writes JSON and figures of inspected sentences into a new folder."""
  with files.publish_folder(folder) as new:
    for index, sentence in enumerate(sentences, start=1):
      figures = trees(sentence)
      if maps := informative_maps(sentence.attention):
        panels = itertools.chain.from_iterable(map(pictures.panels, maps))
        title = pictures.title(maps[0])
        figures["attention"] = pictures.matrices(list(panels), title)
      text = to_json(sentence, index)
      (new / f"{index}.json").write_text(text, encoding="utf-8")
      for name, figure in figures.items():
        (new / f"{index}.{name}.svg").write_bytes(as_svg(figure))


def as_svg(figure: Figure) -> bytes:
  """Returns a reproducible SVG of a figure: text outlined, heat maps as images.

  It looks the same on machines with other fonts.
  """
  for axes in figure.axes:
    for collection in axes.collections:
      if isinstance(collection, QuadMesh):
        collection.set_rasterized(True)
  content = io.BytesIO()
  with matplotlib.rc_context({"svg.hashsalt": "jaxsyn"}):
    metadata: dict[str, Any] = {"Date": None, "Creator": None}
    figure.savefig(content, format="svg", metadata=metadata)
  return content.getvalue()
