"""Draws dependency trees as arcs above the words."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Polygon
from matplotlib.path import Path

from jaxsyn.inspection.pictures import LETTER, families, letters
from jaxsyn.inspection.sentence import ReadSource, Sentence

Arc = tuple[int, int, int]  # first word, last word, child

BLUE, RED = "#33628d", "#a03c2d"
STEP = 0.36  # inches between two levels of arcs


def trees(
  seen: Sentence, heading: str = "", translation: str = ""
) -> dict[str, Figure]:
  """Draws a sentence's parsed tree, control tree and predicted tree.

  Args:
    seen: The sentence.
    heading: Text before each heading.
    translation: Text below the words of the parser's tree.

  Returns:
    "tree", the parser's; "tree_read", if a control replaces it; and
    "tree_found", if a supervised head finds one.
  """
  source, found_head_W = seen.source, seen.found_head_W
  figures = {
    "tree": tree(source, translation, heading=f"{heading}dependency tree")
  }
  if source.tree not in ("parsed", "none"):
    text = f"{heading}the {source.tree} tree that the system read"
    figures["tree_read"] = tree(
      source, head_W=source.given_head_W, heading=text
    )
  if found_head_W is not None:
    text = f"{heading}parents that the system predicts"
    wrong: list[int] = []
    if source.parsed:
      count = len(source.words)
      wrong = [w for w in range(count) if found_head_W[w] != source.head_W[w]]
      text += f" ({count - len(wrong)} of {count} as parsed; dotted: others)"
    figures["tree_found"] = tree(
      source, head_W=found_head_W, heading=text, wrong=wrong
    )
  return figures


def tree(
  source: ReadSource,
  translation: str = "",
  *,
  head_W: Sequence[int] | None = None,
  heading: str = "dependency tree",
  wrong: Collection[int] = (),
) -> Figure:
  """Draws a dependency tree.

  An arc leads from a parent to its child and is labeled with the child's relation.
  An arrow from above marks a root.

  Args:
    source: The sentence.
    translation: Text below the words.
    head_W: Other parents than the parser's, e.g. in a control tree. Their
      relations are unknown.
    heading: Text above the tree.
    wrong: Words whose arc is dotted and red.
  """
  words, labels = source.words, source.relation_W
  if head_W is not None:
    labels = ("",) * len(words)
  elif source.parsed:
    head_W = source.head_W
  else:
    head_W = ()
    heading += " (none: the parser could not parse this line)"
  arcs = [
    (min(child, head), max(child, head), child)
    for child, head in enumerate(head_W)
    if child != head
  ]
  x_W, level = _positions(words, arcs, labels), _levels(arcs)
  width = max(5.0, x_W[-1] + letters(words[-1]) * LETTER / 2 + 0.3)
  per_line = max(30, int(width / 0.095))
  titles = textwrap.wrap(heading, per_line)
  caption = textwrap.wrap(f"→ {translation}", per_line) if translation else []
  bottom = 0.5 + 0.22 * len(caption)
  root_top = bottom + STEP * (max(level.values(), default=0) + 0.75)
  height = root_top + 0.4 + 0.2 * len(titles)
  figure = Figure((width, height), dpi=110)
  axes = figure.add_axes((0, 0, 1, 1))
  axes.set(xlim=(0, width), ylim=(0, height))
  axes.set_axis_off()
  text: dict[str, Any] = {
    "family": families((*words, source.text, translation)), "parse_math": False
  }  # fmt: skip
  for x, word in zip(x_W, words):
    axes.text(x, bottom - 0.1, word, size=10, ha="center", va="top", **text)
  text |= {"color": "0.35", "size": 9}
  axes.text(0.15, 0.1, "\n".join(caption), va="bottom", **text)
  axes.text(0.15, height - 0.1, "\n".join(titles), va="top", **text)
  for first, last, child in arcs:
    # Arcs to both sides of a parent start next to each other.
    start = x_W[first + last - child] + (0.07 if child == last else -0.07)
    top = bottom + STEP * level[first, last]
    path = _arc_path(start, x_W[child], bottom, top)
    color, style = (RED, ":") if child in wrong else (BLUE, "-")
    x = (start + x_W[child]) / 2
    _draw_arc(axes, path, color, style)
    _draw_label(axes, x, top, labels[child], "black")
  for root in (child for child, head in enumerate(head_W) if child == head):
    path = Path([(x_W[root], root_top), (x_W[root], bottom)])
    style = ":" if root in wrong else "-"
    _draw_arc(axes, path, RED, style)
    _draw_label(axes, x_W[root], root_top, labels[root] or "root", RED)
  return figure


def _draw_arc(axes: Axes, path: Path, color: str, style: str) -> None:
  """Draws a path that ends in an arrowhead."""
  line: dict[str, Any] = {"edgecolor": color, "linestyle": style}
  axes.add_patch(PathPatch(path, facecolor="none", linewidth=1.1, **line))
  x, y = np.asarray(path.vertices)[-1]
  tip = [(x, y), (x - 0.04, y + 0.09), (x + 0.04, y + 0.09)]
  axes.add_patch(Polygon(tip, color=color, linewidth=0))


def _draw_label(axes: Axes, x: float, y: float, label: str, color: str) -> None:
  box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
  text: dict[str, Any] = {"family": families([label]), "parse_math": False}
  text |= {"size": 8, "ha": "center", "va": "center", "color": color}
  axes.text(x, y, label, bbox=box, **text)


def _arc_path(start: float, end: float, bottom: float, top: float) -> Path:
  """Returns the path of an arc: a rounded rectangle without its bottom side.

  All corners have the same radius, so that an arc never crosses one below it.
  """
  bend = min(0.3, abs(end - start) / 2) * (1 if end > start else -1)
  points = [(start, bottom), (start, top), (start, top), (start + bend, top)]
  points += [(end - bend, top), (end, top), (end, top), (end, bottom)]
  corner = [Path.CURVE4] * 3
  return Path(points, [Path.MOVETO, *corner, Path.LINETO, *corner])


def _positions(
  words: Sequence[str], arcs: Collection[Arc], labels: Sequence[str]
) -> list[float]:
  """Returns the horizontal center of each word, with room for arc labels."""
  half_W = [max(letters(word) * LETTER, 0.2) / 2 for word in words]
  x_W = [half_W[0] + 0.25]
  for index in range(1, len(words)):
    x = x_W[-1] + half_W[index - 1] + half_W[index] + 0.14
    for first, last, child in arcs:
      if last == index:
        x = max(x, x_W[first] + 0.068 * letters(labels[child]) + 0.34)
    x_W.append(x)
  return x_W


def _levels(arcs: Collection[Arc]) -> dict[tuple[int, int], int]:
  """Returns the level of each arc, one above the highest arc that it spans."""
  level: dict[tuple[int, int], int] = {}
  for first, last, _ in sorted(arcs, key=lambda arc: arc[1] - arc[0]):
    spanned = [
      height
      for (a, b), height in level.items()
      if first <= a and b <= last and (a, b) != (first, last)
    ]
    level[first, last] = 1 + max(spanned, default=0)
  return level
