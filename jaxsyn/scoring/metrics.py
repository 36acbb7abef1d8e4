"""Corpus scores, sacreBLEU's where it has them, each with its signature.

A score is made of numbers that sentences add to a sum: n-gram counts for BLEU,
edits for TER, the sentence's own score for RIBES. `Measured` keeps them, so that
significance tests and buckets score any set of sentences without reading the
text again.

Letters: I statistic of a sentence.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sacrebleu
from sacrebleu.metrics.base import Metric

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.scoring import ribes
from jaxsyn.scoring.tokenizers import OF_BLANKS, bleu_of, cutter
from jaxsyn.shapes import agree

Lines = Sequence[str]


@dataclasses.dataclass(frozen=True)
class Score:
  """One number, and how it came to be.

  Attributes:
    metric: "BLEU", "chrF", "TER", "RIBES" or "exact" (match), in percent.
    value: from 0 to 100; for TER, lower is better and 100 can be passed.
    signature: sacreBLEU's, with version, tokeniser and case; for the others
      one of the same form.
  """

  metric: str
  value: float
  signature: str


class SacreBleu:
  """One of sacreBLEU's metrics against fixed references."""

  def __init__(
    self,
    name: str,
    sentences: int,
    metric: Metric,
    by_sentence: Metric | None = None,
    cut: Callable[[str], str] | None = None,
    **said: str,
  ):
    """Wraps a metric that was made with its references.

    Args:
      name: as printed.
      sentences: of each reference.
      metric: of the corpus.
      by_sentence: of single sentences, where that is another.
      cut: done to each hypothesis first, where it was done to references.
      **said: what the signature says instead of sacreBLEU's own.
    """
    self.name, self.sentences = name, sentences
    self.better = -1 if name == "TER" else 1
    # sacreBLEU resamples in this type; its p-values depend on it in a tie.
    self.dtype = np.float32
    self.in_sacrebleu = True
    self._metric, self._by_sentence = metric, by_sentence or metric
    self._cut, self._said = cut or str, said

  def statistics(self, hypotheses: Lines) -> np.ndarray:
    lines = list(map(self._cut, hypotheses))
    found = self._metric._extract_corpus_statistics(lines, None)
    return np.array(found, np.float64).reshape(len(hypotheses), -1)

  def of_sum(self, sum_I: np.ndarray) -> float:
    return float(self._metric._compute_score_from_stats(sum_I).score)

  def of_sentence(self, statistic_I: np.ndarray) -> float:
    found = self._by_sentence._compute_score_from_stats(statistic_I)
    return float(found.score)

  def signature(self, **resampling: Any) -> str:
    signature = self._metric.get_signature()
    for key, value in (self._said | resampling).items():
      signature.update(key, value)
    return str(signature)


class SentenceMean:
  """The mean of sentence scores from 0 to 1, in percent."""

  better = 1
  dtype = np.float64
  in_sacrebleu = False

  def __init__(
    self,
    name: str,
    score: Callable[[Lines, str], float],
    references: Sequence[Lines],
    signature: str,
  ):
    """Takes a function of (references of a sentence, hypothesis)."""
    self.name, self.sentences = name, len(references[0])
    self._score, self._signature = score, signature
    self._count = len(references)
    self._references = list(zip(*references))

  def statistics(self, hypotheses: Lines) -> np.ndarray:
    found = map(self._score, self._references, hypotheses)
    score_B = np.fromiter(found, np.float64, len(hypotheses))
    return np.stack([score_B, np.ones_like(score_B)], axis=1)

  def of_sum(self, sum_I: np.ndarray) -> float:
    return float(100 * sum_I[0] / max(1, sum_I[1]))

  of_sentence = of_sum

  def signature(self, **resampling: Any) -> str:
    extra = "".join(f"{key}:{value}|" for key, value in resampling.items())
    return f"nrefs:{self._count}|{extra}{self._signature}"


Scorer = SacreBleu | SentenceMean


@dataclasses.dataclass(frozen=True)
class Measured:
  """A system's translations under one metric.

  Attributes:
    scorer: of the metric, with its references.
    statistic_BI: what each sentence adds to the sum that is scored.
  """

  scorer: Scorer
  statistic_BI: np.ndarray

  def __post_init__(self):
    agree(statistic_BI=self.statistic_BI)

  @property
  def score(self) -> Score:
    return Score(self.scorer.name, self.value, self.scorer.signature())

  @property
  def value(self) -> float:
    """The score of all sentences."""
    return self.scorer.of_sum(self.statistic_BI.sum(axis=0))

  @property
  def sentence_B(self) -> np.ndarray:
    """The score of each sentence by itself.

    BLEU is then sacreBLEU's sentence BLEU (its -sl): smoothed (exp), up to
    the longest n-gram that the sentence has.
    """
    return np.array([self.scorer.of_sentence(row) for row in self.statistic_BI])

  def part(self, chosen_B: np.ndarray) -> Measured:
    """The same for some of the sentences, a mask or indices."""
    return dataclasses.replace(self, statistic_BI=self.statistic_BI[chosen_B])


