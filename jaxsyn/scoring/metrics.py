"""The metrics: BLEU, chrF and TER of sacreBLEU, RIBES, exact match.

A metric is a class that scores sums of statistics and returns its scorer
(`jaxsyn.scoring.scorers`), and one line of METRICS.

Letters: I statistic of a sentence; J sum of statistics; X n-gram order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import sacrebleu

from jaxsyn.errors import InputError
from jaxsyn.options import Registry
from jaxsyn.scoring.ribes import Ribes
from jaxsyn.scoring.scorers import (
  Lines,
  Measured,
  Metric,
  References,
  Scorer,
  mean_of,
)
from jaxsyn.scoring.tokenizers import OF_BLANKS, bleu_of, cutter


class SacreBleuMetric(Metric):
  """Base class of the metrics that sacreBLEU computes.

  Attributes:
    formula: sacreBLEU's metric, which computes the score of a sum.
  """

  formula: ClassVar[Any]
  in_sacrebleu = True
  # sacreBLEU resamples in this type; its p-values depend on it in a tie.
  dtype = np.float32

  def score(self, sum_I: np.ndarray) -> float:
    return float(self.formula._compute_score_from_stats(sum_I).score)

  def scores(self, sum_JI: np.ndarray) -> np.ndarray:
    return np.array([self.score(row) for row in sum_JI], np.float64)

  def _measured_by(
    self,
    metric: Any,
    references: References,
    cut: Callable[[str], str] = str,
    **signature_parts: str,
  ) -> Scorer:
    """Returns a scorer that wraps one of sacreBLEU's metric objects.

    Args:
      metric: sacreBLEU's metric, which has read the references.
      references: The references.
      cut: Applied to each hypothesis first, as it was to the references.
      **signature_parts: Entries that replace those of sacreBLEU's signature.
    """
    signature = metric.get_signature()
    for key, value in signature_parts.items():
      signature.update(key, value)

    def statistics(hypotheses: Lines) -> np.ndarray:
      lines = list(map(cut, hypotheses))
      # No public function returns the statistics of each sentence.
      rows = metric._extract_corpus_statistics(lines, None)
      return np.array(rows, np.float64).reshape(len(hypotheses), -1)

    return Scorer(self, len(references), str(signature), statistics)


class Bleu(SacreBleuMetric):
  """Corpus BLEU (Papineni et al. 2002, ACL)."""

  title = "BLEU"
  of_words = True
  formula = sacrebleu.BLEU()
  unsmoothed: ClassVar[Any] = sacrebleu.BLEU(smooth_method="none")

  def scorer(self, references: References) -> Scorer:
    bleu = bleu_of(
      references.tokenizer, references.lowercase, references=references.lines
    )
    return self._measured_by(bleu, references)

  def scores(self, sum_JI: np.ndarray) -> np.ndarray:
    return _bleu_scores(sum_JI)

  def sentence_scores(self, statistic_BI: np.ndarray) -> np.ndarray:
    return _bleu_scores(statistic_BI, effective_order=True)

  def ranking_score(self, sum_I: np.ndarray) -> float:
    # Smoothed BLEU of translations without a single right 4-gram is a number
    # like 0.3, and goes up and down by chance while a model learns: without
    # this step 100 stayed best though the perplexity halved until step 200.
    return float(self.unsmoothed._compute_score_from_stats(sum_I).score)


class ChrF(SacreBleuMetric):
  """chrF2, the F-score of character n-grams (Popović 2015, WMT)."""

  title = "chrF"
  formula = sacrebleu.CHRF()

  def scorer(self, references: References) -> Scorer:
    chrf = sacrebleu.CHRF(
      lowercase=references.lowercase, references=references.lines
    )
    return self._measured_by(chrf, references)

  def scores(self, sum_JI: np.ndarray) -> np.ndarray:
    return _chrf_scores(sum_JI).astype(np.float64)


class Ter(SacreBleuMetric):
  """TER (Snover et al. 2006, AMTA): edits per 100 reference words.

  sacreBLEU's TER ignores case unless configured otherwise, and so does its
  command with and without `-lc`: the signature has case:lc in both cases.
  """

  title = "TER"
  larger_is_better = False
  of_words = True
  formula = sacrebleu.TER()

  def scorer(self, references: References) -> Scorer:
    tokenizer, lines = references.tokenizer, references.lines
    if tokenizer in OF_BLANKS:
      return self._measured_by(sacrebleu.TER(references=lines), references)
    # TER splits at spaces, so a line without spaces would be one word. Its own
    # support of Asian scripts does not split kana.
    words = cutter(tokenizer)

    def cut(line: str) -> str:
      return " ".join(words(line))

    ter = sacrebleu.TER(references=[list(map(cut, each)) for each in lines])
    signature = bleu_of(tokenizer).tokenizer_signature
    return self._measured_by(ter, references, cut, tok=signature)


class Exact(Metric):
  """Percentage of sentences that equal a reference exactly."""

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

  def scores(self, sum_JI: np.ndarray) -> np.ndarray:
    return sum_JI[:, 0] / np.maximum(1, sum_JI[:, 1])


LIKELIHOOD = "log_likelihood"


def of_likelihoods(sum_B: np.ndarray, subwords_B: np.ndarray) -> Measured:
  """Converts the log-likelihoods of references to metric statistics.

  Args:
    sum_B: Sum of the log probabilities of the subwords of each reference.
    subwords_B: Number of subwords in each sum, EOS included.
  """
  signature = "nrefs:1|unit:nats per subword"
  scorer = Scorer(Likelihood(), len(sum_B), signature)
  return Measured(scorer, np.stack([sum_B, subwords_B], axis=1))


def _bleu_scores(
  sum_JI: np.ndarray, *, effective_order: bool = False
) -> np.ndarray:
  """Returns sacreBLEU's BLEU scores, one per row of summed n-gram counts.

  Divides in the type of the sums, as sacreBLEU does.

  Args:
    sum_JI: Length of the translation and of the reference, matching n-grams of
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
  """Returns sacreBLEU's chrF2 scores, one per row of summed n-gram counts.

  Args:
    sum_JI: Number of n-grams of the translation, of the reference, and of both,
      for each order in turn.
  """
  counts = sum_JI.reshape(len(sum_JI), -1, 3)
  system_JX, reference_JX, both_JX = np.moveaxis(counts, 2, 0)
  known_JX = (system_JX > 0) & (reference_JX > 0)
  orders_J = np.maximum(1, known_JX.sum(axis=1)).astype(sum_JI.dtype)

  def mean_fraction(total_JX: np.ndarray) -> np.ndarray:
    zero_JX = np.zeros(total_JX.shape, sum_JI.dtype)
    fraction_JX = np.divide(both_JX, total_JX, out=zero_JX, where=known_JX)
    total_J: np.ndarray = fraction_JX.sum(axis=1)
    return total_J / orders_J

  precision_J, recall_J = mean_fraction(system_JX), mean_fraction(reference_JX)
  factor = sum_JI.dtype.type(sacrebleu.CHRF.BETA**2)
  one, hundred = sum_JI.dtype.type(1), sum_JI.dtype.type(100)
  product_J = (one + factor) * precision_J * recall_J
  divisor_J = factor * precision_J + recall_J
  zero_J = np.zeros_like(divisor_J)
  return hundred * np.divide(
    product_J, divisor_J, out=zero_J, where=divisor_J > 0
  )


METRICS: Registry[Metric] = Registry(
  "metric",
  {"bleu": Bleu, "chrf": ChrF, "ter": Ter, "ribes": Ribes, "exact": Exact},
)


def heading(title: str) -> str:
  """Returns the column heading of a metric, with "↓" if lower is better.

  >>> heading("TER"), heading("BLEU")
  ('TER ↓', 'BLEU')
  """
  return title if larger_is_better(title) else f"{title} ↓"


def decimals(title: str) -> int:
  """Returns how many decimals to print in scores of the given metric."""
  return 4 if title == Likelihood.title else 2


def larger_is_better(title: str) -> bool:
  """Returns whether larger is better for the metric with the given title."""
  return all(m.larger_is_better for m in METRICS.values() if m.title == title)
