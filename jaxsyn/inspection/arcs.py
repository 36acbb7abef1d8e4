"""Figures of dependency trees as arcs above the words."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Collection, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Polygon
from matplotlib.path import Path

from jaxsyn.inspection.pictures import LETTER, families, letters
from jaxsyn.inspection.sentence import ReadSource, Sentence

Arc = tuple[int, int, int]  # first word, last word, child

BLUE, RED = "#33628d", "#a03c2d"


def trees(
  seen: Sentence, heading: str = "", translation: str = ""
) -> dict[str, Figure]:
  """Draws the trees of a sentence.

  Args:
    seen: The sentence.
    heading: Text before each heading.
    translation: Text below the words of the parser's tree.

  Returns:
    "tree", the parser's; "tree_read", if a control replaces it; and
    "tree_found", if a supervised head finds one.
  """
  source = seen.source
  figures = {
    "tree": tree(source, translation, heading=f"{heading}dependency tree")
  }
  if source.tree not in ("parsed", "none"):
    text = f"{heading}the {source.tree} tree that the system read"
    figures["tree_read"] = tree(
      source, head_W=source.given_head_W, heading=text
    )
  if seen.found_head_W is not None:
    text = f"{heading}each word's parent as the system finds it"
    wrong = []
    if source.parsed:
      pairs = enumerate(zip(seen.found_head_W, source.head_W))
      wrong = [word for word, (result, parsed) in pairs if result != parsed]
      count = len(source.words)
      text += f" ({count - len(wrong)} of {count} as parsed; dotted: others)"
    figures["tree_found"] = tree(
      source, head_W=seen.found_head_W, heading=text, wrong=wrong
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

  An arc leads from a parent to its child and is labelled with the child's
  relation. An arrow from above marks a root.

  Args:
    source: The sentence.
    translation: Text below the words.
    head_W: Other parents than the parser's, e.g. of a control tree. Their
      relations are unknown.
    heading: Text above the tree.
    wrong: Words whose arc is dotted and red.
  """
  words = source.words
  labels = source.relation_W
  arcs: list[Arc] = []
  roots: list[int] = []
  if head_W is not None:
    labels = ("",) * len(words)
  elif source.parsed:
    head_W = source.head_W
  else:
    heading += " (none: the parser could not read this line)"
  for child, head in enumerate(head_W or ()):
    if head == child:
      roots.append(child)
    else:
      arcs.append((min(child, head), max(child, head), child))
  x_W = _positions(words, arcs, labels)
  level = _levels(arcs)
  step = 0.36
  width = max(5.0, x_W[-1] + letters(words[-1]) * LETTER / 2 + 0.3)
  per_line = max(30, int(width / 0.095))
  titles = textwrap.wrap(heading, per_line)
  caption = textwrap.wrap(f"→ {translation}", per_line) if translation else []
  bottom = 0.5 + 0.22 * len(caption)
  rise = step * (max(level.values(), default=0) + 0.75)
  root_top = bottom + rise
  height = bottom + 0.2 + rise + 0.2 + 0.2 * len(titles)
  figure = Figure((width, height), dpi=110)
  axes = figure.add_axes((0, 0, 1, 1))
  axes.set(xlim=(0, width), ylim=(0, height))
  axes.set_axis_off()
  family = families((*words, source.text, translation))
  write = functools.partial(axes.text, family=family, parse_math=False)
  for x, word in zip(x_W, words):
    write(x, bottom - 0.1, word, size=10, ha="center", va="top")
  write(0.15, 0.1, "\n".join(caption), size=10, color="0.35", va="bottom")
  top_text = "\n".join(titles)
  write(0.15, height - 0.1, top_text, size=9, color="0.35", va="top")
  box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
  label = functools.partial(write, size=8, ha="center", va="center", bbox=box)

  def arrow(x: float, colour: str) -> None:
    points = [(x, bottom), (x - 0.04, bottom + 0.09), (x + 0.04, bottom + 0.09)]
    axes.add_patch(Polygon(points, color=colour, linewidth=0))

  for first, last, child in arcs:
    colour, style = (RED, ":") if child in wrong else (BLUE, "-")
    # Arcs to both sides of a parent start next to each other.
    begin = x_W[first + last - child] + (0.07 if child == last else -0.07)
    end = x_W[child]
    top = bottom + step * level[first, last]
    path = _arc_path(begin, end, bottom, top)
    axes.add_patch(
      PathPatch(
        path, facecolor="none", edgecolor=colour, linestyle=style, linewidth=1.1
      )
    )
    arrow(end, colour)
    label((begin + end) / 2, top, labels[child])
  for root in roots:
    style = ":" if root in wrong else "-"
    ends = [bottom + 0.05, root_top]
    axes.plot([x_W[root]] * 2, ends, style, color=RED, lw=1.1)
    arrow(x_W[root], RED)
    label(x_W[root], root_top, labels[root] or "root", color=RED)
  return figure


def _arc_path(begin: float, end: float, bottom: float, top: float) -> Path:
  """Returns a rectangle without its lower side and with round corners.

  All corners have the same radius, so that an arc never crosses one below it.
  """
  bend = min(0.3, abs(end - begin) / 2) * (1 if end > begin else -1)
  points = [(begin, bottom), (begin, top), (begin, top), (begin + bend, top)]
  points += [(end - bend, top), (end, top), (end, top), (end, bottom)]
  corner = [Path.CURVE4] * 3
  return Path(points, [Path.MOVETO, *corner, Path.LINETO, *corner])


def _positions(
  words: Sequence[str], arcs: Collection[Arc], labels: Sequence[str]
) -> list[float]:
  """Returns the middle of each word, with space for words and arc labels."""
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
  """Returns the height of each arc: one above the highest arc that it spans."""
  level: dict[tuple[int, int], int] = {}
  for first, last, _ in sorted(arcs, key=lambda arc: arc[1] - arc[0]):
    spanned = [
      height
      for (a, b), height in level.items()
      if first <= a and b <= last and (a, b) != (first, last)
    ]
    level[first, last] = 1 + max(spanned, default=0)
  return level
