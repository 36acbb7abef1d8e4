"""The metrics: BLEU, chrF and TER of sacreBLEU, RIBES, exact match.

A metric is a class that scores sums of statistics and returns its scorer
(`jaxsyn.scoring.scorers`), and one line of METRICS.

Letters: I statistic of a sentence; J sum of statistics.
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
    return _scores(self.formula, sum_JI)

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
  of_sentence: ClassVar[Any] = sacrebleu.BLEU(effective_order=True)
  unsmoothed: ClassVar[Any] = sacrebleu.BLEU(smooth_method="none")

  def scorer(self, references: References) -> Scorer:
    bleu = bleu_of(
      references.tokenizer, references.lowercase, references=references.lines
    )
    return self._measured_by(bleu, references)

  def sentence_scores(self, statistic_BI: np.ndarray) -> np.ndarray:
    return _scores(self.of_sentence, statistic_BI)

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


def _scores(formula: Any, sum_JI: np.ndarray) -> np.ndarray:
  """Returns a sacreBLEU metric's score for each row of summed statistics."""
  scores = [formula._compute_score_from_stats(row).score for row in sum_JI]
  return np.array(scores, np.float64)


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
