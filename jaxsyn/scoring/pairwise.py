"""Computes chrF for all pairs of texts, for minimum Bayes risk decoding.

chrF2 (Popović 2015) is the F-score, with beta = 2, of the mean precision and mean
recall of character n-grams up to 6, over the orders that both texts have, without
spaces. The n-grams of each text are counted once and matched by matrix operations.

Letters: A text; E another text; X n-gram.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams


def chrf(texts: Sequence[str]) -> np.ndarray:
  """Returns the matrix of sacreBLEU's chrF2 scores for all pairs of texts."""
  count, orders = len(texts), CHRF.CHAR_ORDER
  counters = [extract_all_char_ngrams(text, orders) for text in texts]
  precision_AE, recall_AE = np.zeros((2, count, count))
  effective_AE = np.zeros((count, count))
  for order in range(orders):
    grams = set().union(*(counts[order] for counts in counters))
    column = {gram: index for index, gram in enumerate(grams)}
    count_AX = np.zeros((count, len(column)), np.int32)
    present = []
    for row, counts in enumerate(counters):
      present.append([column[gram] for gram in counts[order]])
      count_AX[row, present[-1]] = list(counts[order].values())
    match_AE = np.stack(
      [
        np.minimum(count_AX[:, columns], count_AX[row, columns]).sum(1)
        for row, columns in enumerate(present)
      ]
    )
    total_A = count_AX.sum(1)
    both_AE = (total_A[:, None] > 0) & (total_A > 0)
    precision_AE += match_AE / np.maximum(total_A, 1)[:, None]
    recall_AE += match_AE / np.maximum(total_A, 1)
    effective_AE += both_AE
  precision_AE /= np.maximum(effective_AE, 1)
  recall_AE /= np.maximum(effective_AE, 1)
  factor = CHRF.BETA**2
  below_AE = factor * precision_AE + recall_AE
  above_AE = 100 * (1 + factor) * precision_AE * recall_AE
  return np.divide(
    above_AE, below_AE, out=np.zeros_like(above_AE), where=below_AE > 0
  )
