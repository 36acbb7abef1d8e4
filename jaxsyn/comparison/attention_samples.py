"""What systems look at, in a few sentences of a test split: SYSTEM/seed_0/look.

The sentences are chosen by their lengths alone, before anything is translated,
and are the same for all systems. For each, as `jaxsyn.inspect` has them:

  N.json            all numbers, words, tree, translation
  N.tree.svg        the tree over the words
  N.tree_read.svg   the tree that a control read instead
  N.tree_found.svg  the parents that a supervised head finds
  N.attention.svg   the heads of one layer: the first of the encoder with a part
"""

from __future__ import annotations

import io
import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.inspection import pictures
from jaxsyn.inspection.arcs import trees
from jaxsyn.inspection.attention_sampler import informative_maps
from jaxsyn.inspection.maps import Map
from jaxsyn.inspection.sentence import Sentence, to_json
from jaxsyn.storage import files

SENTENCES = 3
SHORTEST, LONGEST = 7, 13  # words: enough for a tree, few enough for a page


def sample(directory: str, split: str) -> list[Parse]:
  """The sentences that are looked at, with their trees; fewer if few are fit.

  Args:
    directory: of a prepared data set.
    split: of its test splits.

  Raises:
    InputError: its text or trees are not as they were written.
  """
  parses = Dataset(directory).trees(split, "source") or []
  fit = [p for p in parses if p.parsed and SHORTEST <= len(p.head_W) <= LONGEST]
  step = max(1, len(fit) // SENTENCES)
  return fit[::step][:SENTENCES]


def write(seen: Sequence[Sentence], folder: pathlib.Path) -> None:
  """Writes all files, or none.

  Args:
    seen: of `jaxsyn.inspect.attention_of`.
    folder: made anew.
  """
  with files.publish_folder(folder) as new:
    for index, sentence in enumerate(seen, start=1):
      text = to_json(sentence, index)
      (new / f"{index}.json").write_text(text, encoding="utf-8")
      for name, figure in _figures(sentence).items():
        (new / f"{index}.{name}.svg").write_bytes(as_svg(figure))


def as_svg(figure: Figure) -> bytes:
  """An SVG that is the same each time; letters are outlines, cells one image.

  A page that is opened on another machine so looks as it did here.
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


def _figures(seen: Sentence) -> dict[str, Figure]:
  figures = trees(seen)
  if maps := _of_layer(seen):
    panels = [panel for one in maps for panel in pictures.panels(one)]
    figures["attention"] = pictures.matrices(panels, pictures.title(maps[0]))
  return figures


def _of_layer(seen: Sentence) -> list[Map]:
  """The layer to show: where a part first acts; of an RNN, its contexts."""
  if chosen := informative_maps(seen.attention):
    return [chosen]
  cross = [m for m in seen.attention if m.place == "cross"]
  return [m for m in cross if m.layer == cross[0].layer]
