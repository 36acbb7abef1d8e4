"""Results of scoring a test set, for tables and JSON.

`jaxsyn.score` makes `Results`; comparisons of several seeds have results of their
own (`jaxsyn.comparison.results`), made of the same parts.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Score:
  """Score of a system's translations under one metric.

  Attributes:
    metric: Title of a metric.
    value: Score, in percent unless the metric has another unit.
    signature: sacreBLEU's signature (version, tokenizer, case), or one of the
      same form.
  """

  metric: str
  value: float
  signature: str


@dataclasses.dataclass(frozen=True)
class PairedTest:
  """Result of a significance test.

  Attributes:
    name: Name of the test (`jaxsyn.scoring.significance.TESTS`).
    p: Probability of a difference at least as large between equal systems.
    sacrebleu_p: p-value of sacreBLEU's command for the same seed and samples;
      None if it has no such metric or test.
    samples: Number of resamples or shuffles; for the sign test the number of
      sentences that differ.
    signature: sacreBLEU's signature of a score with this test; "" for the sign
      test.
  """

  name: str
  p: float
  sacrebleu_p: float | None
  samples: int
  signature: str


@dataclasses.dataclass(frozen=True)
class Difference:
  """Difference between a system and the baseline under one metric.

  Attributes:
    system, baseline: Names.
    metric: Title of the metric.
    value: Score of the system minus that of the baseline, in points.
    low, high: 95 % interval (percentiles of the bootstrap), or None.
    better, worse, same: Number of sentences by their own score; for BLEU this is
      sacreBLEU's sentence BLEU.
    tests: Results of significance tests.
  """

  system: str
  baseline: str
  metric: str
  value: float
  low: float | None
  high: float | None
  better: int
  worse: int
  same: int
  tests: tuple[PairedTest, ...]


@dataclasses.dataclass(frozen=True)
class Bucket:
  """Test sentences grouped by length or by a tree statistic such as depth.

  Attributes:
    by, label: For instance "source length" and "11-20".
    count: Number of sentences.
    share: Fraction of the test set.
  """

  by: str
  label: str
  count: int
  share: float


@dataclasses.dataclass(frozen=True)
class ScoredBucket(Bucket):
  """Bucket with the scores of all systems on its sentences.

  Attributes:
    scores: System -> metric -> score; {} without sentences.
    differences: Differences without tests; with an interval if there are enough
      sentences.
  """

  scores: dict[str, dict[str, float]]
  differences: tuple[Difference, ...]


@dataclasses.dataclass(frozen=True)
class Results:
  """Scores of translation files, and their differences from a baseline.

  Attributes:
    scores: System -> its scores.
    baseline: Name of the system that others are compared with.
    differences: Difference of each other system, under each metric.
    buckets: Buckets by length and tree of the source, if given.
  """

  scores: dict[str, tuple[Score, ...]]
  baseline: str
  differences: tuple[Difference, ...]
  buckets: tuple[ScoredBucket, ...]
