"""What a metric is, and what it makes of translations.

A score is made of numbers that sentences add to a sum: n-gram counts for BLEU,
edits for TER, the sentence's own score for RIBES. `Measured` keeps them, so that
significance tests and buckets score any set of sentences without reading the
text again.

Letters: I statistic of a sentence; J sum of statistics.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import sacrebleu.metrics.base

from jaxsyn.errors import InputError
from jaxsyn.options import Choice
from jaxsyn.scoring.results import Score
from jaxsyn.shapes import agree

Lines = Sequence[str]


@dataclasses.dataclass(frozen=True)
class References:
  """What translations are held against, and how.

  Attributes:
    lines: one or more lists of as many sentences, detokenised.
    tokenizer: sacreBLEU's, of the words of BLEU, RIBES and, unless it leaves
      words between blanks, TER; `tokenizers.default` has that of a language.
    lowercase: whether case is ignored, as sacreBLEU's command does with -lc
      (BLEU) and --chrf-lowercase; by TER always.
    sources: of the sentences, for metrics that read them; or none.

  Raises:
    InputError: lists of different length.
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
    """As signatures have it."""
    return f"case:{'lc' if self.lowercase else 'mixed'}"


@dataclasses.dataclass(frozen=True)
class Metric(Choice):
  """A spec of `jaxsyn.scoring.metrics.METRICS`.

  Attributes:
    title: as printed.
    larger_is_better: whether the larger score is; values are percentages, from
      0 to 100, unless it is not.
    of_words: whether a tokeniser cuts what it counts.
    needs_sources: whether it must have `References.sources`.
  """

  title: ClassVar[str]
  larger_is_better: ClassVar[bool] = True
  of_words: ClassVar[bool] = False
  needs_sources: ClassVar[bool] = False

  def check(self) -> None:
    """Raises InputError where what it needs is not installed."""

  def scorer(self, references: References) -> Scorer:
    """The metric with its references, read once for all systems."""
    raise NotImplementedError

  def ranking(self, references: References) -> Scorer:
    """What ranks checkpoints when it selects, where smoothing would mislead."""
    return self.scorer(references)

  def stored(self, sentences: int, signature: str) -> Scorer:
    """Returns the scorer of statistics that were measured earlier.

    It reads no text: it turns sums of stored statistics into scores.

    Args:
      sentences: Number of sentences of the test set.
      signature: Signature of the scorer that measured the statistics.
    """
    return dataclasses.replace(
      self.scorer(References([[""]])),
      sentences=sentences,
      statistics=no_text,
      signature=functools.partial(with_resampling, signature),
    )


@dataclasses.dataclass(frozen=True)
class Scorer:
  """A metric with its references; of `of_sacrebleu`, `mean_of`, `mean_of_scores`.

  Attributes:
    metric: its spec.
    sentences: of each reference.
    statistics: hypotheses -> numbers of each sentence, a row each.
    of_sum: the sum of such rows -> the score of their sentences.
    of_sentence: a row -> the score of the sentence by itself.
    of_sums: `of_sum` of each row of an array, vectorized; None: row by row.
    of_sentences: `of_sentence` of each row, vectorized; None: row by row.
    signature: what must be known to get the number again, of keywords that say
      how it was resampled.
    dtype: in which sums are resampled.
    in_sacrebleu: whether sacreBLEU's command has p-values of it.
  """

  metric: Metric
  sentences: int
  statistics: Callable[[Lines], np.ndarray]
  of_sum: Callable[[np.ndarray], float]
  of_sentence: Callable[[np.ndarray], float]
  signature: Callable[..., str]
  of_sums: Callable[[np.ndarray], np.ndarray] | None = None
  of_sentences: Callable[[np.ndarray], np.ndarray] | None = None
  dtype: type = np.float64
  in_sacrebleu: bool = False

  @property
  def name(self) -> str:
    return self.metric.title

  def scores(self, sum_JI: np.ndarray) -> np.ndarray:
    """Returns the score of each sum of statistics."""
    return _of_rows(self.of_sums, self.of_sum, sum_JI)

  def sentence_scores(self, statistic_BI: np.ndarray) -> np.ndarray:
    """Returns the score of each sentence by itself."""
    return _of_rows(self.of_sentences, self.of_sentence, statistic_BI)

  def measure(self, hypotheses: Lines) -> Measured:
    """What a system's sentences add to a score.

    Raises:
      InputError: not as many hypotheses as references.
    """
    if self.sentences != len(hypotheses):
      raise InputError(
        f"{len(hypotheses)} hypotheses but {self.sentences} references: line N "
        "of one must translate line N of the other."
      )
    return Measured(self, self.statistics(hypotheses))


