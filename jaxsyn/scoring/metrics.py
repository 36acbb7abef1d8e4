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

  def __init__(self, lowercase: bool = False):
    self._lowercase = lowercase

  def corpus_score(
    self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
  ) -> Percentage:
    if self._lowercase:
      hypotheses = [line.lower() for line in hypotheses]
      references = [[line.lower() for line in r] for r in references]
    found = sum(map(operator.contains, zip(*references), hypotheses))
    return Percentage(100 * found / max(1, len(hypotheses)))

  def get_signature(self) -> str:
    return f"case:{'lc' if self._lowercase else 'mixed'}|tok:none"


# Name -> how it is written, and its scorer from (tokenizer, lowercase).
METRICS = {
  "bleu": (
    "BLEU",
    lambda tokenizer, lowercase: sacrebleu.BLEU(
      tokenize=tokenizer, lowercase=lowercase
    ),
  ),
  "chrf": ("chrF", lambda _, lowercase: sacrebleu.CHRF(lowercase=lowercase)),
  # sacreBLEU's TER ignores case unless told not to, and so does its command
  # line with and without -lc: the signature says case:lc both times.
  "ter": ("TER", lambda *_: sacrebleu.TER()),
  "exact": ("exact", lambda _, lowercase: ExactMatch(lowercase)),
}


def score(
  hypotheses: Sequence[str],
  references: Sequence[Sequence[str]],
  metric: str = "bleu",
  tokenizer: str = "13a",
  lowercase: bool = False,
) -> Score:
  """One metric of a corpus.

  Args:
    hypotheses: one a sentence, detokenised.
    references: one or more lists of as many sentences.
    metric: a name of METRICS.
    tokenizer: sacreBLEU's, of BLEU alone; "13a" splits European languages.
    lowercase: ignore case, as sacreBLEU's command does with -lc (BLEU) and
      --chrf-lowercase; TER always does.

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
  name, make = METRICS[metric]
  scorer = make(tokenizer, lowercase)
  result = scorer.corpus_score(list(hypotheses), [list(r) for r in references])
  return Score(name, result.score, str(scorer.get_signature()))
