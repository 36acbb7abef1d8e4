"""Tables of a report, rendered as text, Markdown, LaTeX and HTML.

They are made from `jaxsyn.comparison.results.Comparison` alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxsyn.comparison.hierarchical import Hierarchical
from jaxsyn.comparison.results import (
  ComparedSystem,
  Comparison,
  Summary,
  TestSet,
  find,
)
from jaxsyn.config import Config
from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.options import describe, flat
from jaxsyn.scoring.metrics import decimals, heading, larger_is_better
from jaxsyn.scoring.tables import interval

# Limits of p-values and their marks, the smallest first.
MARKS = ((0.01, "‡"), (0.05, "†"))


class Cell(NamedTuple):
  """Plain text of a table cell, and its style.

  The style is "best" of its column, "published" in a paper, "control" (the name
  of a control, which is indented), or "".
  """

  text: str
  style: str = ""


class Table(NamedTuple):
  """Table of a report: headings and rows of cells.

  Attributes:
    head: Headings of the columns.
    rows: Rows of cells.
    words: Number of columns of words, which come first and are left-aligned.
  """

  head: list[str]
  rows: list[list[Cell]]
  words: int = 1


def plain(
  head: list[str], rows: Sequence[Sequence[str]], words: int = 1
) -> Table:
  """Creates a table from strings, without cell styles."""
  return Table(head, [[*map(Cell, row)] for row in rows], words)


def scores(results: Comparison) -> Table:
  """Returns the table of scores: mean ± standard deviation over seeds."""
  tasks = published_tasks(results)
  head = ["system", "seeds", *score_columns(results)]
  head += [f"published BLEU, {task}" for task in tasks]
  rows = []
  for system, is_control in results.ordered():
    name = system.name
    first = results.splits[0].scores
    counts = [len(s.values) for s in first if s.system == name]
    row = [Cell(name, "control" if is_control else "")]
    row.append(Cell(str(max(counts, default=0))))
    for split, metric in itertools.product(results.splits, results.metrics):
      score = find(split.scores, name, metric)
      difference = find(
        split.over_seeds, name, metric, baseline=results.baseline
      )
      is_best = score and points(score.mean, metric) == _best(split, metric)
      text = mean(score) + mark(difference)
      row.append(Cell(text, "best" if is_best else ""))
    for task in tasks:
      value = system.published.get(task)
      row.append(Cell("" if value is None else f"{value:.1f}", "published"))
    rows.append(row)
  return Table(head, rows)


def systems(results: Comparison) -> Table:
  """Returns the table of systems: descriptions and differing options."""
  base = results.system(results.baseline).config
  rows = []
  for system, _ in results.ordered():
    options = ", ".join(_differing_options(system.config, base))
    rows.append([system.name, description(system), options])
  differing_head = f"options that differ from {results.baseline}"
  return plain(["system", "description", differing_head], rows, words=3)


def _differing_options(
  config: Mapping[str, Any], baseline: Mapping[str, Any]
) -> list[str]:
  """Describes the options in which a config differs from the baseline's.

  A section that one config lacks, such as that of a modifier, is named, and
  its options are listed if they do not have their default values.
  """
  ours, theirs = flat(config), flat(baseline)
  defaults = {row.name: row.default for row in describe(Config)}
  texts = []
  for name in sorted({*ours, *theirs}):
    section = name.rpartition(".")[0] or name
    if name.startswith(("system", "prepare.")):
      continue
    if name not in ours:
      texts.append(f"without {section}")
    elif name not in theirs:
      texts.append(section)
      value = ours[name]
      value = tuple(value) if isinstance(value, list) else value
      if repr(value) != defaults.get(f"config.{name}"):
        texts.append(f"{name}={ours[name]!r}")
    elif ours[name] != theirs[name]:
      texts.append(f"{name}={ours[name]!r}")
  return list(dict.fromkeys(texts))


def description(system: ComparedSystem) -> str:
  """Returns a one-line description of a system, with its citation."""
  if system.control_of:
    return (
      f"Control of {system.control_of}: {system.config['data']['tree']} trees."
    )
  names = str(system.config.get("system", "")).split("+")
  functions = [SYSTEMS.get(name) for name in names]
  lines = [(f.__doc__ or "").partition("\n")[0] for f in functions if f]
  return " ".join(lines)


def differences(results: Comparison) -> Table:
  """Returns the table of differences: over seeds and sentences, and by seed."""
  rows = []
  with_margin = any(
    d.margin is not None for split in results.splits for d in split.over_seeds
  )
  for split, d in [(s, d) for s in results.splits for d in s.over_seeds]:
    row = [split.name, heading(d.metric), d.system, d.baseline]
    row.append(points(d.value, d.metric, "+"))
    row.append(interval(split.with_interval(d), decimals(d.metric)))
    adjusted = p_value(d.adjusted_p) or "not in the family"
    row += [p_value(d.p), adjusted if d.p is not None else "", verdict(d)]
    if with_margin:
      low = points(d.equivalence_low, d.metric, "+")
      high = points(d.equivalence_high, d.metric, "+")
      row += [p_value(d.equivalence_p), low and f"{low} .. {high}"]
    row.append("" if d.degrees is None else f"{min(d.degrees, 1000):.0f}")
    row += [points(d.seed_sd, d.metric), points(d.sentence_sd, d.metric)]
    row.append(", ".join(points(x, d.metric, "+") for x in d.by_seed))
    tests = [one.tests[0] for one in split.of_each_seed(d) if one.tests]
    row.append(", ".join(f"{test.p:.3f}" for test in tests))
    rows.append(row)
  head = ["split", "metric", "system", "against", "difference"]
  head += ["95 % interval", "p", "Holm-adjusted p", "verdict"]
  if with_margin:
    head += ["p of equivalence", "90 % interval"]
  head += ["degrees of freedom", "sd from seeds"]
  head += ["sd from sentences", "each seed", "p of each seed"]
  return plain(head, rows, words=4)


def by_fact(results: Comparison, split: TestSet) -> dict[str, Table]:
  """Returns tables of scores by sentence length and by tree properties."""
  tables = {}
  for by in dict.fromkeys(bucket.by for bucket in split.buckets):
    buckets = [b for b in split.buckets if b.by == by and b.count]
    head = [
      by,
      *(f"{b.label} ({b.count} line{'s' * (b.count != 1)})" for b in buckets),
    ]
    rows = []
    for system, _ in results.ordered():
      scores = [
        find(b.scores, system.name, results.metrics[0]) for b in buckets
      ]
      rows.append([system.name, *map(mean, scores)])
    tables[by] = plain(head, rows)
  return tables


def runs(results: Comparison) -> Table:
  """Returns the table of runs: scores, training time and size."""
  head = ["system", "seed", *score_columns(results)]
  head += ["selected by validation", "best", "at step", "steps", "ended by"]
  head += ["minutes", "tokens/s", "parameters"]
  with_rates = any(run.facts.wrong_parents for run in results.runs)
  if with_rates:
    head.append("wrong parents")
  rows = []
  for run in results.runs:
    facts = run.facts
    row = [run.system, str(run.seed)]
    for values in run.scores.values():
      row += [points(score.value, score.metric) for score in values]
    metric = facts.selection.partition(" (")[0]
    row += [facts.selection, points(facts.best_score, metric)]
    row += [str(facts.best_step), str(facts.step), facts.reason]
    row += [f"{facts.minutes:.1f}", f"{facts.tokens_per_s:.0f}"]
    row.append(f"{facts.parameters:,}")
    if with_rates:
      rates = []
      for split in run.scores:
        for side, rate in facts.wrong_parents.get(split, {}).items():
          rates.append(f"{split} {side} {100 * rate:.2f} %")
      row.append(", ".join(rates))
    rows.append(row)
  return plain(head, rows)


def score_columns(results: Comparison) -> list[str]:
  """Returns the column headings of the scores: one per test set and metric."""
  columns = itertools.product(results.splits, results.metrics)
  return [f"{split.name} {heading(metric)}" for split, metric in columns]


def published_tasks(results: Comparison) -> list[str]:
  """Returns the tasks and splits for which papers published system scores."""
  published = (system.published for system in results.systems)
  return list(dict.fromkeys(itertools.chain.from_iterable(published)))


def mean(summary: Summary | None) -> str:
  """Formats scores as "mean ± standard deviation"; "" without scores."""
  if summary is None:
    return ""
  text = points(summary.mean, summary.metric)
  if summary.sd is not None:
    text += f" ± {points(summary.sd, summary.metric)}"
  return text


def points(value: float | None, metric: str, sign: str = "") -> str:
  """Formats a value with the number of decimals of its metric; "" for None."""
  return "" if value is None else f"{value:{sign}.{decimals(metric)}f}"


def p_value(p: float | None) -> str:
  """Formats a p-value with four decimals; "" for None."""
  if p is None:
    return ""
  return f"{p:.4f}" if p >= 1e-4 else "<0.0001"


def mark(difference: Hierarchical | None) -> str:
  """Returns "†" or "‡" for a small adjusted p-value, otherwise ""."""
  if difference is None or difference.adjusted_p is None:
    return ""
  p = difference.adjusted_p
  return next((sign for limit, sign in MARKS if p < limit), "")


def verdict(difference: Hierarchical) -> str:
  """Describes a verdict in words, including the margin of equivalence."""
  if difference.verdict != "equivalent":
    return difference.verdict
  return f"equivalent within ±{difference.margin:g}"


def _best(split: TestSet, metric: str) -> str:
  """Returns the best mean score as printed, or "" if all print the same."""
  means = [s.mean for s in split.scores if s.metric == metric]
  if len({points(value, metric) for value in means}) == 1:
    return ""
  return points((max if larger_is_better(metric) else min)(means), metric)