def _of_rows(
  vectorized: Callable[[np.ndarray], np.ndarray] | None,
  single: Callable[[np.ndarray], float],
  row_JI: np.ndarray,
) -> np.ndarray:
  if vectorized:
    return np.asarray(vectorized(row_JI), np.float64)
  return np.array([single(row) for row in row_JI], np.float64)


def no_text(hypotheses: Lines) -> np.ndarray:
  """Raises ValueError: a scorer of stored statistics cannot measure text."""
  raise ValueError("a scorer of stored statistics cannot measure translations.")


def with_resampling(signature: str, **resampling: int) -> str:
  """Returns a signature with the resampling of a significance test.

  >>> with_resampling("nrefs:1|case:mixed", bs=1000, seed=12345)
  'nrefs:1|bs:1000|seed:12345|case:mixed'
  """
  first, _, rest = signature.partition("|")
  added = [f"{key}:{value}" for key, value in resampling.items()]
  return "|".join([first, *added, rest])


def of_sacrebleu(
  metric: Metric,
  references: References,
  of_corpus: sacrebleu.metrics.base.Metric,
  *,
  by_sentence: sacrebleu.metrics.base.Metric | None = None,
  of_sums: Callable[[np.ndarray], np.ndarray] | None = None,
  of_sentences: Callable[[np.ndarray], np.ndarray] | None = None,
  cut: Callable[[str], str] = str,
  **signature_parts: str,
) -> Scorer:
  """One of sacreBLEU's metrics.

  Args:
    metric, references: see `Scorer`.
    of_corpus: sacreBLEU's, made with the references.
    by_sentence: for single sentences, where that is another.
    of_sums, of_sentences: see `Scorer`.
    cut: done to each hypothesis first, where it was done to references.
    **said: what the signature says instead of sacreBLEU's own.
  """

  def statistics(hypotheses: Lines) -> np.ndarray:
    lines = list(map(cut, hypotheses))
    # Private, as its own tests use it: no public call tells sentences apart.
    rows = of_corpus._extract_corpus_statistics(lines, None)
    return np.array(rows, np.float64).reshape(len(hypotheses), -1)

  def scored_by(
    one: sacrebleu.metrics.base.Metric,
  ) -> Callable[[np.ndarray], float]:
    score: Callable[[Any], Any] = one._compute_score_from_stats
    return lambda sum_I: float(score(sum_I).score)

  def signature(**resampling: int) -> str:
    signature = of_corpus.get_signature()
    for key, value in {**signature_parts, **resampling}.items():
      signature.update(key, value)
    return str(signature)

  return Scorer(
    *(metric, len(references), statistics),
    of_sum=scored_by(of_corpus),
    of_sentence=scored_by(by_sentence or of_corpus),
    signature=signature,
    of_sums=of_sums,
    of_sentences=of_sentences,
    # sacreBLEU resamples in this type; its p-values depend on it in a tie.
    dtype=np.float32,
    in_sacrebleu=True,
  )


