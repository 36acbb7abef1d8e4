"""Compares the encoder's attention with the parser's trees.

For each word, the probe takes the other word with the largest pooled weight; the
word itself and EOS are no candidates, and their weights are counted separately.
Tied words share the hit. A rate counts only words that can have a hit: a root has
no parent, a leaf no child, the first word no previous word.

"random" is the rate of a random choice of another word. "even" is the rate of a
head that attends to all subwords evenly: words with many subwords then win, and
these are more often parents. The parent is often a neighbor, so compare "parent"
with "previous" and "next" before concluding that a head has learned syntax.

Letters: R entry of RELATIONS; P entry of RELATIONS and SHARES.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.inspection.maps import Map

RELATIONS = ("parent", "child", "previous", "next")
SHARES = ("self", "end")  # mean weight on the word itself, and on EOS


class Probe:
  """Counter of how often words attend most to parents, children and neighbors.

  Attributes:
    sentences: Number of sentences with at least two words.
    words: Number of their words.
  """

  def __init__(self) -> None:
    self.sentences = self.words = 0
    self._possible_R = np.zeros(len(RELATIONS), np.int64)
    self._random_R = np.zeros(len(RELATIONS))
    self._even_R = np.zeros(len(RELATIONS))
    self._sum_HP: dict[int, np.ndarray] = {}  # by layer
    self._parts: dict[int, Sequence[Sequence[str]]] = {}

  def add(
    self,
    attention: Iterable[Map],
    head_W: Sequence[int],
    size_W: Sequence[int] | np.ndarray | None = None,
  ) -> None:
    """Adds a sentence to the counts of attention to parents and neighbors.

    Args:
      attention: Pooled attention of each layer, (H, words + 1, words + 1), EOS
        last.
      head_W: Parent of each word; a root is its own parent.
      size_W: Number of subwords of each word. None: one each.
    """
    words = len(head_W)
    if words < 2:
      return
    self.sentences += 1
    self.words += words
    self_WW = np.eye(words, dtype=bool)
    parent_WW = self_WW[list(head_W)] & ~self_WW
    previous_WW, next_WW = (np.eye(words, k=k, dtype=bool) for k in (-1, 1))
    is_RWW = np.stack([parent_WW, parent_WW.T, previous_WW, next_WW])
    self._possible_R += is_RWW.any(2).sum(1)
    self._random_R += is_RWW.sum((1, 2)) / (words - 1)
    even_W = np.ones(words) if size_W is None else np.array(size_W)
    even_WW = _strongest(np.tile(even_W, (1, words, 1)))[0]
    self._even_R += (even_WW * is_RWW).sum((1, 2))
    for m in attention:
      weight_HWW = m.value_HQM[:, :words, :words]
      hit_HR = np.einsum("hqw,rqw->hr", _strongest(weight_HWW), is_RWW)
      self_H = np.trace(weight_HWW, axis1=1, axis2=2)
      end_H = m.value_HQM[:, :words, words].sum(1)
      sum_HP = np.column_stack([hit_HR, self_H, end_H])
      self._sum_HP[m.layer] = self._sum_HP.get(m.layer, 0.0) + sum_HP
      self._parts[m.layer] = m.parts

  def result(self) -> dict[str, Any]:
    """Returns how often each head attends to parents, children and neighbors.

    Rates are from 0 to 1, or None if no word can have a hit. The numbers of words
    are included.
    """
    heads: list[dict[str, Any]] = []
    for layer, sum_HP in sorted(self._sum_HP.items()):
      for head, parts in enumerate(self._parts[layer]):
        row = {"layer": layer, "head": head, "parts": list(parts)}
        row |= self._rates(sum_HP[head])
        for name, weight in zip(SHARES, sum_HP[head, len(RELATIONS) :]):
          row[name] = round(float(weight) / self.words, 4)
        heads.append(row)
    return {
      "sentences": self.sentences,
      "words": self.words,
      "possible": dict(zip(RELATIONS, self._possible_R.tolist())),
      "random": self._rates(self._random_R),
      "even": self._rates(self._even_R),
      "heads": heads,
    }

  def _rates(self, hits: np.ndarray) -> dict[str, float | None]:
    return {
      name: round(float(hit) / int(count), 4) if count else None
      for name, hit, count in zip(RELATIONS, hits, self._possible_R)
    }


def _strongest(weight_HWW: np.ndarray) -> np.ndarray:
  """Marks each word's most attended other word with 1, shared among ties."""
  self_WW = np.eye(weight_HWW.shape[-1], dtype=bool)
  other_HWW = np.where(self_WW, -1.0, weight_HWW)
  best_HWW = other_HWW == other_HWW.max(2, keepdims=True)
  return best_HWW / best_HWW.sum(2, keepdims=True)


def as_text(result: Mapping[str, Any]) -> str:
  """Formats the result of a probe as a table of percentages."""
  columns = (*RELATIONS, *SHARES)

  def line(name: str, cells: Iterable[Any]) -> str:
    return f"{name:<15}" + "".join(f"{cell:>10}" for cell in cells)

  def percentages(rates: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return ["-" if rates[n] is None else f"{100 * rates[n]:.1f}" for n in names]

  lines = [
    "How often a word's most attended other word is its parent, child, ... (% of "
    "words that have one), and weight on itself and on EOS (%):",
    line("encoder", columns),
  ]
  for row in result["heads"]:
    parts = f"   {', '.join(row['parts'])}" if row["parts"] else ""
    name = f"layer {row['layer']} head {row['head']}"
    lines.append(line(name, percentages(row, columns)) + parts)
  counts = [result["possible"][n] for n in RELATIONS]
  lines += [
    line("random choice", percentages(result["random"], RELATIONS)),
    line("uniform", percentages(result["even"], RELATIONS)),
    line("words", [*counts, result["words"], result["words"]]),
  ]
  return "\n".join(lines)
