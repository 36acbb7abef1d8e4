"""Pictures of matrices in a grid: attention, weightings.

Figures are made without pyplot: nothing global changes, no display is needed,
and whoever gets one saves it (`figure.savefig`) or shows it in a notebook.
All sizes are in inches.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import Normalize, PowerNorm, TwoSlopeNorm
from matplotlib.figure import Figure

from jaxsyn.inspection.fonts import LETTER, families, letters
from jaxsyn.inspection.maps import Map

CELL = 0.21  # width of a row or column of a matrix
LARGEST = 8.0  # width of a panel; cells of longer sentences are smaller
LONGEST = 20  # letters of a label of a matrix
HIDDEN = -1e6  # a bias below hides a pair; it has no place on a colour scale
PLACES = {
  "encoder": "encoder self-attention",
  "decoder": "decoder self-attention",
  "cross": "cross-attention",
}


@dataclasses.dataclass(frozen=True)
class Panel:
  """One matrix of a grid: a title, names of rows and columns, values."""

  title: str
  rows: Sequence[str]
  columns: Sequence[str]
  weight_QM: np.ndarray


def panels(shown: Map) -> list[Panel]:
  """A panel a head; a single one where all heads have the same matrix.

  The title of attention names the parts that work on the head.
  """
  if shown.part and shown.is_one and len(shown.heads) > 1:
    titles = [f"heads {', '.join(map(str, shown.heads))}"]
  else:
    parts = shown.parts if shown.is_attention else [()] * len(shown.heads)
    titles = [
      f"head {head}" + (f" ({', '.join(names)})" if names else "")
      for head, names in zip(shown.heads, parts, strict=True)
    ]
  return [  # of one title the first matrix alone
    Panel(title, shown.rows, shown.columns, weight_QM=value_QM)
    for title, value_QM in zip(titles, shown.value_HQM)
  ]


def title(shown: Map) -> str:
  """What a map is, in words."""
  where = f"{PLACES[shown.place]}, layer {shown.layer}"
  rows = "rows look at columns"
  if shown.place != "encoder":
    rows = "rows: being predicted; columns: looked at"
  if shown.kind == "parse":
    rows = "rows: whose parent is sought; columns: found there"
  if shown.is_attention:
    return f"{where} ({rows}; colours by square root)"
  if shown.layer < 0:
    return f"{shown.part}, {shown.kind}: {shown.place}, embeddings ({rows})"
  heads = ", ".join(map(str, shown.heads))
  return f"{shown.part}, {shown.kind}: {where}, heads {heads} ({rows})"


def picture(shown: Map, heading: str = "") -> Figure:
  """All heads of a layer.

  Args:
    shown: attention, on a scale from 0 to 1; or what a part published, on a
      scale up to its largest value.
    heading: stands before the title.
  """
  heading = f"{heading}: {title(shown)}" if heading else title(shown)
  return matrices(panels(shown), heading, 1.0 if shown.is_attention else None)


def matrices(
  panels: Sequence[Panel], heading: str = "", high: float | None = 1.0
) -> Figure:
  """Matrices side by side, rows ask, columns are looked at, one colour scale.

  The scale begins at 0, unless something is negative: then it is blue below 0
  and red above. Up to 1 colours follow the square root, so that weights of a
  few hundredths are seen. What is hidden or no number is grey.

  Args:
    panels: at least one.
    heading: stands above all.
    high: where the scale ends; None: at the largest value.
  """
  panels = [
    dataclasses.replace(p, rows=_short(p.rows), columns=_short(p.columns))
    for p in panels
  ]
  seen = [
    np.ma.masked_where(
      ~np.isfinite(p.weight_QM) | (p.weight_QM <= HIDDEN), p.weight_QM
    )
    for p in panels
  ]
  low = min(float(v.filled(0).min()) for v in seen)
  largest = max(float(v.filled(0).max()) for v in seen)
  if low < 0:
    bound = max(-low, largest)
    norm: Normalize = TwoSlopeNorm(0.0, -bound, bound)
    colours = "RdBu_r"
  elif high is None:
    norm, colours = Normalize(0.0, largest or 1.0), "Blues"
  else:
    norm, colours = PowerNorm(0.5, 0.0, max(high, largest)), "Blues"

  rows, columns = map(max, zip(*(p.weight_QM.shape for p in panels)))
  longest_side = max(rows, columns)
  cell = min(CELL, LARGEST / longest_side)
  size = max(5.0, min(9.0, 60 * cell))  # of letters, in points
  across = min(len(panels), 4)
  if len(panels) > 2 and longest_side * cell > 4.0:  # large ones: nearly square
    across = math.ceil(math.sqrt(len(panels)))
  down = math.ceil(len(panels) / across)
  letter = LETTER * size / 10

  def longest(labels: Callable[[Panel], Sequence[str]]) -> float:
    return max(letter * letters(label) for p in panels for label in labels(p))

  left = longest(lambda p: p.rows) + 0.2
  below = longest(lambda p: p.columns) + 0.2
  wide, tall = max(1.3, cell * columns), max(0.6, cell * rows)
  above, right = 0.35, 0.25
  width = across * (left + wide) + right + 0.9  # the colour bar
  width = max(width, 5.0)
  heading_lines = textwrap.wrap(
    heading, int(width / 0.095), break_on_hyphens=False
  )
  top = 0.2 + 0.22 * len(heading_lines)
  height = top + down * (above + tall + below)
  figure = Figure((width, height), dpi=110)
  family = families(t for p in panels for t in (*p.rows, *p.columns))
  figure.text(
    0.12 / width,
    1 - 0.1 / height,
    "\n".join(heading_lines),
    size=11,
    va="top",
    family=families([heading]),
    parse_math=False,
  )
  image: Any = None  # of the last panel; all have one scale
  for index, panel in enumerate(panels):
    row, column = divmod(index, across)
    Q, M = panel.weight_QM.shape
    # The size of a cell is the same in all panels of different sentences.
    w, h = wide * M / columns, tall * Q / rows
    x = column * (left + wide) + left
    y = height - top - row * (above + tall + below) - above - h
    axes = figure.add_axes((x / width, y / height, w / width, h / height))
    axes.set_facecolor("0.85")
    image = axes.pcolormesh(
      seen[index], norm=norm, cmap=colours, edgecolors="0.92", linewidth=0.4
    )
    axes.set_xlim(0, M)
    axes.set_ylim(Q, 0)
    step = max(1, math.ceil(0.085 / cell))  # labels that would overlap
    text: dict[str, Any] = {
      "family": family, "size": size, "parse_math": False,
    }  # fmt: skip
    axes.set_xticks(
      np.arange(0, M, step) + 0.5, panel.columns[::step], rotation=90, **text
    )
    axes.set_yticks(np.arange(0, Q, step) + 0.5, panel.rows[::step], **text)
    axes.tick_params(length=0, pad=2)
    for spine in axes.spines.values():
      spine.set_color("0.6")
    axes.set_title(
      panel.title, size=9, pad=4, family=families([panel.title]),
      parse_math=False,
    )  # fmt: skip
  bar = min(2.0, tall)
  bar_axes = figure.add_axes(
    (
      (width - 0.75) / width,
      (height - top - above - bar) / height,
      0.13 / width,
      bar / height,
    )
  )
  figure.colorbar(image, cax=bar_axes).ax.tick_params(labelsize=8)
  return figure


def _short(labels: Sequence[str]) -> list[str]:
  """A link or a babbled word must not take the page; "▁" is a heavy bar."""
  light = [label.replace("▁", "_") for label in labels]
  return [x if len(x) <= LONGEST else x[: LONGEST - 1] + "…" for x in light]
