"""The tables of a report as rows of text, whatever they are written in.

All from `jaxsyn.comparison.results.Comparison` alone. Scores are mean ± standard
deviation over seeds; the best mean of a column is marked as such; daggers stand
for the Holm-adjusted p-value over seeds and sentences.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxsyn.comparison.hierarchical import Hierarchical
from jaxsyn.comparison.inference import ErrorVariance
from jaxsyn.comparison.results import (
  Comparison,
  RunFacts,
  SeedRun,
  Summary,
  TestSet,
  find,
)
from jaxsyn.options import flat
from jaxsyn.scoring.metrics import decimals, heading, larger_is_better
from jaxsyn.scoring.tables import Rows, interval

# p-values below -> mark, the smallest first.
MARKS = ((0.01, "‡"), (0.05, "†"))
SURE = MARKS[-1][0]


@dataclasses.dataclass(frozen=True)
class ScoreCell:
  """A figure of the table of scores.

  Attributes:
    text: as printed, with its mark.
    best: whether it is the best of its column.
    published: whether a paper has it, and not we.
  """

  text: str
  best: bool = False
  published: bool = False


@dataclasses.dataclass(frozen=True)
class Line:
  """A system in the table of scores; `inset` below the one it controls."""

  system: str
  inset: bool
  cells: tuple[ScoreCell, ...]


def title(results: Comparison) -> str:
  if results.ablation:
    return f"{results.ablation.question} After {results.ablation.source}"
  data = results.systems[0].data
  return f"{len(results.systems)} systems on {data.name}"


def head(results: Comparison) -> list[str]:
  """Names of the columns of `lines`, that of the systems first."""
  published = [f"published BLEU, {task}" for task in _tasks(results)]
  return ["system", "seeds", *_columns(results), *published]


def lines(results: Comparison) -> list[Line]:
  """The table of scores, systems in the order asked for."""
  columns = [
    (split, metric, _best(split, metric))
    for split in results.splits
    for metric in results.metrics
  ]
  rows = []
  for system, inset in results.ordered():
    summaries = [s for s in results.splits[0].scores if s.system == system.name]
    score_cells = [
      ScoreCell(str(max((len(s.values) for s in summaries), default=0)))
    ]
    for split, metric, best in columns:
      key = system.name, metric
      score = find(split.scores, *key)
      difference = find(split.over_seeds, *key, baseline=results.baseline)
      is_best = score is not None and points(score.mean, metric) == best
      score_cells.append(ScoreCell(mean(score) + mark(difference), is_best))
    for task in _tasks(results):
      value = system.published.get(task)
      text = "" if value is None else f"{value:.1f}"
      score_cells.append(ScoreCell(text, published=True))
    rows.append(Line(system.name, inset, tuple(score_cells)))
  return rows


def mean(summary: Summary | None) -> str:
  if summary is None:
    return ""
  metric = summary.metric
  spread = "" if summary.sd is None else f" ± {points(summary.sd, metric)}"
  return f"{points(summary.mean, metric)}{spread}"


def points(value: float | None, metric: str, sign: str = "") -> str:
  """Returns a figure of a metric with its decimals; "" for None."""
  return "" if value is None else f"{value:{sign}.{decimals(metric)}f}"


def mark(difference: Hierarchical | None) -> str:
  """Returns the mark of the Holm-adjusted p-value; "" outside the family."""
  if difference is None or difference.adjusted_p is None:
    return ""
  p = difference.adjusted_p
  return next((sign for limit, sign in MARKS if p < limit), "")


def p_value(p: float | None) -> str:
  if p is None:
    return ""
  return f"{p:.4f}" if p >= 1e-4 else "<0.0001"


def notes(results: Comparison, *, bold: bool = True) -> list[str]:
  """What stands below the table of scores.

  Args:
    bold: whether the table can show that the best of a column is the best.
  """
  texts = []
  if len(results.seeds) > 1:
    (low, hard), (high, soft) = MARKS
    texts.append(
      f"Mean ± standard deviation over {_seed_counts(results)} seeds. {soft} "
      f"p < {high}, {hard} p < {low} against {results.baseline}, over seeds and "
      f"sentences (hierarchical bootstrap, {results.samples} resamples, "
      f"corrected for few seeds), Holm-adjusted in the family of "
      f"{_family(results)}. Other figures have no mark."
    )
    tested = {(d.system, d.baseline) for d in family_tests(results)}
    missing = [pair for pair in results.family if tuple(pair) not in tested]
    if missing:
      names = ", ".join(" against ".join(pair) for pair in missing)
      texts.append(
        f"Of the family, without two common seeds and so without a test: {names}."
      )
    texts += map(_error_variance, results.primary.errors)
    if len(results.seeds) == 2:
      texts.append(
        "Two seeds are too few for a claim: p comes out too small, so that "
        f"{soft} and {hard} are no evidence."
      )
  else:
    texts.append("One seed: nothing here says what another seed would do.")
  if bold and any(cell.best for line in lines(results) for cell in line.cells):
    texts.append("Bold: the best of its column, which is no test.")
  if any("↓" in column for column in _columns(results)):
    texts.append("↓: less is better.")
  if _tasks(results):
    texts.append(
      "Published: as the paper has it, on its own data and in its own training; "
      "only the order of rows can be compared with ours."
    )
  if results.failed:
    names = ", ".join(f"{f.system} seed {f.seed}" for f in results.failed)
    texts.append(f"Did not come to their end: {names}.")
  texts += _commits(results)
  for run in results.runs:
    texts += (
      f"{run.system} seed {run.seed}: {remark}" for remark in run.facts.notes
    )
  signatures = {
    f"{metric}|{signature}"
    for split in results.splits
    for metric, signature in split.signatures.items()
  }
  texts.append("; ".join(sorted(signatures)) + ".")
  return texts


def family_tests(results: Comparison) -> list[Hierarchical]:
  """Returns the tests of the family, in the order of its pairs."""
  tests = {
    (d.system, d.baseline): d
    for d in results.primary.over_seeds
    if d.adjusted_p is not None
  }
  return [
    tests[pair[0], pair[1]]
    for pair in results.family
    if (pair[0], pair[1]) in tests
  ]


def conclusions(results: Comparison) -> list[str]:
  """Returns a sentence for each verdict that occurs in the family."""
  tests = family_tests(results)
  metric, where = results.metrics[0], results.primary.name
  texts = []
  for verdict, meaning in (
    ("better", f"better (Holm-adjusted p < {SURE})"),
    ("worse", f"worse (Holm-adjusted p < {SURE})"),
    ("equivalent", "equivalent within the margin"),
    ("undecided", "undecided: no significant difference"),
  ):
    chosen = [d for d in tests if d.verdict == verdict]
    if not chosen:
      continue
    if verdict == "equivalent":
      meaning = f"{verdicts(chosen[0])} (p < {SURE})"
    if verdict == "undecided" and chosen[0].margin is not None:
      meaning += ", and equivalence is not shown"
    pairs = "; ".join(
      f"{d.system} against {d.baseline} {points(d.value, metric, '+')} "
      f"({points(d.low, metric, '+')} to {points(d.high, metric, '+')})"
      for d in sorted(chosen, key=lambda d: -d.value)
    )
    texts.append(
      f"{metric}, {where}: {len(chosen)} of {len(tests)} "
      f"{'pair is' if len(tests) == 1 else 'pairs are'} {meaning}: {pairs}."
    )
  return texts


def verdicts(difference: Hierarchical) -> str:
  """Returns the verdict in words, with the margin of equivalence."""
  if difference.verdict != "equivalent" or difference.margin is None:
    return difference.verdict
  return f"equivalent within ±{difference.margin:g}"


def _family(results: Comparison) -> str:
  """The family in words: how many tests, under which metric, on which set."""
  test_count = len(family_tests(results))
  return (
    f"{test_count} {'test' if test_count == 1 else 'tests'} ({results.metrics[0]}, "
    f"{results.primary.name})"
  )


def _seed_counts(results: Comparison) -> str:
  """Numbers of seeds of the systems, as in "3" or "2 to 3"."""
  counts = sorted({len(s.values) for s in results.primary.scores})
  return " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))


def _error_variance(error: ErrorVariance) -> str:
  text = (
    f"{error.metric}: standard deviation of the error of a run, pooled over "
    f"{error.systems} systems: {points(error.sd, error.metric)} "
    f"({error.degrees} degrees of freedom); the largest of a single system: "
    f"{points(error.largest_sd, error.metric)} ({error.largest})."
  )
  if error.p is not None and error.p < SURE:
    text += (
      f" It is significantly larger than that of the others (p = "
      f"{p_value(error.p)}): tests with {error.largest} are too liberal, others "
      "too conservative. Use --variance separate."
    )
  return text


def _commits(results: Comparison) -> list[str]:
  """A note where runs were trained with several versions of the code."""
  counts = collections.Counter(
    f"{run.version} ({run.commit or 'no commit'})" for run in results.runs
  )
  if len(counts) == 1:
    return []
  listing = ", ".join(f"{name}: {n} runs" for name, n in counts.items())
  return [f"The runs were made by several versions of the code: {listing}."]


def differences(results: Comparison) -> Rows:
  """Every pair that was tested, over seeds and sentences, and seed by seed."""
  rows = [["split", "metric", "system", "against", "difference"]]
  rows[0] += ["95 % interval", "p", "Holm-adjusted p", "verdict"]
  if with_margin := any(
    d.margin is not None for split in results.splits for d in split.over_seeds
  ):
    rows[0] += ["p of equivalence", "90 % interval"]
  rows[0] += ["degrees of freedom", "sd from seeds"]
  rows[0] += ["sd from sentences", "each seed", "p of each seed"]
  for split in results.splits:
    for d in split.over_seeds:
      singles = split.of_each_seed(d)
      rows.append(
        [
          *(split.name, heading(d.metric), d.system, d.baseline),
          points(d.value, d.metric, "+"),
          interval(split.with_interval(d), decimals(d.metric)),
          p_value(d.p),
          _adjusted(d),
          verdicts(d),
          *(_equivalence(d) if with_margin else ()),
          "" if d.degrees is None else f"{min(d.degrees, 1000):.0f}",
          points(d.seed_sd, d.metric),
          points(d.sentence_sd, d.metric),
          ", ".join(points(value, d.metric, "+") for value in d.by_seed),
          ", ".join(f"{one.tests[0].p:.3f}" for one in singles if one.tests),
        ]
      )
  return rows


def _adjusted(difference: Hierarchical) -> str:
  if difference.p is None:
    return ""
  return p_value(difference.adjusted_p) or "not in the family"


def _equivalence(difference: Hierarchical) -> tuple[str, str]:
  low, high = (
    points(end, difference.metric, "+")
    for end in (difference.equivalence_low, difference.equivalence_high)
  )
  return p_value(difference.equivalence_p), low and f"{low} .. {high}"


def by_fact(results: Comparison, split: TestSet) -> dict[str, Rows]:
  """The first metric by length and by facts of the tree, a table each."""
  metric = results.metrics[0]
  tables: dict[str, Rows] = {}
  for by in dict.fromkeys(bucket.by for bucket in split.buckets):
    buckets = [b for b in split.buckets if b.by == by and b.count]
    rows = [[by, *(f"{b.label} ({b.count} lines)" for b in buckets)]]
    for system, _ in results.ordered():
      key = system.name, metric
      means = [mean(find(bucket.scores, *key)) for bucket in buckets]
      rows.append([system.name, *means])
    tables[by] = rows
  return tables


def every_run(results: Comparison) -> Rows:
  rows = [["system", "seed", *_columns(results)]]
  rows[0] += ["chosen by validation", "best", "at step", "steps", "ended by"]
  rows[0] += ["minutes", "tokens/s", "parameters"]
  rates = any(run.facts.wrong_parents for run in results.runs)
  rows[0] += ["wrong parents"] * rates
  for run in results.runs:
    facts = run.facts
    rows.append(
      [
        *(run.system, str(run.seed)),
        *(
          points(score.value, score.metric)
          for scores in run.scores.values()
          for score in scores
        ),
        *(facts.selection, points(facts.best_score, _metric(facts))),
        *(str(facts.best_step), str(facts.step)),
        *(facts.reason, f"{facts.minutes:.1f}", f"{facts.tokens_per_s:.0f}"),
        f"{facts.parameters:,}",
        *[_wrong_parents(run)] * rates,
      ]
    )
  return rows


def _metric(facts: RunFacts) -> str:
  """Returns the title of the metric that selected the best checkpoint."""
  return facts.selection.partition(" (")[0]


def _wrong_parents(run: SeedRun) -> str:
  """Returns the share of wrong parents in the test splits, by split and side."""
  return ", ".join(
    f"{split} {side} {100 * rate:.2f} %"
    for split, rates in run.facts.wrong_parents.items()
    for side, rate in rates.items()
    if split in run.scores
  )


def setting(results: Comparison) -> list[str]:
  """Data, machine and versions, each once."""
  parts = []
  if results.config_file:
    overrides = ", ".join(results.overrides)
    parts.append(
      f"Config: {results.config_file}{f' with {overrides}' if overrides else ''}; "
      "whole in report.json."
    )
  if results.ablation:
    for name, bleu in results.ablation.others.items():
      figures = ", ".join(
        f"{split} {value:.2f}" for split, value in bleu.items()
      )
      parts.append(f"Published, not trained here: {name}: BLEU {figures}.")
  decode = results.system(results.baseline).config["decode"]
  parts.append(
    f"Translated with {_checkpoint(results)}, {_search(decode)}, length "
    f"penalty {decode['length_penalty']} {decode['alpha']}."
  )
  data = results.systems[0].data
  if data.left_out:
    parts.append(
      f"Test sets left out, since their files were not there:"
      f" {', '.join(data.left_out)}."
    )
  records = ", ".join(
    f"{k} {v[:12]}" for k, v in data.hashes["records"].items()
  )
  parts.append(
    f"Data: {data.name}, {data.source_language} to {data.target_language}; "
    f"pairs: {', '.join(f'{k} {n:,}' for k, n in data.pairs.items())}; "
    f"SHA-256 of records: {records}."
  )
  for run in results.runs:
    m = run.facts.machine
    packages = ", ".join(f"{k} {v}" for k, v in m.packages.items())
    parts.append(
      f"Machine: {m.devices} × {m.device}; {m.processor}, {m.cores} cores; "
      f"{m.system}; Python {m.python}; {packages}."
    )
  return list(dict.fromkeys(parts))


def configs(results: Comparison) -> Rows:
  """What each system's config has that the baseline's has not."""
  base = flat(results.system(results.baseline).config)
  rows = [["system", f"config, where it is not that of {results.baseline}"]]
  for system, _ in results.ordered():
    values = flat(system.config)
    differing = [
      f"{name}={values.get(name)!r}"
      for name in sorted({*values, *base})
      if values.get(name) != base.get(name) and name != "system"
    ]
    rows.append([system.name, ", ".join(differing)])
  return rows


def _columns(results: Comparison) -> list[str]:
  """Of every score."""
  return [
    f"{split.name} {heading(metric)}"
    for split in results.splits
    for metric in results.metrics
  ]


def _tasks(results: Comparison) -> list[str]:
  """What papers published figures of, among the systems."""
  tasks = (task for system in results.systems for task in system.published)
  return list(dict.fromkeys(tasks))


def _best(split: TestSet, metric: str) -> str:
  """The best mean as printed; "" where all are the same."""
  choose = max if larger_is_better(metric) else min
  means = [s.mean for s in split.scores if s.metric == metric]
  same = len({points(value, metric) for value in means}) == 1
  return "" if same else points(choose(means), metric)


def _search(decode: Mapping[str, Any]) -> str:
  """How it was searched."""
  name = decode.get("search", "beam")
  if name == "beam":
    return f"beam {decode['beam']}"
  size_option = "nbest" if name == "sample" else "beam"
  options = {size_option: decode[size_option], **decode.get(name, {})}
  listing = ", ".join(f"{option} {value}" for option, value in options.items())
  return f"search {name} ({listing})"


def _checkpoint(results: Comparison) -> str:
  """Which parameters translated."""
  config = results.system(results.baseline).config
  if (averaged := config["train"]["average"]) > 1:
    return f"the mean of the last {averaged} checkpoints"
  if config["decode"]["checkpoint"] == "last":
    return "the last checkpoint"
  by = dict.fromkeys(run.facts.selection for run in results.runs)
  return f"the best checkpoint by validation {' or '.join(by)}"
