"""Draws attention maps, modifier outputs and learning curves.

Figures are created without pyplot, which needs a display and has global state.
Save one with `figure.savefig`, or show it in a notebook. All sizes are in inches.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.colors import Normalize, PowerNorm, TwoSlopeNorm
from matplotlib.figure import Figure

from jaxsyn.inspection.maps import Map
from jaxsyn.storage import files
from jaxsyn.storage.remote import PathLike
from jaxsyn.training import log

LETTER = 0.085  # approximate width of a letter at 10 points
CELL = 0.21  # maximum width of a row or column
LARGEST = 8.0  # maximum width of a panel
LONGEST = 20  # maximum letters of a label
HIDDEN = -1e6  # biases up to this value hide a pair and are not on the scale
PLACES = {
  "encoder": "encoder self-attention",
  "decoder": "decoder self-attention",
  "cross": "cross-attention",
}
_FONT = "DejaVu Sans"  # part of matplotlib


@dataclasses.dataclass(frozen=True)
class Panel:
  """One matrix of a grid, with its title and the labels of rows and columns."""

  title: str
  rows: Sequence[str]
  columns: Sequence[str]
  weight_QM: np.ndarray


def panels(shown: Map) -> list[Panel]:
  """Returns one matrix panel per head, or a single panel for equal matrices.

  The title of an attention head names the modifiers that are active on it.
  """
  titles = [f"head {head}" for head in shown.heads]
  if shown.is_attention:
    for i, parts in enumerate(shown.parts):
      titles[i] += f" ({', '.join(parts)})" if parts else ""
  elif shown.is_one and len(shown.heads) > 1:
    titles = [f"heads {', '.join(map(str, shown.heads))}"]
  return [
    Panel(name, shown.rows, shown.columns, weight_QM)
    for name, weight_QM in zip(titles, shown.value_HQM)
  ]


def title(shown: Map) -> str:
  """Returns the figure title of a map: stack, layer, modifier and heads."""
  place = f"{PLACES[shown.place]}, layer {shown.layer}"
  if shown.is_attention:
    return f"{place} (rows attend to columns; colors by square root)"
  if shown.layer < 0:
    return f"{shown.part}, {shown.kind}: {shown.place}, embeddings"
  heads = ", ".join(map(str, shown.heads))
  return f"{shown.part}, {shown.kind}: {place}, heads {heads}"


def picture(shown: Map, heading: str = "") -> Figure:
  """Draws a matrix per head: attention weights or the output of a modifier.

  Args:
    shown: Attention, on a scale from 0 to 1, or an array of a modifier, on a
      scale up to its maximum.
    heading: Text before the title.
  """
  heading = f"{heading}: {title(shown)}" if heading else title(shown)
  return matrices(panels(shown), heading, 1.0 if shown.is_attention else None)


def matrices(
  panels: Sequence[Panel], heading: str = "", high: float | None = 1.0
) -> Figure:
  """Draws matrices side by side on one color scale.

  The scale starts at 0; with negative values, it is blue below 0 and red above.
  With `high`, colors follow the square root, so that weights of a few hundredths
  are visible. Hidden pairs and NaN are grey.

  Args:
    panels: At least one panel.
    heading: Text above the panels.
    high: End of the scale. None: the maximum value.
  """
  values = []
  for panel in panels:
    weight_QM = panel.weight_QM
    is_hidden_QM = ~np.isfinite(weight_QM) | (weight_QM <= HIDDEN)
    values.append(np.ma.masked_where(is_hidden_QM, weight_QM))
  norm, colors = _color_scale(values, high)
  rows, columns = map(max, zip(*(panel.weight_QM.shape for panel in panels)))
  cell = min(CELL, LARGEST / max(rows, columns))
  font_size = max(5.0, min(9.0, 60 * cell))  # points
  across = min(len(panels), 4)
  if len(panels) > 2 and max(rows, columns) * cell > 4.0:
    across = math.ceil(math.sqrt(len(panels)))  # a nearly square grid
  down = math.ceil(len(panels) / across)
  row_labels = itertools.chain.from_iterable(p.rows for p in panels)
  column_labels = itertools.chain.from_iterable(p.columns for p in panels)
  left, below = _label_width(row_labels), _label_width(column_labels)
  width = max(5.0, across * (left + max(1.3, cell * columns)) + 0.9)
  lines = textwrap.wrap(heading, int(width / 0.095), break_on_hyphens=False)
  height = down * (below + max(0.6, cell * rows) + 0.35) + 0.22 * len(lines)
  figure = Figure((width, height), dpi=110, layout="constrained")
  figure.suptitle(
    "\n".join(lines), size=11, family=_families([heading]), parse_math=False
  )
  grid = figure.subplots(down, across, squeeze=False)
  for axes in grid.flat[len(panels) :]:
    axes.set_axis_off()
  step = max(1, math.ceil(0.085 / cell))  # skips labels that would overlap
  image: Any = None
  for axes, panel, value_QM in zip(grid.flat, panels, values):
    image = axes.imshow(value_QM, norm=norm, cmap=colors)
    axes.set(facecolor="0.85")
    labels = [_short(label) for label in (*panel.rows, *panel.columns)]
    text: dict[str, Any] = {
      "family": _families(labels), "size": font_size, "parse_math": False
    }  # fmt: skip
    Q, M = panel.weight_QM.shape
    axes.set_yticks(range(0, Q, step), labels[:Q:step], **text)
    axes.set_xticks(range(0, M, step), labels[Q::step], rotation=90, **text)
    axes.tick_params(length=0, pad=2)
    text |= {"family": _families([panel.title]), "size": 9}
    axes.set_title(panel.title, pad=4, **text)
  figure.colorbar(image, ax=grid, shrink=min(1.0, 2.0 / height))
  return figure


def learning_curve(run: PathLike, metric: str = "bleu") -> Figure:
  """Draws the training and validation loss, and a validation metric.

  Args:
    run: Run directory, which need not exist.
    metric: Metric of config.train.selection.
  """
  records, _ = log.records(files.path_of(run))
  figure = Figure((8, 2.6), layout="constrained")
  left, right = figure.subplots(1, 2)
  curves = [(left, "loss", kind) for kind in log.KINDS]
  for axes, name, kind in (*curves, (right, metric, "validation")):
    points = [r for r in records if r["kind"] == kind and name in r]
    steps = [record["step"] for record in points]
    values = [record[name] for record in points]
    axes.plot(steps, values, marker=".", label=kind)
    axes.set(xlabel="updates", title=name)
    axes.legend(frameon=False)
  return figure


def _color_scale(
  values: Sequence[np.ma.MaskedArray], high: float | None
) -> tuple[Normalize, str]:
  low = min(float(v.filled(0).min()) for v in values)
  largest = max(float(v.filled(0).max()) for v in values)
  if low < 0:
    bound = max(-low, largest)
    return TwoSlopeNorm(0.0, -bound, bound), "RdBu_r"
  if high is None:
    return Normalize(0.0, largest or 1.0), "Blues"
  return PowerNorm(0.5, 0.0, max(high, largest)), "Blues"


def _short(label: str) -> str:
  """Truncates a long label, and replaces "▁", which looks like a heavy bar."""
  label = label.replace("▁", "_")
  return label if len(label) <= LONGEST else label[: LONGEST - 1] + "…"


def _label_width(labels: Iterable[str]) -> float:
  return LETTER * max(_letters(_short(label)) for label in labels) + 0.2


def _letters(text: str) -> float:
  """Returns the width of a text, in units of an average letter."""
  widths = {"W": 1.8, "F": 1.8}
  return sum(
    widths.get(unicodedata.east_asian_width(c), 1.0)
    for c in text
    if not unicodedata.combining(c)
  )


def _families(texts: Iterable[str]) -> list[str]:
  """Returns font families that together cover all characters of the texts.

  The default font is first, then installed fonts with missing characters. A
  character that no font has is drawn as a box.
  """
  characters = {c for c in "".join(texts) if c.isprintable()}
  fonts = [_FONT]
  missing = characters - _characters(font_manager.findfont(_FONT))
  for name, path in _installed():
    if not missing:
      break
    if covered := missing & _characters(path):
      fonts.append(name)
      missing -= covered
  return fonts


@functools.cache
def _installed() -> tuple[tuple[str, str], ...]:
  """Returns (family, file) for each installed regular font."""
  fonts = {
    (entry.name, entry.fname)
    for entry in font_manager.fontManager.ttflist
    if entry.style == "normal"
    and entry.weight in (400, "normal")
    and not entry.name.startswith("Last Resort")  # has boxes for everything
  }
  return tuple(sorted(fonts))


@functools.cache
def _characters(path: str) -> frozenset[str]:
  """Returns the characters that a font file covers; empty if it is corrupt."""
  try:
    return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
  except (OSError, RuntimeError):
    return frozenset()