def mean_of(
  metric: Metric,
  references: References,
  score: Callable[[Sequence[Any], Any], float],
  *,
  cut: Callable[[str], Any],
  signature: str,
) -> Scorer:
  """The mean of sentence scores from 0 to 1, in percent.

  Args:
    metric, references: see `Scorer`.
    score: function of (references of a sentence, hypothesis).
    cut: done to both first.
    signature: the end of the signature.
  """
  cut_references = list(
    zip(*([*map(cut, lines)] for lines in references.lines))
  )

  def scores(hypotheses: Lines) -> np.ndarray:
    sentence_scores = map(score, cut_references, map(cut, hypotheses))
    return np.fromiter(sentence_scores, np.float64, len(hypotheses))

  return mean_of_scores(
    *(metric, len(references), scores),
    references=len(references.lines),
    signature=signature,
  )


def mean_of_scores(
  metric: Metric,
  sentences: int,
  scores: Callable[[Lines], np.ndarray],
  *,
  references: int,
  signature: str,
) -> Scorer:
  """The same of what scores all sentences at once.

  Args:
    metric, sentences: see `Scorer`.
    scores: hypotheses -> the score of each.
    references: how many each sentence has.
    signature: the end of the signature.
  """

  def statistics(hypotheses: Lines) -> np.ndarray:
    score_B = scores(hypotheses)
    return np.stack([score_B, np.ones_like(score_B)], axis=1)

  def of_sum(sum_I: np.ndarray) -> float:
    return float(100 * sum_I[0] / max(1, sum_I[1]))

  def of_sums(sum_JI: np.ndarray) -> np.ndarray:
    return 100 * sum_JI[:, 0] / np.maximum(1, sum_JI[:, 1])

  return Scorer(
    *(metric, sentences, statistics),
    of_sum=of_sum,
    of_sentence=of_sum,
    of_sums=of_sums,
    of_sentences=of_sums,
    signature=functools.partial(
      with_resampling, f"nrefs:{references}|{signature}"
    ),
  )


@dataclasses.dataclass(frozen=True)
class Measured:
  """A system's translations under one metric.

  Attributes:
    scorer: of the metric, with its references.
    statistic_BI: what each sentence adds to the sum that is scored.
  """

  scorer: Scorer
  statistic_BI: np.ndarray

  def __post_init__(self) -> None:
    agree(statistic_BI=self.statistic_BI)

  @property
  def score(self) -> Score:
    return Score(self.scorer.name, self.value, self.scorer.signature())

  @functools.cached_property
  def value(self) -> float:
    """The score of all sentences."""
    return self.scorer.of_sum(self.statistic_BI.sum(axis=0))

  @functools.cached_property
  def sentence_B(self) -> np.ndarray:
    """The score of each sentence by itself.

    BLEU is then sacreBLEU's sentence BLEU (its -sl): smoothed (exp), up to
    the longest n-gram that the sentence has.
    """
    return self.scorer.sentence_scores(self.statistic_BI)

  def part(self, chosen_B: np.ndarray) -> Measured:
    """The same for some of the sentences, a mask or indices."""
    return dataclasses.replace(self, statistic_BI=self.statistic_BI[chosen_B])


@dataclasses.dataclass(frozen=True)
class MeanOfSets(Measured):
  """A system's translations of several test sets: the mean of their scores.

  Attributes:
    parts: Translations of each test set.
    statistic_BI: Empty; the parts have the statistics.
  """

  parts: tuple[Measured, ...] = ()

  @functools.cached_property
  def value(self) -> float:
    """The mean of the scores of the test sets."""
    return statistics.fmean(part.value for part in self.parts)

  @functools.cached_property
  def sentence_B(self) -> np.ndarray:
    """The score of each sentence of all test sets."""
    return np.concatenate([part.sentence_B for part in self.parts])


def mean_of_sets(parts: Sequence[Measured]) -> MeanOfSets:
  """Returns the mean of test sets under one metric."""
  scorer = dataclasses.replace(
    parts[0].scorer,
    sentences=sum(part.scorer.sentences for part in parts),
    in_sacrebleu=False,
  )
  return MeanOfSets(scorer, np.empty((0, 0)), tuple(parts))


# System -> seed -> its translations of one test set, under each metric. What has
# one translation alone (`jaxsyn.score`) has seed 0.
Scored = dict[str, dict[int, list[Measured]]]
