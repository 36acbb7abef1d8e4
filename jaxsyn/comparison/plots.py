"""The plots of a report: differences, training curves, scores by a fact.

Each is small and stands alone, so that a page lays out as many side by side as
its width has room for. A system is drawn with its controls and the baseline in
one panel: forty lines in one picture would say nothing.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxsyn.comparison import tables
from jaxsyn.comparison.hierarchical import Hierarchical
from jaxsyn.comparison.results import Results, Run, Split, System
from jaxsyn.scoring.selection import TITLES

WIDTH, HEIGHT = 4.4, 2.9  # inches
GREY, BLUE = "#8a8a8a", "#2b5d8c"
CONTROLS = (("#c06a1f", "--"), ("#5d8a35", ":"))  # colour and line of each
SMALL = 8  # points of letters
# No name of a system is a formula, whatever dollars it has.
_AS_WRITTEN = matplotlib.rc_context({"text.parse_math": False})


@_AS_WRITTEN
def differences(results: Results, split: Split, metric: str) -> Figure | None:
  """Each system less the baseline, and less its controls, with intervals.

  A point is the mean over seeds, small ones are the seeds, a bar is the 95 %
  interval over seeds and sentences; of a single seed over sentences alone.
  What is different at p < .05 over both is blue.

  Returns: None where there is nothing to compare.
  """
  rows = []
  for system, _ in tables.ordered(results):
    for other in (results.baseline, *system.controls):
      found = tables.against(
        results, split.over_seeds, system.name, metric, other
      )
      if found:
        rows.append(found)
  if not rows:
    return None
  figure, axes = _axes(WIDTH + 0.6, 1.0 + 0.26 * len(rows))
  for y, row in enumerate(rows):
    low, high, p = _interval(split, row)
    sure = p is not None and p < tables.MARKS[-1][0]
    colour = BLUE if sure else GREY
    if low is not None:
      axes.plot([low, high], [y, y], color=colour, lw=2, solid_capstyle="butt")
    if len(row.by_seed) > 1:
      axes.plot(
        row.by_seed, [y] * len(row.by_seed), "|", color=colour, ms=7, mew=0.8
      )
    axes.plot([row.value], [y], "o", color=colour, ms=5)
  axes.axvline(0, color="0.3", lw=0.8)
  names = [
    row.system
    if row.baseline == results.baseline
    else f"− {row.baseline}"  # less the control
    for row in rows
  ]
  axes.set_yticks(range(len(rows)), names, size=SMALL)
  for label, row in zip(axes.get_yticklabels(), rows):
    if row.baseline != results.baseline:
      label.set_color("0.45")
  axes.set_ylim(len(rows) - 0.5, -0.5)
  axes.set_xlabel(f"difference in {metric}", size=SMALL)
  axes.grid(axis="x", color="0.9", lw=0.6)
  axes.set_title(f"{split.name}, {metric}", size=9, loc="left")
  return figure


@_AS_WRITTEN
def curves(results: Results, system: System) -> Figure | None:
  """What the best is chosen by, by step: seeds thin, their mean thick.

  Returns: None where no run was validated.
  """
  figure, axes = _axes(WIDTH, HEIGHT)
  drawn = False
  metric = selected_by(system)
  names = {s.name for s in results.systems if selected_by(s) == metric}
  chosen = [run for run in results.runs if run.system in names]
  for name, colour, line in _family(results, system):
    runs = [run for run in chosen if run.system == name]
    for run in runs:
      steps, values = _curve(run, metric)
      axes.plot(steps, values, line, color=colour, lw=0.6, alpha=0.45)
    at = collections.defaultdict(list)
    for run in runs:
      for step, value in zip(*_curve(run, metric)):
        at[step].append(value)
    # A mean over the runs that lasted would jump where one of them ends.
    steps = sorted(step for step in at if len(at[step]) == len(runs))
    means = [statistics.fmean(at[step]) for step in steps]
    if steps:
      drawn = True
      axes.plot(
        steps, means, line, color=colour, lw=1.6, marker="o", ms=3, label=name
      )
  if not drawn:
    return None
  every = [value for run in chosen for value in _curve(run, metric)[1]]
  axes.set_ylim(_limits(every))
  axes.set_xlabel("updates", size=SMALL)
  axes.set_ylabel(f"validation {TITLES[metric]}", size=SMALL)
  axes.grid(color="0.92", lw=0.6)
  axes.legend(fontsize=7, frameon=False)
  axes.set_title(system.name, size=9, loc="left")
  return figure


@_AS_WRITTEN
def by_fact(
  results: Results, split: Split, by: str, system: System
) -> Figure | None:
  """A system and its controls less the baseline, in each bucket of a fact.

  Returns: None where no bucket has sentences enough.
  """
  metric = results.metrics[0]
  buckets = [b for b in split.buckets if b.by == by and b.count]
  figure, axes = _axes(WIDTH, HEIGHT)
  drawn = False
  family = _family(results, system)[1:]  # without the baseline itself
  for number, (name, colour, line) in enumerate(family):
    aside = 0.14 * (number - (len(family) - 1) / 2)
    points = []
    for x, bucket in enumerate(buckets):
      found = tables.against(results, bucket.differences, name, metric)
      if found:
        points.append((x + aside, found))
    if not points:
      continue
    drawn = True
    for x, found in points:
      if found.low is not None:
        axes.plot(
          [x, x], [found.low, found.high], color=colour, lw=1.2, alpha=0.8
        )
    axes.plot(
      [x for x, _ in points],
      [found.value for _, found in points],
      line,
      color=colour,
      lw=1.2,
      marker="o",
      ms=4,
      label=name,
    )
  if not drawn:
    return None
  axes.axhline(0, color="0.3", lw=0.8)
  every = [
    value
    for bucket in buckets
    for d in bucket.differences
    if (d.metric, d.baseline) == (metric, results.baseline)
    for value in (d.value, d.low, d.high)
    if value is not None
  ]
  axes.set_ylim(_limits([0.0, *every]))
  axes.set_xticks(
    range(len(buckets)), [f"{b.label}\n{b.count}" for b in buckets], size=7
  )
  axes.set_xlabel(f"{by}; sentences", size=SMALL)
  axes.set_ylabel(f"{metric} over {results.baseline}", size=SMALL)
  axes.grid(axis="y", color="0.92", lw=0.6)
  if len(family) > 1:
    axes.legend(fontsize=7, frameon=False)
  axes.set_title(system.name, size=9, loc="left")
  return figure


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
  figure = Figure((width, height), dpi=110, layout="constrained")
  axes = figure.subplots()
  axes.spines[["top", "right"]].set_visible(False)
  axes.tick_params(labelsize=SMALL)
  return figure, axes


def _limits(values: Sequence[float]) -> tuple[float, float]:
  """Ends of an axis that is the same in all panels, so that they compare."""
  low, high = min(values), max(values)
  margin = 0.06 * (high - low) or 1.0
  return low - margin, high + margin


def _family(results: Results, system: System) -> list[tuple[str, str, str]]:
  """The baseline, the system, its controls: names, colours, kinds of line."""
  found = [(results.baseline, GREY, "-"), (system.name, BLUE, "-")]
  controls = [name for name in system.controls if name != results.baseline]
  found += [(name, *look) for name, look in zip(controls, CONTROLS)]
  return found


def selected_by(system: System) -> str:
  """What its best checkpoint is chosen by, and its curves are of."""
  return system.config["train"]["selection"]


def _curve(run: Run, metric: str) -> tuple[Sequence[int], Sequence[float]]:
  points = [p for p in run.curve if metric in p.values]
  return [p.step for p in points], [p.values[metric] for p in points]


def _interval(
  split: Split, row: Hierarchical
) -> tuple[float | None, float | None, float | None]:
  """Low, high and p over seeds and sentences.

  Of one seed the interval is over sentences, and no p: that of two models is
  none of two systems.
  """
  if row.low is None:
    for one in tables.of_each_seed(split, row):
      return one.low, one.high, None
  return row.low, row.high, row.p
