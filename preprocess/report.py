"""Writes statistics of a prepared dataset to report.txt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.store.rows import Rows
from jaxsyn.preprocess.outputs import Counts


def count(rows: Rows, sides: Sequence[str]) -> Counts:
  """Counts the unknown subwords and unparsed sentences of examples.

  Args:
    rows: Examples.
    sides: Sides that have trees.

  Returns:
    "unknown", the number of subwords that are not in the vocabulary; and
    "unparsed", the number of sentences without a tree, empty lines included; by
    side.
  """
  unknown = {
    side: int((rows.flat[f"{side}_id"] == schema.UNK).sum())
    for side in schema.SIDES
  }
  unparsed = {
    side: int((rows.flat[f"{side}_parsed"] == 0).sum()) for side in sides
  }
  return {"unknown": unknown, "unparsed": unparsed}


def text(
  title: str,
  splits: Mapping[str, Mapping[str, Any]],
  indexes: Mapping[str, np.ndarray],
  *,
  sides: Sequence[str],
  left_out: Mapping[str, str],
) -> str:
  """Formats the statistics of a dataset as the content of report.txt.

  Args:
    title: One-line description of the dataset.
    splits: Split -> its manifest entry.
    indexes: Split -> its index (`jaxsyn.data.store.tfrecord`).
    sides: Sides that have trees.
    left_out: Optional test split -> reason why it was left out.
  """
  paragraphs = [title]
  for split, entry in splits.items():
    lines = _counts(split, entry)
    for side in schema.SIDES:
      lines += _lengths(entry, indexes[split], side, has_trees=side in sides)
    for side, warnings in entry["tree_warnings"].items():
      lines += [f"  warning    {side}: {warning}" for warning in warnings]
      lines.append(
        f"             Is config.prepare.parse.{side} of this language? See"
        " docs/parsers.md."
      )
    paragraphs.append("\n".join(lines))
  paragraphs += [f"left out: {name} ({why})" for name, why in left_out.items()]
  return "\n\n".join(paragraphs) + "\n"


def _counts(split: str, entry: Mapping[str, Any]) -> list[str]:
  """Returns report lines about the used and dropped pairs of a split."""
  lines = [
    f"{split}: {entry['examples']:,} of {entry['lines']:,} pairs",
    f"  dropped    {_listed(entry['dropped']) or 'none'}",
    f"  unparsed   {entry['unparsed']:,}",
  ]
  if subset := entry.get("subset"):
    lines.append(
      f"  subset     {subset['pairs']:,} of {subset['of']:,} clean pairs, seed"
      f" {subset['seed']}"
    )
  if blanks := _listed(entry["blank"]):
    lines.append(f"  no text    {blanks}")
  for stream, uses in entry["optional"].items():
    lines.append(f"  {stream:10} {_listed(uses)}")
  return lines


def _listed(numbers: Mapping[str, int]) -> str:
  return ", ".join(f"{name} {n:,}" for name, n in numbers.items() if n)


def _lengths(
  entry: Mapping[str, Any], index: np.ndarray, side: str, has_trees: bool
) -> list[str]:
  """Returns report lines about text lengths on one side of a split."""
  subwords = index[side].astype(np.int64)
  total, unknown = int((subwords - 1).sum()), entry["unknown"][side]  # no EOS
  lines = [
    f"  {side}     subwords per sentence: {_summary(subwords)};"
    f" {unknown:,} unknown ({100 * unknown / max(1, total):.2f} %)"
  ]
  if has_trees:
    words = index[f"{side}_words"].astype(np.int64)
    per_word = total / max(1, int(words.sum()))
    lines.append(
      f"             words per sentence: {_summary(words)};"
      f" {per_word:.2f} subwords per word"
    )
  return lines


def _summary(values: np.ndarray) -> str:
  """Formats the mean, median, 99th percentile and maximum of values."""
  if not len(values):
    return "none"
  median, high = np.percentile(values, (50, 99), method="inverted_cdf")
  return f"mean {values.mean():.2f}, median {median}, 99 % {high}, max {values.max()}"
