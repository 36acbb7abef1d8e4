"""Minimum Bayes risk decoding (Kumar & Byrne 2004).

Samples are both candidates and references (Eikema & Aziz 2020, section 6.2). The
expected utility of a candidate is its mean chrF over all samples as references.

Letters: A candidate; E reference.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxsyn.decode.translator import Translation
from jaxsyn.scoring import pairwise


def by_risk(samples: Sequence[Translation]) -> list[Translation]:
  """Returns the distinct samples by expected utility, best first.

  Their `score` is the utility, from 0 to 100. Ties are in the order of the samples.

  Args:
    samples: Samples of one sentence; repeated ones count repeatedly.
  """
  if not samples:
    return []
  counts = collections.Counter(sample.text for sample in samples)
  first = {sample.text: sample for sample in reversed(samples)}
  texts = list(counts)
  probability_E = np.array(list(counts.values())) / len(samples)
  utility_A = pairwise.chrf(texts) @ probability_E
  order = np.argsort(-utility_A, kind="stable")
  return [
    dataclasses.replace(first[texts[i]], score=float(utility_A[i]))
    for i in order
  ]
