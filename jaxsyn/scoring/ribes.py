"""RIBES: are the words in the right order? (Isozaki et al. 2010, EMNLP)

RIBES = NKT · P^alpha · BP^beta: NKT is Kendall's tau of the order of those words
that can be found in the reference, moved to [0, 1]; P is their share in the
hypothesis; BP = min(1, exp(1 - reference length / hypothesis length)). A corpus
has the mean of its sentences, a sentence the best of its references.

nltk finds the words and computes tau. Before 3.10.4 its tau counted only pairs in
runs of neighbours, and gave "Bob hit John yesterday" for "John hit Bob yesterday"
0 where the paper has 0.5: hence the lower bound in requirements.txt. It still
gives 0 to a reference of one word, however it is translated, since one word has no
order; the authors' program counts its order as right, and so do we.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import nltk
from nltk.translate import ribes_score

from jaxsyn.errors import InputError

ALPHA, BETA = 0.25, 0.10  # the defaults of the authors' program, as in WAT
SETTINGS = f"alpha:{ALPHA:.2f}|beta:{BETA:.2f}"
VERSION = f"nltk:{nltk.__version__}"


def sentence(
  references: Sequence[Sequence[str]],
  hypothesis: Sequence[str],
  alpha: float = ALPHA,
  beta: float = BETA,
) -> float:
  """RIBES of one sentence, from 0 to 1.

  Args:
    references: one or more, each cut into words.
    hypothesis: cut into words in the same way.
    alpha: weight of the share of words found.
    beta: weight of the penalty for short hypotheses.

  Returns:
    The best over the references; 0 for an empty hypothesis, and where fewer
    than two words are found (one, for a reference of one word).
  """
  return max(_ribes(list(r), list(hypothesis), alpha, beta) for r in references)


def _ribes(reference, hypothesis, alpha, beta) -> float:
  if not hypothesis or not reference:
    return 0.0
  longest = max(len(reference), len(hypothesis))
  if longest > ribes_score.MAX_ALIGNMENT_LEN:
    raise InputError(
      f"RIBES: a sentence of {longest} words ({' '.join(hypothesis[:5])} ...), "
      f"more than nltk takes ({ribes_score.MAX_ALIGNMENT_LEN}). It is no "
      "sentence; take the line out of all files, or leave ribes out."
    )
  place = ribes_score.word_rank_alignment(reference, hypothesis)
  if len(place) == len(reference) == 1:
    order = 1.0
  else:
    order = ribes_score.kendall_tau(place)
  found = len(place) / len(hypothesis)
  brevity = min(1.0, math.exp(1.0 - len(reference) / len(hypothesis)))
  return order * found**alpha * brevity**beta
