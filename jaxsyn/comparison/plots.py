"""The plots of a report: differences, training curves, scores by a fact.

Each is small and stands alone, so that a page lays out as many side by side as
its width has room for. A system is drawn with its controls and the baseline in
one panel: forty lines in one picture would say nothing.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxsyn.comparison.results import Comparison, Entry, SeedRun, TestSet, find
from jaxsyn.comparison.tables import SURE
from jaxsyn.scoring.metrics import heading
from jaxsyn.scoring.selection import name_of

WIDTH, HEIGHT = 4.4, 2.9  # inches
GREY, BLUE = "#8a8a8a", "#2b5d8c"
CONTROLS = (
  {"color": "#c06a1f", "linestyle": "--"},
  {"color": "#5d8a35", "linestyle": ":"},
)
SMALL = 8  # points of letters
# No name of a system is a formula, whatever dollars it has.
_AS_WRITTEN = matplotlib.rc_context({"text.parse_math": False})


@_AS_WRITTEN
def differences(
  results: Comparison, split: TestSet, metric: str
) -> Figure | None:
  """Each system less the baseline, and less its controls, with intervals.

  A point is the mean over seeds, small ones are the seeds, a bar is the 95 %
  interval over seeds and sentences; of a single seed over sentences alone.
  A difference with p < .05, Holm-adjusted in the family, is blue.

  Returns: None where there is nothing to compare.
  """
  rows = []
  for system, _ in results.ordered():
    baselines = [b for a, b in results.family if a == system.name]
    for other in dict.fromkeys(
      (results.baseline, *system.controls, *baselines)
    ):
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
    # Of one seed the interval is over sentences, and no p: that of two models
    # is none of two systems.
    span = split.with_interval(row)
    p = row.decisive_p
    colour = BLUE if p is not None and p < SURE else GREY
    if span.low is not None and span.high is not None:
      ends = [span.low, span.high]
      axes.plot(ends, [y, y], color=colour, lw=2, solid_capstyle="butt")
    if (count := len(row.by_seed)) > 1:
      axes.plot(row.by_seed, [y] * count, "|", color=colour, ms=7, mew=0.8)
    axes.plot([row.value], [y], "o", color=colour, ms=5)
  axes.axvline(0, color="0.3", lw=0.8)
  is_main = [row.baseline == results.baseline for row in rows]
  names = [r.system if w else f"− {r.baseline}" for r, w in zip(rows, is_main)]
  axes.set_yticks(range(len(rows)), names, size=SMALL)
  for label, is_whole in zip(axes.get_yticklabels(), is_main):
    if not is_whole:  # less the control
      label.set_color("0.45")
  axes.set_ylim(len(rows) - 0.5, -0.5)
  return figure


@_AS_WRITTEN
def curves(results: Comparison, system: Entry, metric: str) -> Figure | None:
  """A figure of the validation split by step: seeds thin, their mean thick.

  Args:
    results: of the comparison.
    system: drawn with its controls and the baseline.
    metric: of `jaxsyn.scoring.selection.SELECTIONS`.

  Returns: None where no run has that figure.
  """
  chosen = [run for run in results.runs if _curve(run, metric)]
  figure, axes = _panel(
    title_of(results, system, beside_baseline=True),
    "updates",
    f"validation {name_of(metric)}",
  )
  for name, style in _family(results, system).items():
    runs = [_curve(run, metric) for run in chosen if run.system == name]
    at: dict[int, list[float]] = collections.defaultdict(list)
    for curve in runs:
      axes.plot(*zip(*curve.items()), **style, lw=0.6, alpha=0.45)
      for step, value in curve.items():
        at[step].append(value)
    # A mean over the runs that lasted would jump where one of them ends.
    steps = sorted(step for step in at if len(at[step]) == len(runs))
    means = [statistics.fmean(at[step]) for step in steps]
    if steps:
      axes.plot(steps, means, **style, lw=1.6, marker="o", ms=3, label=name)
  if not _labelled(axes):
    return None
  curves = (_curve(run, metric) for run in chosen)
  axes.set_ylim(_limits([v for curve in curves for v in curve.values()]))
  axes.legend(fontsize=7, frameon=False)
  return figure


@_AS_WRITTEN
def by_fact(
  results: Comparison, split: TestSet, *, by: str, system: Entry
) -> Figure | None:
  """A system and its controls less the baseline, in each bucket of a fact.

  Returns: None where no bucket has sentences enough.
  """
  metric = results.metrics[0]
  buckets = [b for b in split.buckets if b.by == by and b.count]
  figure, axes = _panel(
    title_of(results, system),
    f"{by}; sentences",
    f"{heading(metric)} over {results.baseline}",
    grid="y",
  )
  family = _family(results, system)
  family.pop(results.baseline)
  for index, (name, style) in enumerate(family.items()):
    aside = 0.14 * (index - (len(family) - 1) / 2)
    points = {
      x + aside: difference
      for x, bucket in enumerate(buckets)
      if (
        difference := find(
          bucket.differences, name, metric, baseline=results.baseline
        )
      )
    }
    if not points:
      continue
    for x, d in points.items():
      if d.low is not None:
        ends = [d.low, d.high]
        axes.plot([x, x], ends, color=style["color"], lw=1.2, alpha=0.8)
    values = [d.value for d in points.values()]
    axes.plot([*points], values, **style, lw=1.2, marker="o", ms=4, label=name)
  if not _labelled(axes):
    return None
  axes.axhline(0, color="0.3", lw=0.8)
  values = [
    value
    for bucket in buckets
    for d in bucket.differences
    if (d.metric, d.baseline) == (metric, results.baseline)
    for value in (d.value, d.low, d.high)
    if value is not None
  ]
  axes.set_ylim(_limits([0.0, *values]))
  axes.set_xticks(
    range(len(buckets)), [f"{b.label}\n{b.count}" for b in buckets], size=7
  )
  if len(family) > 1:
    axes.legend(fontsize=7, frameon=False)
  return figure


def title_of(
  results: Comparison, system: Entry, *, beside_baseline: bool = False
) -> str:
  """A system with its controls, as the title of what they are drawn in."""
  seed_count = len(
    _family(results, system).keys() - {system.name, results.baseline}
  )
  title = (
    system.name + ("", " and its control", " and its controls")[seed_count]
  )
  if beside_baseline and system.name != results.baseline:
    title += f", {results.baseline}"
  return title


def selected_by(system: Entry) -> str:
  """What its best checkpoint is chosen by, and its curves are of."""
  return system.config["train"]["selection"]


def _panel(
  title: str,
  across: str,
  up: str = "",
  *,
  size: tuple[float, float] = (WIDTH, HEIGHT),
  grid: Literal["x", "y", "both"] = "both",
) -> tuple[Figure, Axes]:
  figure = Figure(size, dpi=110, layout="constrained")
  axes = figure.subplots()
  axes.spines[["top", "right"]].set_visible(False)
  axes.tick_params(labelsize=SMALL)
  axes.set_xlabel(across, size=SMALL)
  axes.set_ylabel(up, size=SMALL)
  axes.set_title(title, size=9, loc="left")
  axes.grid(axis=grid, color="0.92", lw=0.6)
  return figure, axes


def _labelled(axes: Axes) -> bool:
  """Whether anything was drawn that has a name."""
  return bool(axes.get_legend_handles_labels()[1])


def _limits(values: Sequence[float]) -> tuple[float, float]:
  """Ends of an axis that is the same in all panels, so that they compare."""
  low, high = min(values), max(values)
  margin = 0.06 * (high - low) or 1.0
  return low - margin, high + margin


def _family(results: Comparison, system: Entry) -> dict[str, dict[str, Any]]:
  """The baseline, the system, its controls: how the line of each looks."""
  family = {results.baseline: {"color": GREY}, system.name: {"color": BLUE}}
  controls = (name for name in system.controls if name != results.baseline)
  return family | dict(zip(controls, CONTROLS))


def _curve(run: SeedRun, metric: str) -> dict[int, float]:
  """Step -> value of a metric of the validation split."""
  return {p.step: p.values[metric] for p in run.curve if metric in p.values}
