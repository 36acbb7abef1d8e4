"""The sentences that systems differ in most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxsyn.comparison.results import Example
from jaxsyn.scoring.metrics import Measured

COUNT = 8  # sentences of a split
PREFERRED = "chrF"  # BLEU of one sentence is mostly what its smoothing makes it


def choose(
  sources: Sequence[str],
  references: Sequence[str],
  scored: Mapping[str, Mapping[int, Sequence[Measured]]],
  translations: Mapping[str, Sequence[str]],
) -> tuple[str, tuple[Example, ...]]:
  """The metric, and the sentences whose scores under it are furthest apart.

  A score is the mean over seeds, so that a sentence is not chosen for what one
  run made of it.

  Args:
    sources, references: of a test split.
    scored: system -> seed -> its translations under each metric.
    translations: of the system's first seed, to be shown.
  """
  first = next(iter(next(iter(scored.values())).values()))
  names = [measured.scorer.name for measured in first]
  column = names.index(PREFERRED) if PREFERRED in names else 0
  means = {
    system: np.mean([m[column].sentence_B for m in runs.values()], axis=0)
    for system, runs in scored.items()
  }
  apart_B = np.ptp(list(means.values()), axis=0)
  found = tuple(
    Example(
      int(line) + 1,
      sources[line],
      references[line],
      {system: float(mean_B[line]) for system, mean_B in means.items()},
      {system: translations[system][line] for system in means},
    )
    for line in np.argsort(-apart_B, kind="stable")[:COUNT]
    if apart_B[line] > 0
  )
  return names[column], found
