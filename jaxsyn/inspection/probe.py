"""Which word a head looks at most, held against the tree, over many sentences.

For each word the strongest other word: the largest pooled weight among all
words but itself. EOS is no candidate either. How much weight goes to
the word itself and to EOS stands in columns of its own, so that a head
that rests there is seen. Ties share the point.

A rate counts only words that can score: a root has no parent, a leaf no child,
the first word no previous one. `random` is what choosing one of the other words
blindly would reach on the same words; `even` is what a head would reach that
looks at all subwords evenly: pooled, words of many subwords win, and those are
more often parents. A word's parent is often its neighbour, too, so compare
"parent" with "previous" and "next" before you believe in syntax.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.inspection.maps import Map

RELATIONS = ("parent", "child", "previous", "next")
SHARES = ("self", "end")


class Probe:
  """Adds up sentences.

  Attributes:
    sentences: counted so far; those of one word are not.
    words: of those sentences.
    possible: words that have such a relation at all.
    chance: expected hits of a random choice.
    even: hits of even attention.
  """

  def __init__(self) -> None:
    """Begins empty."""
    self.sentences = self.words = 0
    self.possible = dict.fromkeys(RELATIONS, 0)
    self.chance = dict.fromkeys(RELATIONS, 0.0)
    self.even = dict.fromkeys(RELATIONS, 0.0)
    self._parts: dict[int, Sequence[Sequence[str]]] = {}
    self._sums: dict[int, dict[str, np.ndarray]] = {}

  def add(
    self,
    attention: Iterable[Map],
    head_W: Sequence[int],
    size_W: Sequence[int] | np.ndarray | None = None,
  ) -> None:
    """Adds a sentence.

    Args:
      attention: of each layer, pooled: (H, words + 1, words + 1), EOS
        last.
      head_W: parent of each word; its own number if it has none.
      size_W: subwords of each word; None: one each.
    """
    words = len(head_W)
    if words < 2:
      return
    self.sentences += 1
    self.words += words
    diagonal_WW = np.eye(words, dtype=bool)
    parent_WW = diagonal_WW[list(head_W)] & ~diagonal_WW
    relations = {
      "parent": parent_WW,
      "child": parent_WW.T,
      "previous": np.eye(words, k=-1, dtype=bool),
      "next": np.eye(words, k=1, dtype=bool),
    }
    even_W = np.ones(words) if size_W is None else np.array(size_W)
    even_HWW = _strongest(np.tile(even_W, (1, words, 1)), diagonal_WW)
    for name, is_WW in relations.items():
      self.even[name] += float((even_HWW * is_WW).sum())
      self.possible[name] += int(is_WW.any(1).sum())
      self.chance[name] += is_WW.sum() / (words - 1)
    for m in attention:
      self._parts[m.layer] = m.parts
      weight_HWW = m.value_HQM[:, :words, :words]
      best_HWW = _strongest(weight_HWW, diagonal_WW)
      hits = {
        name: (best_HWW * is_WW).sum((1, 2))
        for name, is_WW in relations.items()
      }
      hits["self"] = np.trace(weight_HWW, axis1=1, axis2=2)
      hits["end"] = m.value_HQM[:, :words, words].sum(1)
      sums = self._sums.setdefault(m.layer, {})
      for name, value_H in hits.items():
        sums[name] = sums.get(name, 0.0) + value_H

  def result(self) -> dict[str, Any]:
    """Counts and rates, from 0 to 1; a rate of no words is None."""

    def rates(sums: Mapping[str, Any]) -> dict[str, float | None]:
      return {
        name: round(float(sums[name]) / count, 4) if count else None
        for name, count in self.possible.items()
      }

    heads = []
    for layer, sums in sorted(self._sums.items()):
      for head in range(len(sums["self"])):
        row = {name: value[head] for name, value in sums.items()}
        shares = {n: round(float(row[n]) / self.words, 4) for n in SHARES}
        heads.append(
          {
            "layer": layer,
            "head": head,
            "parts": list(self._parts[layer][head]),
            **rates(row),
            **shares,
          }
        )
    return {
      "sentences": self.sentences,
      "words": self.words,
      "possible": dict(self.possible),
      "random": rates(self.chance),
      "even": rates(self.even),
      "heads": heads,
    }


def _strongest(weight_HWW: np.ndarray, diagonal_WW: np.ndarray) -> np.ndarray:
  """1 at the strongest other word of each word, shared where several are."""
  among_HWW = np.where(diagonal_WW, -1.0, weight_HWW)
  best_HWW = among_HWW == among_HWW.max(2, keepdims=True)
  return best_HWW / best_HWW.sum(2, keepdims=True)


def as_text(result: Mapping[str, Any]) -> str:
  """A result as a table, in per cent."""

  def cells(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return "".join(
      f"{'-':>10}" if row[n] is None else f"{100 * row[n]:10.1f}" for n in names
    )

  lines = [
    "strongest other word is the word's ... (% of words that have one), and "
    "% of weight on itself and the end",
    f"{'encoder':<15}{''.join(f'{n:>10}' for n in (*RELATIONS, *SHARES))}",
  ]
  for row in result["heads"]:
    parts = f"   {', '.join(row['parts'])}" if row["parts"] else ""
    name = f"layer {row['layer']} head {row['head']}"
    lines.append(f"{name:<15}{cells(row, (*RELATIONS, *SHARES))}{parts}")
  lines += [
    f"{'random choice':<15}{cells(result['random'], RELATIONS)}",
    f"{'even attention':<15}{cells(result['even'], RELATIONS)}",
    f"{'words':<15}"
    + "".join(f"{result['possible'][n]:>10}" for n in RELATIONS)
    + f"{result['words']:>10}" * len(SHARES),
  ]
  return "\n".join(lines)
