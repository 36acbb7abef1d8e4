"""The picture of a tree: arcs over the words."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Polygon
from matplotlib.path import Path

from jaxsyn.inspection.fonts import LETTER, families, letters
from jaxsyn.inspection.sentence import ReadSource

Arc = tuple[int, int, int]  # its first word, its last word, the child

BLUE, RED = "#33628d", "#a03c2d"


def tree(
  source: ReadSource,
  translation: str = "",
  *,
  head_W: Sequence[int] | None = None,
  heading: str = "dependency tree",
  wrong: Collection[int] = (),
) -> Figure:
  """The dependency tree as arcs over the words.

  An arc leads from a parent to its child and bears the child's relation;
  an arrow from above marks a root.

  Args:
    source: the sentence.
    translation: printed below the words, if given.
    head_W: other parents than the parser's, e.g. those of a control tree,
      whose relations are unknown.
    heading: stands above all.
    wrong: words whose arc is drawn in another colour, dotted.
  """
  has_tree = source.parsed or head_W is not None
  labels = source.relation_W if head_W is None else ("",) * len(source.words)
  head_W = source.head_W if head_W is None else head_W
  words = source.words
  arcs = [
    (min(w, h), max(w, h), w) for w, h in enumerate(head_W) if h != w
  ] if has_tree else []  # fmt: skip
  x_W = _positions(words, arcs, labels)
  level = _levels(arcs)
  step, base = 0.36, 0.5
  deepest = max(level.values(), default=0)
  width = max(5.0, x_W[-1] + letters(words[-1]) * LETTER / 2 + 0.3)
  per_line = max(30, int(width / 0.095))
  if not has_tree:
    heading += " (none: the parser could not read this line)"
  titles = textwrap.wrap(heading, per_line)
  caption = textwrap.wrap(f"→ {translation}", per_line) if translation else []
  bottom = base + 0.22 * len(caption)
  height = bottom + 0.2 + step * (deepest + 0.75) + 0.2 + 0.2 * len(titles)
  figure = Figure((width, height), dpi=110)
  axes = figure.add_axes((0, 0, 1, 1))
  axes.set_xlim(0, width)
  axes.set_ylim(0, height)
  axes.set_axis_off()
  family = families((*words, source.text, translation))
  write = functools.partial(axes.text, family=family, parse_math=False)
  for x, word in zip(x_W, words):
    write(x, bottom - 0.1, word, size=10, ha="center", va="top")
  below, above = "\n".join(caption), "\n".join(titles)
  write(0.15, 0.1, below, size=10, color="0.35", va="bottom")
  write(0.15, height - 0.1, above, size=9, color="0.35", va="top")
  label = functools.partial(
    write,
    size=8,
    ha="center",
    va="center",
    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
  )
  line: dict[str, Any] = {"facecolor": "none", "linewidth": 1.1}
  styles = {
    False: {"edgecolor": BLUE, "linestyle": "-"},
    True: {"edgecolor": RED, "linestyle": ":"},
  }
  for first, last, child in arcs:
    parent = first if child == last else last
    # Arcs leave a parent a little aside, so that they do not meet in a point.
    begin = x_W[parent] + (0.07 if child > parent else -0.07)
    end = x_W[child]
    # Corners of one radius: an arc below another never crosses it.
    top = bottom + step * level[first, last]
    bend = min(0.3, abs(end - begin) / 2) * (1 if end > begin else -1)
    axes.add_patch(
      PathPatch(
        Path(
          [
            *((begin, bottom), (begin, top), (begin, top), (begin + bend, top)),
            *((end - bend, top), (end, top), (end, top), (end, bottom)),
          ],
          [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3],
        ),
        **line,
        **styles[child in wrong],
      )
    )
    _arrow(axes, (end, bottom), RED if child in wrong else BLUE)
    label((begin + end) / 2, top, labels[child])
  for root, head in enumerate(head_W):
    if has_tree and root == head:  # from above all arcs
      top = bottom + step * (deepest + 0.75)
      dotted = ":" if root in wrong else "-"
      axes.plot(
        [x_W[root]] * 2, [bottom + 0.05, top], dotted, color=RED, lw=1.1
      )
      _arrow(axes, (x_W[root], bottom), RED)
      label(x_W[root], top, labels[root] or "root", color=RED)
  return figure


def _arrow(axes: Axes, point: tuple[float, float], colour: str) -> None:
  x, y = point
  points = [(x, y), (x - 0.04, y + 0.09), (x + 0.04, y + 0.09)]
  axes.add_patch(Polygon(points, color=colour, linewidth=0))


def _positions(
  words: Sequence[str], arcs: Collection[Arc], labels: Sequence[str]
) -> list[float]:
  """Middle of each word: words and the labels of arcs must have their room."""
  x_W: list[float] = []
  for index, word in enumerate(words):
    half = max(letters(word) * LETTER, 0.2) / 2
    if index == 0:
      x_W.append(half + 0.25)
      continue
    before = max(letters(words[index - 1]) * LETTER, 0.2) / 2
    x = x_W[-1] + before + half + 0.14
    for first, last, child in arcs:
      if last == index:
        x = max(x, x_W[first] + 0.068 * letters(labels[child]) + 0.34)
    x_W.append(x)
  return x_W


def _levels(arcs: Collection[Arc]) -> dict[tuple[int, int], int]:
  """Height of each arc: one above the highest that lies below it."""
  level: dict[tuple[int, int], int] = {}
  for first, last, _ in sorted(arcs, key=lambda arc: arc[1] - arc[0]):
    below = [
      height
      for (a, b), height in level.items()
      if first <= a and b <= last and (a, b) != (first, last)
    ]
    level[first, last] = 1 + max(below, default=0)
  return level
