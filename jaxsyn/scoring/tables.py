"""Scores, differences and buckets, together and as text."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Sequence

from jaxsyn.scoring.buckets import Bucket
from jaxsyn.scoring.metrics import Score
from jaxsyn.scoring.significance import Difference


@dataclasses.dataclass(frozen=True)
class Report:
  """Everything that is known of some systems' translations.

  Attributes:
    scores: system -> its scores.
    baseline: the system that others are compared with.
    differences: of each other system, under each metric.
    buckets: by length and tree of the source, where that is given.
  """

  scores: dict[str, list[Score]]
  baseline: str
  differences: tuple[Difference, ...] = ()
  buckets: tuple[Bucket, ...] = ()


def as_text(report: Report) -> str:
  """Tables of scores, differences and buckets; the signatures below.

  Names of files go without the folder that they share.
  """
  report = _shortened(report)
  scores = next(iter(report.scores.values()))
  names = [s.metric for s in scores]
  rows = [["hypothesis", *names]]
  rows += [
    [name, *(f"{s.value:.2f}" for s in found)]
    for name, found in report.scores.items()
  ]
  parts = [
    aligned(rows),
    "\n".join(f"{s.metric}|{s.signature}" for s in scores),
  ]
  if report.differences:
    parts.append(_differences(report))
  for _, group in itertools.groupby(report.buckets, lambda b: b.by):
    parts.append(_buckets(list(group), report))
  if report.buckets and len(names) > 1:
    parts.append(f"Buckets show {names[0]}; --json has the other metrics too.")
  return "\n\n".join(parts)


def _shortened(report: Report) -> Report:
  """The report with systems named without the folder that all of them are in."""
  whole = {name: os.path.abspath(name) for name in report.scores}
  folder = os.path.commonpath(map(os.path.dirname, whole.values()))
  short = {name: os.path.relpath(path, folder) for name, path in whole.items()}

  def renamed(differences):
    return tuple(
      dataclasses.replace(d, system=short[d.system], baseline=short[d.baseline])
      for d in differences
    )

  found = [
    dataclasses.replace(
      bucket,
      scores={short[n]: scores for n, scores in bucket.scores.items()},
      differences=renamed(bucket.differences),
    )
    for bucket in report.buckets
  ]
  return Report(
    {short[n]: scores for n, scores in report.scores.items()},
    short[report.baseline],
    renamed(report.differences),
    tuple(found),
  )


def _differences(report: Report) -> str:
  head = [f"against {report.baseline}", "", "difference", "95 % interval"]
  head += ["better", "worse", "same"]
  for outcome in report.differences[0].tests:
    head.append(f"p {outcome.name}")
    if outcome.name != "sign":
      head.append("(sacreBLEU)")
  rows = [head]
  for d in report.differences:
    row = [d.system, d.metric, f"{d.value:+.2f}", _interval(d)]
    row += [str(n) for n in (d.better, d.worse, d.same)]
    for outcome in d.tests:
      row.append(f"{outcome.p:.4f}")
      if outcome.name != "sign":
        theirs = outcome.sacrebleu_p
        row.append("" if theirs is None else f"({theirs:.4f})")
    rows.append(row)
  notes = [
    f"{d.metric}|{outcome.signature}"
    for d in report.differences
    if d.system == report.differences[0].system
    for outcome in d.tests
    if outcome.signature
  ]
  return "\n\n".join([aligned(rows), *(["\n".join(notes)] if notes else [])])


def _buckets(group: Sequence[Bucket], report: Report) -> str:
  metric = next(iter(report.scores.values()))[0].metric
  others = [name for name in report.scores if name != report.baseline]
  head = [group[0].by, "sentences", "share", report.baseline]
  for name in others:
    head += [name, "difference", "95 % interval"]
  rows = [head]
  for bucket in group:
    row = [bucket.label, str(bucket.count), f"{100 * bucket.share:.1f} %"]
    if bucket.count:
      row.append(f"{bucket.scores[report.baseline][metric]:.2f}")
      for d in bucket.differences:
        if d.metric == metric:
          score = bucket.scores[d.system][metric]
          row += [f"{score:.2f}", f"{d.value:+.2f}", _interval(d)]
    rows.append(row + [""] * (len(head) - len(row)))
  return aligned(rows)


def _interval(d: Difference) -> str:
  return "" if d.low is None else f"{d.low:+.2f} .. {d.high:+.2f}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
  """Columns two blanks apart, the first to the left, the others right."""
  widths = [max(map(len, column)) for column in zip(*rows)]
  lines = []
  for first, *rest in rows:
    cells = [first.ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:])]
    lines.append("  ".join(cells).rstrip())
  return "\n".join(lines)
