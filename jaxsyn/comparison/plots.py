"""Figures of a report: differences, learning curves, differences by bucket.

Each figure is small and stands alone. It shows one system with its controls and
the baseline: many lines in one figure could not be told apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxsyn.comparison.inference import LEVEL
from jaxsyn.comparison.results import (
  ComparedSystem,
  Comparison,
  SeedRun,
  TestSet,
  find,
)
from jaxsyn.scoring.metrics import heading
from jaxsyn.scoring.selection import name_of

WIDTH, HEIGHT = 4.4, 2.9  # inches
GRAY, BLUE = "#8a8a8a", "#2b5d8c"
CONTROLS = (
  {"color": "#c06a1f", "linestyle": "--"},
  {"color": "#5d8a35", "linestyle": ":"},
)
FONT_SIZE = 8
# Names with dollar signs are not formulas.
_PLAIN_TEXT = matplotlib.rc_context({"text.parse_math": False})


@_PLAIN_TEXT
def differences(
  results: Comparison, split: TestSet, metric: str
) -> Figure | None:
  """Plots each system's score differences from the systems it is compared with.

  A point is the mean over seeds, small strokes are the seeds, and a bar is the
  95 % interval over seeds and sentences (one seed: over sentences). Differences
  with p < 0.05, Holm-adjusted in the family, are blue.

  Returns:
    The figure; None without differences.
  """
  rows = []
  for system, _ in results.ordered():
    family = [other for name, other in results.family if name == system.name]
    others = (results.baseline, *system.controls, *family)
    for other in dict.fromkeys(others):
      if row := find(split.over_seeds, system.name, metric, baseline=other):
        rows.append(row)
  if not rows:
    return None
  figure, axes = _panel(
    f"{split.name}, {heading(metric)}",
    f"difference in {heading(metric)}",
    size=(WIDTH + 0.6, 1.0 + 0.26 * len(rows)),
    grid="x",
  )
  for y, row in enumerate(rows):
    p = row.decisive_p  # None for one seed
    color = BLUE if p is not None and p < LEVEL else GRAY
    span = split.with_interval(row)
    if span.low is not None and span.high is not None:
      ends = [span.low, span.high]
      axes.plot(ends, [y, y], color=color, lw=2, solid_capstyle="butt")
    if (count := len(row.by_seed)) > 1:
      axes.plot(row.by_seed, [y] * count, "|", color=color, ms=7, mew=0.8)
    axes.plot([row.value], [y], "o", color=color, ms=5)
  axes.axvline(0, color="0.3", lw=0.8)
  is_main = [row.baseline == results.baseline for row in rows]
  names = [r.system if m else f"− {r.baseline}" for r, m in zip(rows, is_main)]
  axes.set_yticks(range(len(rows)), names, size=FONT_SIZE)
  for label, main in zip(axes.get_yticklabels(), is_main):
    label.set_color("black" if main else "0.45")
  axes.set_ylim(len(rows) - 0.5, -0.5)
  return figure


@_PLAIN_TEXT
def curves(
  results: Comparison, system: ComparedSystem, metric: str
) -> Figure | None:
  """Plots a validation score by update: thin lines for seeds, thick for means.

  Args:
    results: Results of the comparison.
    system: System, drawn with its controls and the baseline.
    metric: Name in `jaxsyn.scoring.selection.SELECTIONS`.

  Returns:
    The figure; None if no run has this score.
  """
  title = _title(results, system, with_baseline=True)
  figure, axes = _panel(title, "updates", f"validation {name_of(metric)}")
  values: list[float] = []
  for run in results.runs:
    values += _curve(run, metric).values()
  for name, style in _lines(results, system).items():
    seeds = [_curve(run, metric) for run in results.runs if run.system == name]
    seeds = [curve for curve in seeds if curve]
    for curve in seeds:
      axes.plot(*zip(*curve.items()), **style, lw=0.6, alpha=0.45)
    # The mean would jump at the end of a run: only steps that all runs have.
    steps = sorted(set.intersection(*map(set, seeds))) if seeds else []
    means = [statistics.fmean(curve[step] for curve in seeds) for step in steps]
    if steps:
      axes.plot(steps, means, **style, lw=1.6, marker="o", ms=3, label=name)
  return figure if _finish(axes, values) else None


@_PLAIN_TEXT
def by_fact(
  results: Comparison, split: TestSet, *, by: str, system: ComparedSystem
) -> Figure | None:
  """Plots a system's score gain over the baseline, by bucket of sentences.

  Returns:
    The figure; None if no bucket has enough sentences.
  """
  metric = results.metrics[0]
  figure, axes = _panel(
    _title(results, system),
    f"{by}; sentences",
    f"{heading(metric)} over {results.baseline}",
    grid="y",
  )
  buckets = [b for b in split.buckets if b.by == by and b.count]
  lines = _lines(results, system)
  lines.pop(results.baseline)
  for index, (name, style) in enumerate(lines.items()):
    shift = 0.14 * (index - (len(lines) - 1) / 2)
    xs, ys = [], []
    for x, bucket in enumerate(buckets):
      d = find(bucket.differences, name, metric, baseline=results.baseline)
      if d is None:
        continue
      xs.append(x + shift)
      ys.append(d.value)
      if d.low is not None:
        ends = [d.low, d.high]
        axes.plot([xs[-1]] * 2, ends, color=style["color"], lw=1.2, alpha=0.8)
    if xs:
      axes.plot(xs, ys, **style, lw=1.2, marker="o", ms=4, label=name)
  values = [0.0]
  for bucket in buckets:
    for d in bucket.differences:
      if (d.metric, d.baseline) == (metric, results.baseline):
        values += [v for v in (d.value, d.low, d.high) if v is not None]
  axes.axhline(0, color="0.3", lw=0.8)
  labels = [f"{b.label}\n{b.count}" for b in buckets]
  axes.set_xticks(range(len(buckets)), labels, size=7)
  return figure if _finish(axes, values, legend=len(lines) > 1) else None


def _title(
  results: Comparison, system: ComparedSystem, *, with_baseline: bool = False
) -> str:
  """Returns a figure title that names a system and its control systems."""
  count = len(_lines(results, system).keys() - {system.name, results.baseline})
  title = system.name + ("", " and its control", " and its controls")[count]
  if with_baseline and system.name != results.baseline:
    title += f", {results.baseline}"
  return title


def _panel(
  title: str,
  x_label: str,
  y_label: str = "",
  *,
  size: tuple[float, float] = (WIDTH, HEIGHT),
  grid: Literal["x", "y", "both"] = "both",
) -> tuple[Figure, Axes]:
  figure = Figure(size, dpi=110, layout="constrained")
  axes = figure.subplots()
  axes.spines[["top", "right"]].set_visible(False)
  axes.tick_params(labelsize=FONT_SIZE)
  axes.set_xlabel(x_label, size=FONT_SIZE)
  axes.set_ylabel(y_label, size=FONT_SIZE)
  axes.set_title(title, size=9, loc="left")
  axes.grid(axis=grid, color="0.92", lw=0.6)
  return figure, axes


def _finish(
  axes: Axes, values: Sequence[float], *, legend: bool = True
) -> bool:
  """Sets axis limits and a legend; returns whether the plot has any line.

  The limits include the values of all systems, so that all figures have one scale.
  """
  if not axes.get_legend_handles_labels()[1]:
    return False
  low, high = min(values), max(values)
  margin = 0.06 * (high - low) or 1.0
  axes.set_ylim(low - margin, high + margin)
  if legend:
    axes.legend(fontsize=7, frameon=False)
  return True


def _lines(
  results: Comparison, system: ComparedSystem
) -> dict[str, dict[str, Any]]:
  """Returns the line styles of the baseline, a system, and its controls."""
  lines = {results.baseline: {"color": GRAY}, system.name: {"color": BLUE}}
  controls = (name for name in system.controls if name != results.baseline)
  return lines | dict(zip(controls, CONTROLS))


def _curve(run: SeedRun, metric: str) -> dict[int, float]:
  """Returns the validation scores of a run as a dict from step to score."""
  return {p.step: p.values[metric] for p in run.curve if metric in p.values}
