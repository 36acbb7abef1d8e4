"""Statistics of a prepared dataset, written to report.txt and report.png.

They are computed from the written examples as histograms named KIND.SIDE:

  subwords   subwords per sentence, EOS included
  unknown    subwords per sentence that are not in the vocabulary
  words      words per sentence that has a tree
  depth      edges from a sentence's deepest word to its root
  pieces     subwords per word; a word has none if a subword that begins in the
             previous word covers it too, as happens without blanks
"""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import tree
from jaxsyn.data.store.rows import Rows

_ADVICE = (
  "Is config.prepare.parse.{side} of this language? See docs/parsers.md."
)

Counts = Mapping[str, collections.Counter[int]]  # KIND.SIDE -> histogram
Facts = Mapping[str, Any]  # manifest entry of a split


def count(rows: Rows, sides: Sequence[str]) -> Counts:
  """Returns the histograms of a batch of examples.

  Args:
    rows: examples.
    sides: sides that have trees.
  """
  values: dict[str, np.ndarray] = {}
  for side in schema.SIDES:
    id_S, size = rows.flat[f"{side}_id"], rows.sizes(f"{side}_id")
    sentence_S = np.repeat(np.arange(len(rows)), size)
    unknown = sentence_S[id_S == schema.UNK]
    values[f"subwords.{side}"] = size
    values[f"unknown.{side}"] = np.bincount(unknown, minlength=len(rows))
  for side in sides:
    head_W, words = rows.flat[f"{side}_head"], rows.sizes(f"{side}_head")
    is_parsed = rows.flat[f"{side}_parsed"] > 0
    sentence_W = np.repeat(np.arange(len(rows)), words)
    deepest = np.zeros(len(rows), np.int64)
    np.maximum.at(deepest, sentence_W, tree.depth(head_W, words))
    word_S, subwords = rows.flat[f"{side}_word"], rows.sizes(f"{side}_id")
    first_S = np.repeat(rows.start[f"{side}_head"][:-1], subwords)
    pieces_W = np.bincount(
      (word_S + first_S)[word_S >= 0], minlength=len(head_W)
    )
    values[f"words.{side}"] = words[is_parsed]
    values[f"depth.{side}"] = deepest[is_parsed]
    values[f"pieces.{side}"] = pieces_W[is_parsed[sentence_W]]
  return {name: _histogram(numbers) for name, numbers in values.items()}


def _histogram(numbers: np.ndarray) -> collections.Counter[int]:
  values, times = np.unique(numbers, return_counts=True)
  return collections.Counter(dict(zip(values.tolist(), times.tolist())))


def as_json(counts: Counts) -> dict[str, list[tuple[int, int]]]:
  """Returns histograms as a JSON object of sorted pairs."""
  return {name: sorted(one.items()) for name, one in counts.items()}


def total(parts: Iterable[Mapping[str, Any]]) -> Counts:
  """Returns the sum of histograms, from `count` or `as_json`."""
  found = collections.defaultdict[str, collections.Counter[int]](
    collections.Counter
  )
  for part in parts:
    for name, histogram in part.items():
      found[name].update(dict(histogram))
  return found


def unparsed(counts: Counts, sides: Sequence[str]) -> int:
  """Returns the number of sentences without a tree, empty lines included."""
  return sum(
    counts[f"subwords.{side}"].total() - counts[f"words.{side}"].total()
    for side in sides
  )


def blank(counts: Counts, side: str) -> int:
  """Returns the number of sentences without a subword."""
  return counts[f"subwords.{side}"][1]  # EOS alone


def write(
  folder: pathlib.Path,
  title: str,
  facts: Mapping[str, Facts],
  *,
  counts: Mapping[str, Counts],
  sides: Sequence[str],
  train: str,
  left_out: Mapping[str, str],
) -> None:
  """Writes report.txt, and report.png with histograms of the training split.

  Args:
    folder: folder of the two files.
    title: one-line description of the dataset.
    facts: split -> its manifest entry.
    counts: split -> its histograms, from `total`.
    sides: sides that have trees.
    train: name of the training split.
    left_out: optional test split -> reason why it was left out.
  """
  paragraphs = [title]
  for split, entry in facts.items():
    lines = _facts(split, entry)
    for side in schema.SIDES:
      lines += _statistics(counts[split], side, has_trees=side in sides)
    for side, warnings in entry.get("doubts", {}).items():
      lines += [f"  warning    {side}: {warning}" for warning in warnings]
      lines.append(f"             {_ADVICE.format(side=side)}")
    paragraphs.append("\n".join(lines))
  paragraphs += [f"left out: {name} ({why})" for name, why in left_out.items()]
  text = "\n\n".join(paragraphs) + "\n"
  (folder / "report.txt").write_text(text, encoding="utf-8")
  _plot(folder / "report.png", title, facts[train], counts[train])


