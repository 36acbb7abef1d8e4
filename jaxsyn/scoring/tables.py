"""Text tables of scores, differences and buckets."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxsyn.scoring.metrics import heading
from jaxsyn.scoring.results import Results, ScoredBucket

Rows = list[list[str]]  # the header first


def as_text(results: Results) -> str:
  """Returns tables of scores, differences and buckets, with signatures.

  File names are relative to their common directory.
  """
  short = _short(results.scores)
  scores = next(iter(results.scores.values()))
  rows = [["hypothesis", *(heading(s.metric) for s in scores)]]
  for name, system_scores in results.scores.items():
    rows.append([short[name], *(f"{s.value:.2f}" for s in system_scores)])
  parts = [aligned(rows)]
  parts.append("\n".join(f"{s.metric}|{s.signature}" for s in scores))
  if results.differences:
    parts += _differences(results, short)
  metric = scores[0].metric
  for _, buckets in itertools.groupby(results.buckets, lambda b: b.by):
    parts.append(_buckets(list(buckets), results.baseline, metric, short))
  if results.buckets and len(scores) > 1:
    parts.append(f"Buckets show {metric}; --json has the other metrics too.")
  return "\n\n".join(parts)


def _short(names: Iterable[str]) -> dict[str, str]:
  """Maps each file name to its path relative to the common directory."""
  paths = {name: os.path.abspath(name) for name in names}
  folder = os.path.commonpath(map(os.path.dirname, paths.values()))
  return {name: os.path.relpath(path, folder) for name, path in paths.items()}


def _differences(results: Results, short: Mapping[str, str]) -> list[str]:
  """Returns the table of differences from the baseline, and test signatures."""
  header = [f"against {short[results.baseline]}", "", "difference"]
  header += ["95 % interval", "better", "worse", "same"]
  for test in results.differences[0].tests:
    header.append(f"p {test.name}")
    if test.name != "sign":
      header.append("(sacreBLEU)")
  rows, signatures = [header], []
  for d in results.differences:
    row = [short[d.system], heading(d.metric), f"{d.value:+.2f}", interval(d)]
    row += [str(d.better), str(d.worse), str(d.same)]
    for test in d.tests:
      row.append(f"{test.p:.4f}")
      if test.name != "sign":
        p = test.sacrebleu_p
        row.append("" if p is None else f"({p:.4f})")
      if test.signature:
        signatures.append(f"{d.metric}|{test.signature}")
    rows.append(row)
  parts = [aligned(rows)]
  if signatures:  # the same for all systems
    parts.append("\n".join(dict.fromkeys(signatures)))
  return parts


def _buckets(
  buckets: Sequence[ScoredBucket],
  baseline: str,
  metric: str,
  short: Mapping[str, str],
) -> str:
  header = [buckets[0].by, "sentences", "share", short[baseline]]
  for name in short:
    if name != baseline:
      header += [short[name], "difference", "95 % interval"]
  rows = [header]
  for bucket in buckets:
    row = [bucket.label, str(bucket.count), f"{100 * bucket.share:.1f} %"]
    if bucket.count:
      row.append(f"{bucket.scores[baseline][metric]:.2f}")
    for d in bucket.differences:
      if d.metric == metric:
        score = bucket.scores[d.system][metric]
        row += [f"{score:.2f}", f"{d.value:+.2f}", interval(d)]
    rows.append(row + [""] * (len(header) - len(row)))
  return aligned(rows)


def interval(difference: Any, decimals: int = 2) -> str:
  """Formats the confidence interval of a difference; "" without an interval."""
  if difference.low is None:
    return ""
  return f"{difference.low:+.{decimals}f} .. {difference.high:+.{decimals}f}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
  """Formats rows as a text table: first column left-aligned, others right."""
  widths = [max(map(len, column)) for column in zip(*rows)]
  lines = []
  for first, *rest in rows:
    padded = [first.ljust(widths[0])]
    padded += [cell.rjust(width) for cell, width in zip(rest, widths[1:])]
    lines.append("  ".join(padded).rstrip())
  return "\n".join(lines)