def _bleu(references, tokenizer, lowercase):
  def make(**options):
    return bleu_of(tokenizer, lowercase, references=references, **options)

  return SacreBleu(
    "BLEU", len(references[0]), make(), make(effective_order=True)
  )


def _chrf(references, _, lowercase):
  metric = sacrebleu.CHRF(lowercase=lowercase, references=references)
  return SacreBleu("chrF", len(references[0]), metric)


def _ter(references, tokenizer, _):
  # sacreBLEU's TER ignores case unless told not to, and so does its command
  # line with and without -lc: the signature says case:lc both times.
  sentences = len(references[0])
  if tokenizer in OF_BLANKS:
    return SacreBleu("TER", sentences, sacrebleu.TER(references=references))
  # Its words stand between blanks: without any, a line is one word, right or
  # wrong. Its own support of Asian scripts leaves kana as they are.
  words = cutter(tokenizer)

  def cut(line):
    return " ".join(words(line))

  metric = sacrebleu.TER(references=[[*map(cut, r)] for r in references])
  named = bleu_of(tokenizer).tokenizer_signature
  return SacreBleu("TER", sentences, metric, cut=cut, tok=named)


def _ribes(references, tokenizer, lowercase):
  cut = cutter(tokenizer, lowercase)
  words = [[cut(line) for line in lines] for lines in references]

  def score(meant, said):
    return ribes.sentence(meant, cut(said))

  signature = (
    f"{_case(lowercase)}|{ribes.SETTINGS}"
    f"|tok:{bleu_of(tokenizer).tokenizer_signature}|{ribes.VERSION}"
  )
  return SentenceMean("RIBES", score, words, signature)


def _exact(references, _, lowercase):
  fold = str.lower if lowercase else str
  folded = [[fold(line) for line in lines] for lines in references]
  return SentenceMean(
    "exact",
    lambda meant, said: operator.contains(meant, fold(said)),
    folded,
    f"{_case(lowercase)}|tok:none",
  )


# Name -> maker of the scorer from (references, tokenizer, lowercase).
METRICS = {
  "bleu": _bleu,
  "chrf": _chrf,
  "ter": _ter,
  "ribes": _ribes,
  "exact": _exact,
}


def scorer_of(
  metric: str,
  references: Sequence[Lines],
  tokenizer: str = "13a",
  lowercase: bool = False,
) -> Scorer:
  """A metric with its references, which are read once for all systems.

  Args:
    metric: a name of METRICS.
    references: one or more lists of as many sentences, detokenised.
    tokenizer: sacreBLEU's, of the words of BLEU, RIBES and, unless it leaves
      words between blanks, TER; `tokenizers.default` has that of a language.
      chrF counts characters.
    lowercase: ignore case, as sacreBLEU's command does with -lc (BLEU) and
      --chrf-lowercase; TER always does.

  Raises:
    InputError: unknown metric or tokeniser, or one that is not installed;
      references of different length.
  """
  if metric not in METRICS:
    raise InputError(f"no metric {metric!r}. {did_you_mean(metric, METRICS)}")
  lines = [list(reference) for reference in references]
  if len(set(map(len, lines))) != 1:
    raise InputError(
      f"references of {', '.join(str(len(r)) for r in lines)} sentences: line N "
      "of one must translate line N of the other."
    )
  return METRICS[metric](lines, tokenizer, lowercase)


def measure(scorer: Scorer, hypotheses: Lines) -> Measured:
  """What a system's sentences add to a score.

  Raises:
    InputError: not as many hypotheses as references.
  """
  if scorer.sentences != len(hypotheses):
    raise InputError(
      f"{len(hypotheses)} hypotheses but {scorer.sentences} references: line N "
      "of one must translate line N of the other."
    )
  return Measured(scorer, scorer.statistics(hypotheses))


def score(
  hypotheses: Lines,
  references: Sequence[Lines],
  metric: str = "bleu",
  tokenizer: str = "13a",
  lowercase: bool = False,
) -> Score:
  """One metric of a corpus; arguments and errors as in `scorer_of`, `measure`."""
  scorer = scorer_of(metric, references, tokenizer, lowercase)
  return measure(scorer, hypotheses).score


def _case(lowercase: bool) -> str:
  return f"case:{'lc' if lowercase else 'mixed'}"
