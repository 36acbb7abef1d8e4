"""Statistics of a prepared dataset, written to report.txt and report.png.

They are computed from the written examples: lengths, subwords per word, tree
depths, and the number of dropped pairs by reason.
"""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import tree
from jaxsyn.data.store.rows import Rows

_ADVICE = (
  "Is config.prepare.parse.{side} of this language? See docs/parsers.md."
)
_HISTOGRAMS = ("subwords", "words", "pieces", "depth")
_BY_SIDE = ("blank", "unknown")


class ReportCounts:
  """Histograms and counts of one split's examples for the report, by side.

  Attributes:
    subwords: histogram of subwords per sentence, EOS included.
    words: histogram of words per sentence that has a tree.
    pieces: histogram of subwords per word; a word has none if a subword that
      begins in the previous word covers it too, as happens without blanks.
    depth: histogram of edges from a sentence's deepest word to its root.
    unparsed: number of sentences without a tree, empty lines included.
    blank: number of sentences without a subword.
    unknown: number of subwords that are not in the vocabulary.
  """

  def __init__(self, sides: Sequence[str]):
    self.sides = tuple(sides)
    self.subwords = _counters(schema.SIDES)
    self.words = _counters(sides)
    self.pieces = _counters(sides)
    self.depth = _counters(sides)
    self.unparsed = 0
    self.blank = dict.fromkeys(schema.SIDES, 0)
    self.unknown = dict.fromkeys(schema.SIDES, 0)

  def as_dict(self) -> dict[str, Any]:
    """Returns the counts as a JSON object; histograms become lists of pairs."""
    counts: dict[str, Any] = {"unparsed": self.unparsed}
    for name in _HISTOGRAMS:
      counts[name] = {
        k: sorted(h.items()) for k, h in getattr(self, name).items()
      }
    return counts | {name: getattr(self, name) for name in _BY_SIDE}

  def merge(self, counts: Mapping[str, Any]) -> None:
    """Adds the counts that `as_dict` of another object returned."""
    self.unparsed += counts["unparsed"]
    for name in _HISTOGRAMS:
      for side, items in counts[name].items():
        getattr(self, name)[side].update(dict(items))
    for name in _BY_SIDE:
      for kind, count in counts[name].items():
        getattr(self, name)[kind] += count

  def add(self, example: Mapping[str, np.ndarray]) -> None:
    """Adds one example to the histograms and counts."""
    self.add_all(Rows.of([example], example))

  def add_all(self, rows: Rows) -> None:
    """Adds all examples of a batch of rows to the histograms and counts."""
    for side in schema.SIDES:
      id_, size = f"{side}_id", rows.sizes(f"{side}_id")
      _count(self.subwords[side], size)
      self.blank[side] += int((size == 1).sum())  # EOS alone
      self.unknown[side] += int((rows.flat[id_] == schema.UNK).sum())
    for side in self.sides:
      id_ = f"{side}_id"
      head, words = rows.flat[f"{side}_head"], rows.sizes(f"{side}_head")
      parsed = rows.flat[f"{side}_parsed"] > 0
      parsed_W = np.repeat(parsed, words)
      self.unparsed += int((~parsed).sum())
      _count(self.words[side], words[parsed])
      deepest = np.zeros(len(rows), np.int64)
      sentence_W = np.repeat(np.arange(len(rows)), words)
      np.maximum.at(deepest, sentence_W, tree.depth(head, words))
      _count(self.depth[side], deepest[parsed])
      word_S = rows.flat[f"{side}_word"]
      first_S = np.repeat(rows.start[f"{side}_head"][:-1], rows.sizes(id_))
      inside_S = word_S >= 0
      pieces_W = np.bincount(
        (word_S + first_S)[inside_S], minlength=len(parsed_W)
      )
      _count(self.pieces[side], pieces_W[parsed_W])


def _count(histogram: collections.Counter[int], numbers: np.ndarray) -> None:
  values, times = np.unique(numbers, return_counts=True)
  histogram.update(dict(zip(values.tolist(), times.tolist())))


def write(
  folder: pathlib.Path,
  title: str,
  facts: Mapping[str, Mapping[str, Any]],
  *,
  counts: Mapping[str, ReportCounts],
  train: str,
  left_out: Mapping[str, str],
) -> None:
  """Writes the dataset report as text and histograms: report.txt, report.png.

  Args:
    folder: folder of the two files.
    title: one-line description of the dataset.
    facts: split -> its manifest entry.
    counts: split -> its histograms and counts.
    train: name of the training split, which the histograms show.
    left_out: optional test split -> reason why it was left out.
  """
  text = text_report(title, facts, counts)
  for name, why in left_out.items():
    text += f"\nleft out: {name} ({why})\n"
  (folder / "report.txt").write_text(text, encoding="utf-8")
  _plot(folder / "report.png", title, facts[train], counts=counts[train])


