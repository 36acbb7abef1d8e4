"""What is known of systems' translations of one test set, for tables and JSON.

`jaxsyn.score` fills Results. A comparison has seeds too, and so more to say of a
system and of a bucket: `jaxsyn.comparison.results`, made of the same parts.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Score:
  """One number, and how it came to be.

  Attributes:
    metric: title of one of `jaxsyn.scoring.settings.SCORED`.
    value: in percent, as `Metric` says.
    signature: sacreBLEU's, with version, tokeniser and case; for the others
      one of the same form.
  """

  metric: str
  value: float
  signature: str


@dataclasses.dataclass(frozen=True)
class PairedTest:
  """What one test says of one difference.

  Attributes:
    name: of `jaxsyn.scoring.significance.TESTS`.
    p: probability of a difference at least as large between equal systems.
    sacrebleu_p: what sacreBLEU's command gives for the same seed and samples;
      None where it has no such metric or test.
    samples: resamples or shuffles; for the sign test the sentences that differ.
    signature: sacreBLEU's, of a score with this test; "" for the sign test.
  """

  name: str
  p: float
  sacrebleu_p: float | None
  samples: int
  signature: str


@dataclasses.dataclass(frozen=True)
class Difference:
  """A system against the baseline under one metric, in score points.

  Attributes:
    system, baseline: their names.
    metric: as printed.
    value: score of the system less that of the baseline; of TER, less is better.
    low, high: 95 % interval of it: percentiles of the bootstrap; None without.
    better, worse, same: sentences whose own score is so; for BLEU sacreBLEU's
      sentence BLEU.
    tests: as asked for.
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
  """Some of the sentences; see `jaxsyn.scoring.buckets`.

  Attributes:
    by, label: e.g. "source length" and "11-20".
    count: sentences.
    share: of the test set, from 0 to 1.
  """

  by: str
  label: str
  count: int
  share: float


@dataclasses.dataclass(frozen=True)
class ScoredBucket(Bucket):
  """A bucket of systems that have one translation each.

  Attributes:
    scores: system -> metric -> score; {} where there is no sentence.
    differences: to the baseline, without tests; with an interval where there are
      sentences enough to draw from.
  """

  scores: dict[str, dict[str, float]]
  differences: tuple[Difference, ...]


@dataclasses.dataclass(frozen=True)
class Results:
  """Everything that is known of some systems' translations.

  Attributes:
    scores: system -> its scores.
    baseline: the system that others are compared with.
    differences: of each other system, under each metric.
    buckets: by length and tree of the source, where that is given.
  """

  scores: dict[str, tuple[Score, ...]]
  baseline: str
  differences: tuple[Difference, ...]
  buckets: tuple[ScoredBucket, ...]
