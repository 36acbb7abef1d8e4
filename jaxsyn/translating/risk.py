"""Minimum Bayes risk: of samples, the one that is most like all of them.

Kumar & Byrne 2004; with samples as candidates and as what they are held against,
Eikema & Aziz 2020 (section 6.2). Its expected utility is the mean, over all samples,
of its chrF with each as the reference.

Letters: A text; E another text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxsyn.decode.translator import Translation
from jaxsyn.scoring import pairwise


def by_risk(samples: Sequence[Translation]) -> list[Translation]:
  """Samples without repetition, by their expected utility, best first.

  Their `score` is that utility, from 0 to 100. Of equal ones the earlier sample
  is first.

  Args:
    samples: of one sentence; how often one is there counts.
  """
  if not samples:
    return []
  first = {one.text: one for one in reversed(samples)}
  texts = list(dict.fromkeys(one.text for one in samples))
  often_E = np.array([sum(one.text == t for one in samples) for t in texts])
  utility_A = pairwise.chrf(texts) @ (often_E / max(len(samples), 1))
  order = np.argsort(-utility_A, kind="stable")
  return [
    dataclasses.replace(first[texts[i]], score=float(utility_A[i]))
    for i in order
  ]