def text_report(
  title: str,
  facts: Mapping[str, Mapping[str, Any]],
  counts: Mapping[str, ReportCounts],
) -> str:
  """Returns the text of the dataset report, with a paragraph for each split."""
  paragraphs = [title]
  for split, fact in facts.items():
    count = counts[split]
    dropped = {k: n for k, n in fact["dropped"].items() if n}
    rows = [
      f"{split}: {fact['examples']:,} of {fact['lines']:,} pairs",
      f"  dropped    {_listed(dropped)}",
      f"  unparsed   {fact['unparsed']:,}",
    ]
    if subset := fact.get("subset"):
      rows.append(
        f"  subset     {subset['pairs']:,} of {subset['of']:,} clean pairs, seed"
        f" {subset['seed']}; their lines: {subset['lines']}"
      )
    if blank := {k: n for k, n in fact["blank"].items() if n}:
      rows.append(f"  no text    {_listed(blank)}")
    if "linked" in fact:
      rows.append(f"  aligned    {fact['linked']:,} pairs with links")
    if "brackets" in fact:
      rows.append(f"  brackets   {_listed(fact['brackets'])}")
    for side, side_counts in fact.get("alternatives", {}).items():
      rows.append(
        f"  parses     besides the best of the {side}: {_listed(side_counts)}"
      )
    for side in schema.SIDES:
      unknown = count.unknown[side]
      rows.append(
        f"  {side}     subwords a sentence {_summary(count.subwords[side])},"
        f" {unknown:,} unknown ({_share(unknown, count.subwords[side])})"
      )
      if side in count.sides:
        rows += [
          f"             words a sentence {_summary(count.words[side])}",
          f"             subwords a word {_summary(count.pieces[side])},"
          f" {count.pieces[side][0]:,} words without any",
          f"             tree depth {_summary(count.depth[side])}",
        ]
    for side, warnings in fact.get("doubts", {}).items():
      rows += [f"  warning    {side}: {doubt}" for doubt in warnings]
      rows.append(f"             {_ADVICE.format(side=side)}")
    paragraphs.append("\n".join(rows))
  return "\n\n".join(paragraphs) + "\n"


def _listed(dropped: Mapping[str, int]) -> str:
  return ", ".join(f"{k} {n:,}" for k, n in dropped.items()) or "none"


def _share(unknown: int, subwords: Mapping[int, int]) -> str:
  """Returns the percentage of unknown subwords, EOS not counted, as text."""
  subword_count = sum(
    (length - 1) * times for length, times in subwords.items()
  )
  return f"{100 * unknown / max(1, subword_count):.2f} %"


def _summary(histogram: Mapping[int, int]) -> str:
  """Returns mean, median, 99th percentile and maximum of a histogram."""
  if not histogram:
    return "none"
  numbers, times = map(np.array, zip(*sorted(histogram.items())))
  total = np.cumsum(times)
  median, high = (
    numbers[np.searchsorted(total, share * total[-1])] for share in (0.5, 0.99)
  )
  mean = (numbers * times).sum() / total[-1]
  return f"mean {mean:.2f}, median {median}, 99 % {high}, most {numbers[-1]}"


def _plot(
  path: pathlib.Path,
  title: str,
  fact: Mapping[str, Any],
  *,
  counts: ReportCounts,
) -> None:
  # matplotlib's object interface uses no global state and no display.
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  # With given margins, matplotlib need not draw twice to find them, which took
  # most of the time of preparing a small dataset.
  figure = Figure(figsize=(11, 7))
  FigureCanvasAgg(figure)
  margins = dict(left=0.06, right=0.98, bottom=0.08, top=0.86)
  axes = figure.subplots(
    2, 2, gridspec_kw=dict(margins, hspace=0.36, wspace=0.34)
  )
  figure.suptitle(
    f"{title}\n{fact['examples']:,} training pairs of {fact['lines']:,} lines"
  )
  for axis, heading, label, histograms in (
    (axes[0, 0], "Sentence length", "subwords, EOS included", counts.subwords),
    (axes[0, 1], "Subwords a word", "subwords", counts.pieces),
    (axes[1, 0], "Tree depth", "edges from the root down", counts.depth),
  ):
    axis.set(title=heading, xlabel=label, ylabel="share (%)")
    _histograms(axis, {k: h for k, h in histograms.items() if h})
  _drops(axes[1, 1], fact)
  for axis in axes.flat:
    axis.spines[["top", "right"]].set_visible(False)
  # Otherwise matplotlib writes its version into the file.
  figure.savefig(path, dpi=100, metadata={"Software": None})


def _histograms(axis, histograms: Mapping[str, Mapping[int, int]]) -> None:
  """Plots a histogram for each side, without bins that are almost empty."""
  shown = set()
  for side, histogram in histograms.items():
    total = sum(histogram.values())
    low, high = min(histogram), max(histogram)
    share = [100 * histogram.get(n, 0) / total for n in range(low, high + 1)]
    edges = np.arange(low, high + 2) - 0.5
    color = "C0" if side == "source" else "C1"
    mean = sum(n * times for n, times in histogram.items()) / total
    label = f"{side} (mean {mean:.1f}, most {high})"
    axis.stairs(share, edges, fill=True, color=color, alpha=0.3, label=label)
    axis.stairs(share, edges, color=color)
    shown |= {low + i for i, s in enumerate(share) if s > 0.02}
  if histograms:
    axis.set_xlim(min(shown) - 1, max(shown) + 1)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(frameon=False)
  else:
    axis.text(0.5, 0.5, "no trees", ha="center", transform=axis.transAxes)


def _drops(axis, fact: Mapping[str, Any]) -> None:
  rows = {**fact["dropped"], "kept, not parsed": fact["unparsed"]}
  axis.set(title="Dropped pairs, by the first reason", xlabel="pairs")
  colors = ["C3"] * len(fact["dropped"]) + ["0.6"]
  axis.barh(list(rows), list(rows.values()), color=colors)
  for i, n in enumerate(rows.values()):
    axis.annotate(f" {n:,}", (n, i), va="center")
  axis.invert_yaxis()
  axis.set_xlim(0, 1.15 * max(*rows.values(), 1))
  axis.xaxis.get_major_locator().set_params(integer=True)


def _counters(sides: Sequence[str]) -> dict[str, collections.Counter[int]]:
  return {side: collections.Counter() for side in sides}
