"""Figures of matrices in a grid: attention and syntax weightings.

Figures are created without pyplot, which needs a display and has global state.
Save one with `figure.savefig`, or show it in a notebook. All sizes are in inches.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm, TwoSlopeNorm
from matplotlib.figure import Figure

from jaxsyn.inspection.maps import Map

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
  """One matrix of a grid: a title, labels of rows and columns, values."""

  title: str
  rows: Sequence[str]
  columns: Sequence[str]
  weight_QM: np.ndarray


def panels(shown: Map) -> list[Panel]:
  """Returns a panel per head, or one if all heads have the same weighting.

  The title of an attention head names the modifiers that are active on it.
  """
  if shown.part and shown.is_one and len(shown.heads) > 1:
    titles = [f"heads {', '.join(map(str, shown.heads))}"]
  else:
    titles = [f"head {head}" for head in shown.heads]
    if shown.is_attention:
      titles = [
        f"{name} ({', '.join(parts)})" if parts else name
        for name, parts in zip(titles, shown.parts, strict=True)
      ]
  return [
    Panel(name, shown.rows, shown.columns, weight_QM)
    for name, weight_QM in zip(titles, shown.value_HQM)
  ]


def title(shown: Map) -> str:
  """Returns a description of a map."""
  where = f"{PLACES[shown.place]}, layer {shown.layer}"
  axes = "rows look at columns"
  if shown.place != "encoder":
    axes = "rows: being predicted; columns: looked at"
  if shown.kind == "parse":
    axes = "rows: whose parent is sought; columns: found there"
  if shown.is_attention:
    return f"{where} ({axes}; colours by square root)"
  if shown.layer < 0:
    return f"{shown.part}, {shown.kind}: {shown.place}, embeddings ({axes})"
  heads = ", ".join(map(str, shown.heads))
  return f"{shown.part}, {shown.kind}: {where}, heads {heads} ({axes})"


def picture(shown: Map, heading: str = "") -> Figure:
  """Draws all heads of a map.

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
  """Draws matrices side by side on one colour scale.

  The scale starts at 0; with negative values, it is blue below 0 and red above.
  With `high`, colours follow the square root, so that weights of a few hundredths
  are visible. Hidden pairs and NaN are grey.

  Args:
    panels: At least one panel.
    heading: Text above the panels.
    high: End of the scale. None: the maximum value.
  """
  panels = [
    dataclasses.replace(p, rows=_shorten(p.rows), columns=_shorten(p.columns))
    for p in panels
  ]
  values = [
    np.ma.masked_where(
      ~np.isfinite(p.weight_QM) | (p.weight_QM <= HIDDEN), p.weight_QM
    )
    for p in panels
  ]
  norm, colours = _colour_scale(values, high)
  rows, columns = map(max, zip(*(p.weight_QM.shape for p in panels)))
  side = max(rows, columns)
  cell = min(CELL, LARGEST / side)
  font_size = max(5.0, min(9.0, 60 * cell))  # points
  across = min(len(panels), 4)
  if len(panels) > 2 and side * cell > 4.0:  # a nearly square grid
    across = math.ceil(math.sqrt(len(panels)))
  down = math.ceil(len(panels) / across)
  letter = LETTER * font_size / 10
  row_labels = [label for p in panels for label in p.rows]
  column_labels = [label for p in panels for label in p.columns]
  left = max(letter * letters(label) for label in row_labels) + 0.2
  below = max(letter * letters(label) for label in column_labels) + 0.2
  wide, tall = max(1.3, cell * columns), max(0.6, cell * rows)
  above, right = 0.35, 0.25
  colour_bar = 0.9
  width = max(across * (left + wide) + right + colour_bar, 5.0)
  lines = textwrap.wrap(heading, int(width / 0.095), break_on_hyphens=False)
  top = 0.2 + 0.22 * len(lines)
  height = top + down * (above + tall + below)
  figure = Figure((width, height), dpi=110)
  figure.text(
    0.12 / width,
    1 - 0.1 / height,
    "\n".join(lines),
    size=11,
    va="top",
    family=families([heading]),
    parse_math=False,
  )

  def add_axes(x: float, y: float, width_: float, height_: float) -> Any:
    return figure.add_axes(
      (x / width, y / height, width_ / width, height_ / height)
    )

  family = families([*row_labels, *column_labels])
  text = {"family": family, "size": font_size, "parse_math": False}
  step = max(1, math.ceil(0.085 / cell))  # skips labels that would overlap
  image: Any = None
  for index, panel in enumerate(panels):
    row, column = divmod(index, across)
    Q, M = panel.weight_QM.shape
    w, h = wide * M / columns, tall * Q / rows  # equal cells in all panels
    x = column * (left + wide) + left
    y = height - top - row * (above + tall + below) - above - h
    axes = add_axes(x, y, w, h)
    image = axes.pcolormesh(
      values[index], norm=norm, cmap=colours, edgecolors="0.92", linewidth=0.4
    )
    _label(axes, panel, step, text)
  bar = min(2.0, tall)
  bar_axes = add_axes(width - 0.75, height - top - above - bar, 0.13, bar)
  figure.colorbar(image, cax=bar_axes).ax.tick_params(labelsize=8)
  return figure


def _label(
  axes: Axes, panel: Panel, step: int, text: Mapping[str, Any]
) -> None:
  """Adds title and labels to a panel: every `step`th, with text properties."""
  Q, M = panel.weight_QM.shape
  axes.set(facecolor="0.85", xlim=(0, M), ylim=(Q, 0))
  x_ticks, y_ticks = (np.arange(0, size, step) + 0.5 for size in (M, Q))
  axes.set_xticks(x_ticks, panel.columns[::step], rotation=90, **text)
  axes.set_yticks(y_ticks, panel.rows[::step], **text)
  axes.tick_params(length=0, pad=2)
  axes.spines[:].set_color("0.6")
  title_text = {**text, "family": families([panel.title]), "size": 9}
  axes.set_title(panel.title, pad=4, **title_text)


def _colour_scale(
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


def _shorten(labels: Sequence[str]) -> list[str]:
  """Truncates long labels, and replaces "▁", which is a heavy bar."""
  light = [label.replace("▁", "_") for label in labels]
  return [x if len(x) <= LONGEST else x[: LONGEST - 1] + "…" for x in light]


def letters(text: str) -> float:
  """Returns the width of a text in letters of average width."""
  widths = {"W": 1.8, "F": 1.8}
  return sum(
    widths.get(unicodedata.east_asian_width(c), 1.0)
    for c in text
    if not unicodedata.combining(c)
  )


def families(texts: Iterable[str]) -> list[str]:
  """Returns font families that together have the characters of the texts.

  The default font is first, then installed fonts with missing characters. A
  character that no font has is drawn as a box.
  """
  characters = {c for text in texts for c in text if c.isprintable()}
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
  """Returns (family, file) of upright fonts of normal weight."""
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
  """Returns the characters of a font file; none if the file is corrupt."""
  try:
    return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
  except (OSError, RuntimeError):
    return frozenset()
