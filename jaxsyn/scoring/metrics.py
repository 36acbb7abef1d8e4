"""The metrics: sacreBLEU's, and RIBES and exact match.

A metric is a class that says what it is and makes its scorer
(`jaxsyn.scoring.scorers`), and a line of METRICS.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import sacrebleu

from jaxsyn.errors import InputError
from jaxsyn.options import At, Table
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
      self, references, self._of(references), by_sentence=by_sentence
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
    return of_sacrebleu(self, references, metric)


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
    said = f"{references.case}|tok:none"
    return mean_of(self, references, operator.contains, cut=cut, said=said)


class Likelihood(Metric):
  """Log-likelihood of the references, in nats per target subword (with EOS).

  A trained run measures it by forced decoding; see `of_likelihoods`.
  """

  title = "log-likelihood"
  digits = 4

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


METRICS: Table[Metric] = Table(
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
  spec = METRICS[METRICS.known(metric, At("--metrics"))]()
  return spec.scorer(References(references, tokenizer, lowercase))


def heading(title: str) -> str:
  """A metric in the head of a table, which says where less is better.

  >>> heading("TER"), heading("BLEU")
  ('TER ↓', 'BLEU')
  """
  return title if larger_is_better(title) else f"{title} ↓"


def larger_is_better(title: str) -> bool:
  """Whether it is, by a metric's title."""
  return all(m.larger_is_better for m in METRICS.values() if m.title == title)
