"""Statistical-test options: test family, error variance, equivalence margins.

Error variance: a linear model of the scores of all systems under one metric,

  score[system, seed] = system + seed + error.

Seeds are blocks, because run k of every system sees the same batches. The
variance of the error, s2, is the sum of squared residuals divided by the degrees
of freedom: number of runs - rank, which is (systems - 1) (seeds - 1) if no run is
missing. The mean difference of two systems over K seeds has the variance 2 s2 / K.
For two systems this is the variance between their paired differences. The model
assumes that all systems vary equally between seeds.

Letters: L run; P test of the family; X column of the linear model.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from absl import flags

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import ConfigPath
from jaxsyn.options.flags import list_flag
from jaxsyn.scoring.settings import SCORED

flags.disclaim_key_flags()  # they show in the help of the command

LEVEL = 0.05
POOLED, SEPARATE = "pooled", "separate"
Pairs = tuple[tuple[str, str], ...]  # systems, and what each is compared with


@dataclasses.dataclass(frozen=True)
class Inference:
  """Options of the significance tests between systems.

  Attributes:
    family: Pairs of systems whose tests are corrected together; if empty, each
      system with the baseline and its controls.
    variance: Estimate of the variance between seeds: "pooled" over all systems,
      or "separate" for each pair.
    margins: Metric -> margin of equivalence, in points.
  """

  family: Pairs = ()
  variance: str = POOLED
  margins: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ErrorVariance:
  """Residual variance of the scores of all systems, for a metric and test set.

  Attributes:
    metric: Title of the metric.
    sd: Standard deviation of the error of a run, in points.
    degrees: Degrees of freedom.
    systems: Number of systems.
    largest: System with the largest residuals.
    largest_sd: Standard deviation of its error.
    p: p-value of the hypothesis that this system varies like the others: F
      test, Bonferroni-corrected for the choice of the largest; None for two
      systems.
  """

  metric: str
  sd: float
  degrees: int
  systems: int
  largest: str
  largest_sd: float
  p: float | None


def error_variance(
  metric: str, scores: Mapping[str, Mapping[int, float]]
) -> ErrorVariance | None:
  """Estimates a metric's error variance with a linear model (system + seed).

  Args:
    metric: Title of the metric.
    scores: System -> seed -> score.

  Returns:
    The error variance; None without degrees of freedom (one system or seed).
  """
  from scipy import stats  # takes long to load

  systems = list(scores)
  seeds = sorted(set[int]().union(*scores.values()))
  rows, values = [], []
  for column, by_seed in enumerate(scores.values()):
    for seed, score in by_seed.items():
      row = np.zeros(len(systems) + len(seeds))
      row[[column, len(systems) + seeds.index(seed)]] = 1
      rows.append(row)
      values.append(score)
  design_LX, score_L = np.stack(rows), np.array(values)
  fit_X, _, rank, _ = np.linalg.lstsq(design_LX, score_L, rcond=None)
  degrees = len(rows) - int(rank)
  if degrees < 1:
    return None
  # Rounded, so that equal systems have no variance, and the last digits do not
  # depend on the kernels of the linear algebra.
  squared_L = (score_L - design_LX @ fit_X).round(9) ** 2
  total = float(squared_L.sum())
  of_system = {
    name: float(squared_L[design_LX[:, column] > 0].sum())
    for column, name in enumerate(systems)
  }
  largest = max(of_system, key=lambda name: of_system[name])
  # Degrees of freedom are split between systems like the runs.
  largest_degrees = degrees * len(scores[largest]) / len(rows)
  rest, rest_degrees = total - of_system[largest], degrees - largest_degrees
  p = None
  if len(systems) > 2 and rest > 0:
    ratio = (of_system[largest] / largest_degrees) / (rest / rest_degrees)
    single_p = float(stats.f.sf(ratio, largest_degrees, rest_degrees))
    p = min(1.0, len(systems) * single_p)
  return ErrorVariance(
    metric=metric,
    sd=(total / degrees) ** 0.5,
    degrees=degrees,
    systems=len(systems),
    largest=largest,
    largest_sd=(of_system[largest] / largest_degrees) ** 0.5,
    p=p,
  )


def holm(p_values: Sequence[float]) -> list[float]:
  """Returns Holm-adjusted p-values (Holm 1979).

  Rejecting those at or below a level keeps the probability of any false
  rejection in the family below this level, for any dependence of the tests.

  >>> holm([0.01, 0.04, 0.03])
  [0.03, 0.06, 0.06]
  """
  p_P = np.array(p_values)
  order_P = np.argsort(p_P, kind="stable")
  scaled_P = np.arange(len(p_P), 0, -1) * p_P[order_P]
  adjusted_P = np.empty(len(p_P))
  adjusted_P[order_P] = np.maximum.accumulate(np.minimum(1.0, scaled_P))
  return adjusted_P.tolist()


def inference_flags() -> None:
  """Defines the flags --family, --variance and --margin."""
  list_flag(
    "family",
    [],
    "Pairs of systems whose tests are Holm-corrected together, as in "
    "pascal:transformer,pascal:pascal_random_tree, on the first metric, "
    "averaged over the test sets. Default: each system with the baseline and "
    "with its controls.",
  )
  flags.DEFINE_enum(
    "variance",
    Inference.variance,
    [POOLED, SEPARATE],
    "Variance between seeds: from one linear model of all systems, which needs "
    "fewer seeds and assumes that all systems vary equally; or estimated for "
    "each pair of systems.",
  )
  list_flag(
    "margin",
    [],
    "Equivalence margin in points, for the first metric or for each metric, "
    "as in bleu=0.5,chrf=0.5. Two systems are equivalent if two one-sided "
    "tests show that their difference lies within the margin. Default: no "
    "equivalence test.",
  )


def read_inference(values: flags.FlagValues) -> Inference:
  """Reads --family, --variance and --margin.

  Raises:
    InputError: A value is invalid.
  """
  family = read_family(values.family)
  margins = read_margins(values.margin, values.metrics)
  return Inference(family, values.variance, margins)


def read_family(words: Sequence[str]) -> Pairs:
  """Parses --family: pairs SYSTEM:OTHER whose p-values are Holm-adjusted.

  Raises:
    InputError: A word is not a pair of two systems, or a pair is repeated.
  """
  pairs: list[tuple[str, str]] = []
  for word in words:
    system, _, other = word.partition(":")
    if not (system and other) or system == other:
      raise InputError(
        f"--family: {word!r} is not a pair of systems, as in "
        "pascal:transformer."
      )
    if {(system, other), (other, system)} & {*pairs}:
      raise InputError(f"--family names the pair {word} twice.")
    pairs.append((system, other))
  return tuple(pairs)


def check_family(family: Pairs, systems: Sequence[str]) -> None:
  """Raises InputError if a pair names a system that is not compared."""
  for name in itertools.chain.from_iterable(family):
    if name not in systems:
      raise InputError(
        f"--family: {name!r} is not compared. {did_you_mean(name, systems)}"
      )


def read_margins(
  words: Sequence[str], metrics: Sequence[str]
) -> dict[str, float]:
  """Reads --margin, the equivalence margins: NUMBER or METRIC=NUMBER.

  Raises:
    InputError: Not a positive number, or a metric that is not compared.
  """
  margins = {}
  for word in words:
    name, equals, number = word.rpartition("=")
    if not equals:
      name = metrics[0]
    SCORED.check_name(name, ConfigPath("--margin"))
    if name not in metrics:
      raise InputError(f"--margin: {name} is not one of --metrics.")
    try:
      margins[name] = float(number)
    except ValueError:
      margins[name] = 0.0
    if not 0 < margins[name] < float("inf"):
      raise InputError(
        f"--margin: {word!r} has no positive number of points, as in 0.5 or "
        "bleu=0.5."
      )
  return margins