def _facts(split: str, facts: Facts) -> list[str]:
  """Returns the lines of a split's report about its manifest entry."""
  dropped = {reason: n for reason, n in facts["dropped"].items() if n}
  lines = [
    f"{split}: {facts['examples']:,} of {facts['lines']:,} pairs",
    f"  dropped    {_listed(dropped) or 'none'}",
    f"  unparsed   {facts['unparsed']:,}",
  ]
  if subset := facts.get("subset"):
    lines.append(
      f"  subset     {subset['pairs']:,} of {subset['of']:,} clean pairs, seed"
      f" {subset['seed']}; their lines: {subset['lines']}"
    )
  if blanks := {side: n for side, n in facts["blank"].items() if n}:
    lines.append(f"  no text    {_listed(blanks)}")
  if "linked" in facts:
    lines.append(f"  aligned    {facts['linked']:,} pairs with links")
  if "brackets" in facts:
    lines.append(f"  brackets   {_listed(facts['brackets'])}")
  for side, uses in facts.get("alternatives", {}).items():
    lines.append(
      f"  parses     besides the best of the {side}: {_listed(uses)}"
    )
  return lines


def _listed(numbers: Mapping[str, int]) -> str:
  return ", ".join(f"{name} {n:,}" for name, n in numbers.items())


def _statistics(counts: Counts, side: str, has_trees: bool) -> list[str]:
  """Returns the lines of a split's report about the text of one side."""
  subwords, pieces = counts[f"subwords.{side}"], counts[f"pieces.{side}"]
  unknown = _sum(counts[f"unknown.{side}"])
  # Without EOS.
  share = 100 * unknown / max(1, _sum(subwords) - subwords.total())
  lines = [
    f"  {side}     subwords a sentence {_summary(subwords)},"
    f" {unknown:,} unknown ({share:.2f} %)"
  ]
  if has_trees:
    lines += [
      f"             words a sentence {_summary(counts[f'words.{side}'])}",
      f"             subwords a word {_summary(pieces)},"
      f" {pieces[0]:,} words without any",
      f"             tree depth {_summary(counts[f'depth.{side}'])}",
    ]
  return lines


def _sum(histogram: Mapping[int, int]) -> int:
  return sum(n * times for n, times in histogram.items())


def _summary(histogram: Mapping[int, int]) -> str:
  """Returns mean, median, 99th percentile and maximum of a histogram."""
  if not histogram:
    return "none"
  numbers, times = map(np.array, zip(*sorted(histogram.items())))
  up_to = np.cumsum(times)
  median, high = (
    numbers[np.searchsorted(up_to, share * up_to[-1])] for share in (0.5, 0.99)
  )
  mean = (numbers * times).sum() / up_to[-1]
  return f"mean {mean:.2f}, median {median}, 99 % {high}, most {numbers[-1]}"


# kind, heading and label of each plot
_PLOTS = (
  ("subwords", "Sentence length", "subwords, EOS included"),
  ("pieces", "Subwords a word", "subwords"),
  ("depth", "Tree depth", "edges from the root down"),
)


def _plot(path: pathlib.Path, title: str, facts: Facts, counts: Counts) -> None:
  # matplotlib's object interface uses no global state and no display.
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(11, 7))
  FigureCanvasAgg(figure)
  # With given margins, matplotlib need not draw twice to find them, which took
  # most of the time of preparing a small dataset.
  margins = dict(left=0.06, right=0.98, bottom=0.08, top=0.86)
  axes = figure.subplots(
    2, 2, gridspec_kw=dict(margins, hspace=0.36, wspace=0.34)
  )
  figure.suptitle(
    f"{title}\n{facts['examples']:,} training pairs of {facts['lines']:,} lines"
  )
  for axis, (kind, heading, label) in zip(axes.flat, _PLOTS):
    axis.set(title=heading, xlabel=label, ylabel="share (%)")
    sides = {side: counts[f"{kind}.{side}"] for side in schema.SIDES}
    _histograms(axis, {side: h for side, h in sides.items() if h})
  _drops(axes[1, 1], facts)
  for axis in axes.flat:
    axis.spines[["top", "right"]].set_visible(False)
  # Otherwise matplotlib writes its version into the file.
  figure.savefig(path, dpi=100, metadata={"Software": None})


def _histograms(axis, histograms: Mapping[str, Mapping[int, int]]) -> None:
  """Plots a histogram for each side, without bins that are almost empty."""
  shown = set()
  for side, histogram in histograms.items():
    times = sum(histogram.values())
    low, high = min(histogram), max(histogram)
    share = [100 * histogram.get(n, 0) / times for n in range(low, high + 1)]
    edges = np.arange(low, high + 2) - 0.5
    color = "C0" if side == "source" else "C1"
    label = f"{side} (mean {_sum(histogram) / times:.1f}, most {high})"
    axis.stairs(share, edges, fill=True, color=color, alpha=0.3, label=label)
    axis.stairs(share, edges, color=color)
    shown |= {low + i for i, s in enumerate(share) if s > 0.02}
  if histograms:
    axis.set_xlim(min(shown) - 1, max(shown) + 1)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(frameon=False)
  else:
    axis.text(0.5, 0.5, "no trees", ha="center", transform=axis.transAxes)


def _drops(axis, facts: Facts) -> None:
  rows = {**facts["dropped"], "kept, not parsed": facts["unparsed"]}
  axis.set(title="Dropped pairs, by the first reason", xlabel="pairs")
  colors = ["C3"] * len(facts["dropped"]) + ["0.6"]
  axis.barh(list(rows), list(rows.values()), color=colors)
  for i, n in enumerate(rows.values()):
    axis.annotate(f" {n:,}", (n, i), va="center")
  axis.invert_yaxis()
  axis.set_xlim(0, 1.15 * max(*rows.values(), 1))
  axis.xaxis.get_major_locator().set_params(integer=True)
