"""Interface of metrics, and statistics of scored translations.

A score is a function of a sum over sentences: of n-gram counts for BLEU, of edits
for TER, of the sentence scores for RIBES. `Measured` stores the summands of each
sentence, so that significance tests and buckets score any set of sentences
without reading the text again.

Letters: I statistic of a sentence; J sum of statistics.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from jaxsyn.arrays.shapes import agree
from jaxsyn.errors import InputError
from jaxsyn.options import Choice
from jaxsyn.scoring.results import Score

Lines = Sequence[str]


@dataclasses.dataclass(frozen=True)
class References:
  """The references of a test set, and how they are tokenized.

  Attributes:
    lines: One or more lists of detokenized sentences.
    tokenizer: sacreBLEU tokenizer for BLEU, RIBES and (unless it splits at
      spaces) TER.
    lowercase: Whether to ignore case, as sacreBLEU's `-lc` (BLEU) and
      `--chrf-lowercase` do. TER always ignores it.
    sources: Source sentences, for metrics that read them.

  Raises:
    InputError: The lists differ in length.
  """

  lines: Sequence[Lines]
  tokenizer: str = "13a"
  lowercase: bool = False
  sources: Lines = ()

  def __post_init__(self) -> None:
    lengths = [len(lines) for lines in self.lines]
    if len(set(lengths)) != 1:
      raise InputError(
        f"references of {', '.join(map(str, lengths))} sentences: line N of one "
        "must translate line N of the other."
      )

  def __len__(self) -> int:
    return len(self.lines[0])

  @property
  def case(self) -> str:
    """Letter-case part of metric signatures: "case:lc" or "case:mixed"."""
    return f"case:{'lc' if self.lowercase else 'mixed'}"


@dataclasses.dataclass(frozen=True)
class Metric(Choice):
  """Base class of metrics; by default, 100 times the mean sentence score.

  The statistics of a sentence are then its score and the number 1.

  Attributes:
    title: Name in tables.
    larger_is_better: Whether larger scores are better.
    of_words: Whether the score depends on the tokenizer.
    needs_sources: Whether the metric reads the source sentences.
    in_sacrebleu: Whether sacreBLEU's command computes p-values of the metric.
    dtype: Type of resampled sums.
  """

  title: ClassVar[str]
  larger_is_better: ClassVar[bool] = True
  of_words: ClassVar[bool] = False
  needs_sources: ClassVar[bool] = False
  in_sacrebleu: ClassVar[bool] = False
  dtype: ClassVar[type] = np.float64

  def check(self) -> None:
    """Raises InputError if software that the metric needs is missing."""

  def scorer(self, references: References) -> Scorer:
    """Returns a scorer that compares translations with given references."""
    raise NotImplementedError

  def score(self, sum_I: np.ndarray) -> float:
    """Returns the score of a set of sentences from their summed statistics."""
    return float(self.scores(sum_I[np.newaxis])[0])

  def scores(self, sum_JI: np.ndarray) -> np.ndarray:
    """Returns a score for each row of statistics, summed over sentences."""
    return 100 * sum_JI[:, 0] / np.maximum(1, sum_JI[:, 1])

  def sentence_scores(self, statistic_BI: np.ndarray) -> np.ndarray:
    """Returns a score per sentence from the statistics of each sentence."""
    return self.scores(statistic_BI)

  def ranking_score(self, sum_I: np.ndarray) -> float:
    """Returns the score that is used to rank checkpoints."""
    return self.score(sum_I)


@dataclasses.dataclass(frozen=True)
class Scorer:
  """Metric together with the references of a test set.

  Attributes:
    metric: The metric.
    sentences: Number of sentences of the test set.
    base_signature: Signature without resampling, which starts with the number
      of references.
    statistics: Function of the translations that returns one row for each;
      None for statistics that were measured earlier.
  """

  metric: Metric
  sentences: int
  base_signature: str
  statistics: Callable[[Lines], np.ndarray] | None = None

  @property
  def name(self) -> str:
    return self.metric.title

  def signature(self, **resampling: int) -> str:
    """Returns the metric's signature, with resampling settings if given.

    >>> Scorer(Metric(), 1, "nrefs:1|case:mixed").signature(bs=1000, seed=12345)
    'nrefs:1|bs:1000|seed:12345|case:mixed'
    """
    first, _, rest = self.base_signature.partition("|")
    added = [f"{key}:{value}" for key, value in resampling.items()]
    return "|".join([first, *added, rest])

  def measure(self, hypotheses: Lines) -> Measured:
    """Computes the metric's statistics for each translated sentence.

    Raises:
      InputError: The number of translations differs from that of references.
    """
    if self.sentences != len(hypotheses):
      raise InputError(
        f"{len(hypotheses)} hypotheses but {self.sentences} references: line N "
        "of one must translate line N of the other."
      )
    assert self.statistics, "stored statistics come without references"
    return Measured(self, self.statistics(hypotheses))


def mean_of(
  metric: Metric,
  references: References,
  score: Callable[[Sequence[Any], Any], float],
  *,
  cut: Callable[[str], Any],
  signature: str,
) -> Scorer:
  """Returns a scorer that averages a given sentence-level score function.

  Args:
    metric: The metric.
    references: The references.
    score: Function of (references of a sentence, hypothesis).
    cut: Applied to references and hypotheses first.
    signature: Signature after the number of references.
  """
  cut_references = [list(map(cut, lines)) for lines in zip(*references.lines)]

  def statistics(hypotheses: Lines) -> np.ndarray:
    scores = map(score, cut_references, map(cut, hypotheses))
    return mean_statistics(np.fromiter(scores, np.float64, len(hypotheses)))

  signature = f"nrefs:{len(references.lines)}|{signature}"
  return Scorer(metric, len(references), signature, statistics)


def mean_statistics(score_B: np.ndarray) -> np.ndarray:
  """Returns a row (score, 1) per sentence; summed rows give the mean score."""
  return np.stack([score_B, np.ones_like(score_B)], axis=1)


@dataclasses.dataclass(frozen=True)
class Measured:
  """Per-sentence statistics of a system's translations under one metric."""

  scorer: Scorer
  statistic_BI: np.ndarray

  def __post_init__(self) -> None:
    agree(statistic_BI=self.statistic_BI)

  @property
  def score(self) -> Score:
    return Score(self.scorer.name, self.value, self.scorer.signature())

  @functools.cached_property
  def value(self) -> float:
    """Corpus-level score: the score of all sentences together."""
    return self.scorer.metric.score(self.statistic_BI.sum(axis=0))

  @functools.cached_property
  def sentence_B(self) -> np.ndarray:
    """Sentence-level scores: one score for each sentence.

    For BLEU this is sacreBLEU's sentence BLEU (`-sl`): smoothed (exp), up to the
    longest n-gram of the sentence.
    """
    return self.scorer.metric.sentence_scores(self.statistic_BI)

  def part(self, chosen_B: np.ndarray) -> Measured:
    """Returns the statistics of the sentences that a mask or indices select."""
    return dataclasses.replace(self, statistic_BI=self.statistic_BI[chosen_B])


@dataclasses.dataclass(frozen=True)
class MeanOfSets(Measured):
  """Statistics of several test sets; the score is the mean of the sets' scores.

  Attributes:
    parts: Translations of each test set.
    statistic_BI: Empty; the parts have the statistics.
  """

  parts: tuple[Measured, ...] = ()

  @functools.cached_property
  def value(self) -> float:
    return statistics.fmean(part.value for part in self.parts)

  @functools.cached_property
  def sentence_B(self) -> np.ndarray:
    return np.concatenate([part.sentence_B for part in self.parts])


def mean_of_sets(parts: Sequence[Measured]) -> MeanOfSets:
  """Combines the statistics of several test sets under one metric."""
  sentences = sum(part.scorer.sentences for part in parts)
  scorer = dataclasses.replace(parts[0].scorer, sentences=sentences)
  return MeanOfSets(scorer, np.empty((0, 0)), tuple(parts))


# System -> seed -> its translations of one test set, under each metric.
# `jaxsyn.score` has one translation of each system, with seed 0.
Scored = dict[str, dict[int, list[Measured]]]
