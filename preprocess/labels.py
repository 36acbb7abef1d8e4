"""The labels of open annotations: those that are frequent in training.

Chunks are counted by `preprocess.parse`, beside their trees; here their counts
become the labels of the manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.annotations import most_frequent as chosen
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.preprocess.corpus import Tools


class LabelCounts:
  """How often some sentences have which label."""

  def __init__(self, annotations: Collection[str]):
    """Starts with none.

    Args:
      annotations: names; those that are not open are left out.
    """
    self._counts = {
      name: Counter[str]() for name in annotations if ANNOTATIONS[name].open
    }

  def add(self, parse: Parse) -> None:
    for name, counts in self._counts.items():
      if parse.line_W:
        counts.update(map(str, ANNOTATIONS[name]().read(parse)))

  def merge(self, other: Mapping[str, Mapping[str, int]]) -> None:
    """Adds what `other` of others gave."""
    for name, counts in self._counts.items():
      counts.update(other[name])

  def as_dict(self) -> dict[str, dict[str, int]]:
    return {name: dict(counts) for name, counts in self._counts.items()}


def most_frequent(tools: Tools, side: str) -> dict[str, list[str]]:
  """The labels of each open annotation of a side, as the manifest has them.

  All different labels of the training split are in memory meanwhile.
  """
  options = tools.config.prepare.parse
  total = LabelCounts(options.annotations)
  for index in tools.chunks(tools.config.data.train):
    total.merge(tools.work.read_json(f"trees/{index}.labels.{side}"))
  return {
    name: chosen(counts, options.labels)
    for name, counts in total.as_dict().items()
  }
