"""Scores, differences and buckets as tables of text."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxsyn.scoring.metrics import heading
from jaxsyn.scoring.results import Results, ScoredBucket

Rows = list[list[str]]  # the head first


def as_text(results: Results) -> str:
  """Tables of scores, differences and buckets; the signatures below.

  Names of files go without the folder that they share.
  """
  short = _short(results.scores)
  scores = next(iter(results.scores.values()))
  names = [s.metric for s in scores]
  rows = [["hypothesis", *map(heading, names)]]
  rows += [
    [short[name], *(f"{s.value:.2f}" for s in system_scores)]
    for name, system_scores in results.scores.items()
  ]
  parts = [
    aligned(rows),
    "\n".join(f"{s.metric}|{s.signature}" for s in scores),
  ]
  if results.differences:
    parts += _differences(results, short)
  for _, buckets in itertools.groupby(results.buckets, lambda b: b.by):
    parts.append(
      _buckets(list(buckets), results.baseline, names[0], short=short)
    )
  if results.buckets and len(names) > 1:
    parts.append(f"Buckets show {names[0]}; --json has the other metrics too.")
  return "\n\n".join(parts)


def _short(names: Iterable[str]) -> dict[str, str]:
  """Names of files without the folder that all of them are in."""
  paths = {name: os.path.abspath(name) for name in names}
  folder = os.path.commonpath(map(os.path.dirname, paths.values()))
  return {name: os.path.relpath(path, folder) for name, path in paths.items()}


def _differences(results: Results, short: Mapping[str, str]) -> list[str]:
  """The table, and the signatures of its tests."""
  head = [
    f"against {short[results.baseline]}",
    "",
    "difference",
    "95 % interval",
  ]
  head += ["better", "worse", "same"]
  for test in results.differences[0].tests:
    head += [f"p {test.name}", "(sacreBLEU)"][: 1 + (test.name != "sign")]
  rows, signatures = [head], []
  for d in results.differences:
    row = [short[d.system], heading(d.metric), f"{d.value:+.2f}", interval(d)]
    row += map(str, (d.better, d.worse, d.same))
    for test in d.tests:
      row.append(f"{test.p:.4f}")
      if test.name != "sign":
        theirs = test.sacrebleu_p
        row.append("" if theirs is None else f"({theirs:.4f})")
      if test.signature:
        signatures.append(f"{d.metric}|{test.signature}")
    rows.append(row)
  footnotes = "\n".join(dict.fromkeys(signatures))  # all systems have the same
  return [aligned(rows), *([footnotes] if footnotes else [])]


def _buckets(
  buckets: Sequence[ScoredBucket],
  baseline: str,
  metric: str,
  *,
  short: Mapping[str, str],
) -> str:
  head = [buckets[0].by, "sentences", "share", short[baseline]]
  for name in short:
    if name != baseline:
      head += [short[name], "difference", "95 % interval"]
  rows = [head]
  for bucket in buckets:
    row = [bucket.label, str(bucket.count), f"{100 * bucket.share:.1f} %"]
    if bucket.count:
      row.append(f"{bucket.scores[baseline][metric]:.2f}")
      for d in bucket.differences:
        if d.metric == metric:
          score = bucket.scores[d.system][metric]
          row += [f"{score:.2f}", f"{d.value:+.2f}", interval(d)]
    rows.append(row + [""] * (len(head) - len(row)))
  return aligned(rows)


def interval(difference: Any, decimals: int = 2) -> str:
  """Of anything that has `low` and `high`; "" where they are None."""
  if difference.low is None:
    return ""
  return f"{difference.low:+.{decimals}f} .. {difference.high:+.{decimals}f}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
  """Columns two blanks apart, the first to the left, the others right."""
  widths = [max(map(len, column)) for column in zip(*rows)]
  lines = []
  for first, *rest in rows:
    padded = [first.ljust(widths[0])]
    padded += [cell.rjust(width) for cell, width in zip(rest, widths[1:])]
    lines.append("  ".join(padded).rstrip())
  return "\n".join(lines)
