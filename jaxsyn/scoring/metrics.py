"""The metrics: sacreBLEU's, and RIBES and exact match.

A metric is a class that says what it is and makes its scorer
(`jaxsyn.scoring.scorers`), and a line of METRICS.

Letters: I statistic of a sentence; J sum of statistics; X n-gram order.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import sacrebleu

from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, Registry
from jaxsyn.scoring.ribes import Ribes
from jaxsyn.scoring.scorers import (
  Lines,
  Measured,
  Metric,
  References,
  Scorer,
  mean_of,
  no_text,
  of_sacrebleu,
  with_resampling,
)
from jaxsyn.scoring.tokenizers import OF_BLANKS, bleu_of, cutter


class Bleu(Metric):
  """Papineni et al. 2002, ACL."""

  title = "BLEU"
  of_words = True

  def scorer(self, references: References) -> Scorer:
    by_sentence = self._of(references, effective_order=True)
    return of_sacrebleu(
      *(self, references, self._of(references)),
      by_sentence=by_sentence,
      of_sums=_bleu_scores,
      of_sentences=functools.partial(_bleu_scores, effective_order=True),
    )

  def ranking(self, references: References) -> Scorer:
    # Smoothed BLEU of translations without a single right 4-gram is a number
    # like 0.3, and goes up and down by chance while a model learns: without
    # this step 100 stayed best though the perplexity halved until step 200.
    unsmoothed = self._of(references, smooth_method="none")
    return of_sacrebleu(self, references, unsmoothed)

  def _of(self, references: References, **options: Any) -> sacrebleu.BLEU:
    return bleu_of(
      references.tokenizer,
      references.lowercase,
      references=references.lines,
      **options,
    )


class ChrF(Metric):
  """Popović 2015, WMT: n-grams of characters."""

  title = "chrF"

  def scorer(self, references: References) -> Scorer:
    metric = sacrebleu.CHRF(
      lowercase=references.lowercase, references=references.lines
    )
    return of_sacrebleu(
      *(self, references, metric),
      of_sums=_chrf_scores,
      of_sentences=_chrf_scores,
    )


class Ter(Metric):
  """Snover et al. 2006, AMTA: edits by words of the reference; can pass 100.

  sacreBLEU's ignores case unless told not to, and so does its command line with
  and without -lc: the signature says case:lc both times.
  """

  title = "TER"
  larger_is_better = False
  of_words = True

  def scorer(self, references: References) -> Scorer:
    tokenizer, lines = references.tokenizer, references.lines
    if tokenizer in OF_BLANKS:
      return of_sacrebleu(self, references, sacrebleu.TER(references=lines))
    # Its words stand between blanks: without any, a line is one word, right or
    # wrong. Its own support of Asian scripts leaves kana as they are.
    words = cutter(tokenizer)

    def cut(line: str) -> str:
      return " ".join(words(line))

    metric = sacrebleu.TER(references=[[*map(cut, each)] for each in lines])
    named = bleu_of(tokenizer).tokenizer_signature
    return of_sacrebleu(self, references, metric, cut=cut, tok=named)


class Exact(Metric):
  """The share of sentences that are a reference, to the letter."""

  title = "exact"

  def scorer(self, references: References) -> Scorer:
    cut = str.lower if references.lowercase else str
    signature = f"{references.case}|tok:none"
    return mean_of(
      self, references, operator.contains, cut=cut, signature=signature
    )


class Likelihood(Metric):
  """Log-likelihood of the references, in nats per target subword (with EOS).

  A trained run measures it by forced decoding; see `of_likelihoods`.
  """

  title = "log-likelihood"

  def scorer(self, references: References) -> Scorer:
    raise InputError(
      f"{LIKELIHOOD} is measured by a trained run, not from translations: use "
      "jaxsyn compare, or jaxsyn score --force."
    )

  def stored(self, sentences: int, signature: str) -> Scorer:
    return Scorer(
      *(self, sentences, no_text),
      of_sum=_per_subword,
      of_sentence=_per_subword,
      of_sums=_per_subwords,
      of_sentences=_per_subwords,
      signature=functools.partial(with_resampling, signature),
    )


LIKELIHOOD = "log_likelihood"


def of_likelihoods(sum_B: np.ndarray, subwords_B: np.ndarray) -> Measured:
  """Returns the statistics of the log-likelihood of a test set's references.

  Args:
    sum_B: Sum of the log probabilities of the subwords of each reference.
    subwords_B: Number of these subwords, EOS included.
  """
  scorer = Likelihood().stored(len(sum_B), "nrefs:1|unit:nats per subword")
  return Measured(scorer, np.stack([sum_B, subwords_B], axis=1))


def _per_subword(sum_I: np.ndarray) -> float:
  return float(sum_I[0] / max(1, sum_I[1]))


def _bleu_scores(
  sum_JI: np.ndarray, *, effective_order: bool = False
) -> np.ndarray:
  """sacreBLEU's BLEU of each row of sums, smoothed by "exp".

  Numbers are divided in the type of the sums, as sacreBLEU does.

  Args:
    sum_JI: Length of the translation and of the reference, right n-grams of
      each order, all n-grams of each order.
    effective_order: Whether orders without n-grams are left out.
  """
  system_J, reference_J = sum_JI[:, :2].astype(np.int64).T
  right_JX, total_JX = np.split(sum_JI[:, 2:], 2, axis=1)
  known_JX = np.logical_and.accumulate(total_JX > 0, axis=1)
  wrong_JX = known_JX & (right_JX == 0)
  hundred = sum_JI.dtype.type(100)
  smoothing_JX = 2.0 ** np.cumsum(wrong_JX, axis=1)
  divisor_JX = np.where(
    wrong_JX, smoothing_JX.astype(sum_JI.dtype) * total_JX, total_JX
  )
  precision_JX = np.divide(
    np.where(wrong_JX, hundred, hundred * right_JX),
    divisor_JX,
    out=np.zeros_like(divisor_JX),
    where=known_JX,
  ).astype(np.float64)
  log_JX = np.full(precision_JX.shape, -9999999999.0)  # sacreBLEU's log of 0
  np.log(precision_JX, out=log_JX, where=precision_JX > 0)
  orders_J = np.full(len(sum_JI), log_JX.shape[1])
  if effective_order:
    orders_J = np.maximum(1, known_JX.sum(axis=1))
    log_JX = np.where(known_JX, log_JX, 0.0)
  ratio_J = reference_J / np.maximum(1, system_J)
  penalty_J = np.where(
    system_J < reference_J,
    np.where(system_J > 0, np.exp(np.minimum(0.0, 1 - ratio_J)), 0.0),
    1.0,
  )
  score_J = penalty_J * np.exp(log_JX.sum(axis=1) / orders_J)
  return np.where(right_JX.any(axis=1), score_J, 0.0)


def _chrf_scores(sum_JI: np.ndarray) -> np.ndarray:
  """sacreBLEU's chrF2 of each row of sums.

  Args:
    sum_JI: n-grams of the translation, of the reference, and of both, for each
      order in turn.
  """
  zero_J = np.zeros(len(sum_JI), sum_JI.dtype)
  precision_J, recall_J, orders_J = zero_J.copy(), zero_J.copy(), zero_J.copy()
  for order in range(0, sum_JI.shape[1], 3):
    system_J, reference_J, both_J = sum_JI[:, order : order + 3].T
    known_J = (system_J > 0) & (reference_J > 0)
    for total_J, divisor_J in (
      (precision_J, system_J),
      (recall_J, reference_J),
    ):
      total_J += np.divide(both_J, divisor_J, out=zero_J.copy(), where=known_J)
    orders_J += known_J
  orders_J = np.maximum(1, orders_J)
  precision_J, recall_J = precision_J / orders_J, recall_J / orders_J
  factor = sum_JI.dtype.type(sacrebleu.CHRF.BETA**2)
  one, hundred = sum_JI.dtype.type(1), sum_JI.dtype.type(100)
  product_J = (one + factor) * precision_J * recall_J
  divisor_J = factor * precision_J + recall_J
  return hundred * np.divide(
    product_J, divisor_J, out=zero_J.copy(), where=divisor_J > 0
  )


def _per_subwords(sum_JI: np.ndarray) -> np.ndarray:
  return sum_JI[:, 0] / np.maximum(1, sum_JI[:, 1])


METRICS: Registry[Metric] = Registry(
  "metric",
  {"bleu": Bleu, "chrf": ChrF, "ter": Ter, "ribes": Ribes, "exact": Exact},
)


def scorer_of(
  metric: str,
  references: Sequence[Lines],
  tokenizer: str = "13a",
  *,
  lowercase: bool = False,
) -> Scorer:
  """A metric with its references.

  Args:
    metric: a name of METRICS.
    references, tokenizer, lowercase: see `References`.

  Raises:
    InputError: unknown metric or tokeniser, or one that is not installed;
      references of different length.
  """
  spec = METRICS[METRICS.check_name(metric, ConfigPath("--metrics"))]()
  return spec.scorer(References(references, tokenizer, lowercase))


def heading(title: str) -> str:
  """A metric in the head of a table, which says where less is better.

  >>> heading("TER"), heading("BLEU")
  ('TER ↓', 'BLEU')
  """
  return title if larger_is_better(title) else f"{title} ↓"


def decimals(title: str) -> int:
  """Returns the number of decimals of a metric's figures, by its title."""
  return 4 if title == Likelihood.title else 2


def larger_is_better(title: str) -> bool:
  """Whether it is, by a metric's title."""
  return all(m.larger_is_better for m in METRICS.values() if m.title == title)
