"""Corpus scores, sacreBLEU's where it has them, each with its signature."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import NamedTuple

import sacrebleu

from jaxsyn.errors import InputError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Score:
  """One number, and how it came to be.

  Attributes:
    metric: "BLEU", "chrF", "TER" or "exact" (match, in percent).
    value: from 0 to 100; for TER, lower is better and 100 can be passed.
    signature: sacreBLEU's, with version, tokeniser and case.
  """

  metric: str
  value: float
  signature: str


class Percentage(NamedTuple):
  score: float


class ExactMatch:
  """Share of sentences that are a reference to the letter, in percent."""

  def corpus_score(
    self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
  ) -> Percentage:
    found = sum(map(operator.contains, zip(*references), hypotheses))
    return Percentage(100 * found / max(1, len(hypotheses)))

  def get_signature(self) -> str:
    return "case:mixed|tok:none"


METRICS = {
  "bleu": ("BLEU", sacrebleu.BLEU),
  "chrf": ("chrF", sacrebleu.CHRF),
  "ter": ("TER", sacrebleu.TER),
  "exact": ("exact", ExactMatch),
}


def score(
  hypotheses: Sequence[str],
  references: Sequence[Sequence[str]],
  metric: str = "bleu",
  tokenizer: str = "13a",
) -> Score:
  """One metric of a corpus, cased.

  Args:
    hypotheses: one a sentence, detokenised.
    references: one or more lists of as many sentences.
    metric: a name of METRICS.
    tokenizer: sacreBLEU's, of BLEU alone; "13a" splits European languages.

  Raises:
    InputError: unknown metric, or lists of different length.
  """
  if metric not in METRICS:
    raise InputError(f"no metric {metric!r}. {did_you_mean(metric, METRICS)}")
  for reference in references:
    if len(reference) != len(hypotheses):
      raise InputError(
        f"{len(hypotheses)} hypotheses but {len(reference)} references: line N "
        "of one must translate line N of the other."
      )
  name, kind = METRICS[metric]
  options = {"tokenize": tokenizer} if metric == "bleu" else {}
  scorer = kind(**options)
  result = scorer.corpus_score(list(hypotheses), [list(r) for r in references])
  return Score(name, result.score, str(scorer.get_signature()))
