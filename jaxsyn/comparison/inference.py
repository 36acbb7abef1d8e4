"""Which pairs of systems are tested, and how: family, error variance, margins.

Error variance: a linear model of the scores of all systems under one metric,

  score[system, seed] = system + seed + error,

where seeds are blocks, because run k of every system sees the same batches. The
variance of the error, s2, is the sum of squared residuals over the degrees of
freedom: number of runs - rank, (systems - 1) (seeds - 1) where no run is missing.
The mean difference of two systems over K seeds varies by 2 s2 / K. Of two systems
this is the variance between their paired differences, up to rounding.
It assumes that all systems vary equally from seed to seed.

Letters: L run; X column of the linear model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import ConfigPath
from jaxsyn.scoring.settings import SCORED

LEVEL = 0.05
POOLED, SEPARATE = "pooled", "separate"
Pairs = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Inference:
  """How systems are tested.

  Attributes:
    family: Pairs of systems whose tests are corrected together; none: all that
      are tested, each system against the baseline and its controls.
    variance: Variance between seeds: of one linear model of all systems
      ("pooled"), or of each pair ("separate").
    margins: Metric -> margin of equivalence, in points of the metric.
  """

  family: Pairs = ()
  variance: str = POOLED
  margins: Mapping[str, float] = dataclasses.field(default_factory=dict)


DEFAULT = Inference()


@dataclasses.dataclass(frozen=True)
class ErrorVariance:
  """The error variance of the linear model of one metric on one test set.

  Attributes:
    metric: Title of the metric.
    sd: Standard deviation of the error of one run, in points.
    degrees: Degrees of freedom.
    systems: Number of systems.
    largest: System with the largest residuals.
    largest_sd: Standard deviation of its error.
    p: p-value of the hypothesis that it varies like the others: F test,
      Bonferroni-corrected for the choice of the largest; None of two systems.
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
  """Fits the linear model of the module.

  Args:
    metric: Title of the metric.
    scores: System -> seed -> score.

  Returns:
    None where no degree of freedom is left: one system, or one seed.
  """
  from scipy import stats  # takes long to load

  runs = [
    (system, seed, score)
    for system, by_seed in scores.items()
    for seed, score in by_seed.items()
  ]
  systems = list(scores)
  seeds = sorted({seed for _, seed, _ in runs})
  design_LX = np.zeros((len(runs), len(systems) + len(seeds)))
  for row, (system, seed, _) in enumerate(runs):
    design_LX[row, systems.index(system)] = 1
    design_LX[row, len(systems) + seeds.index(seed)] = 1
  score_L = np.array([score for _, _, score in runs])
  fit_X, _, rank, _ = np.linalg.lstsq(design_LX, score_L, rcond=None)
  degrees = len(runs) - int(rank)
  if degrees < 1:
    return None
  # Rounded, so that equal systems have no variance, and the last digits do not
  # depend on the kernels of the linear algebra.
  squared_L = (score_L - design_LX @ fit_X).round(9) ** 2
  total = float(squared_L.sum())
  of_system = {
    name: float(squared_L[design_LX[:, i] > 0].sum())
    for i, name in enumerate(systems)
  }
  largest = max(of_system, key=lambda name: of_system[name])
  # A system's share of the degrees of freedom, as its share of the runs.
  largest_degrees = degrees * len(scores[largest]) / len(runs)
  rest = total - of_system[largest]
  p = None
  if len(systems) > 2 and rest > 0:
    ratio = (of_system[largest] / largest_degrees) / (
      rest / (degrees - largest_degrees)
    )
    p = min(
      1.0,
      len(systems)
      * float(stats.f.sf(ratio, largest_degrees, degrees - largest_degrees)),
    )
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
  """Returns p-values that are corrected for their number (Holm 1979).

  Rejecting those at or below a level keeps the probability of any false
  rejection in the family below this level, whatever the dependence of the tests.

  >>> holm([0.01, 0.04, 0.03])
  [0.03, 0.06, 0.06]
  """
  order = sorted(range(len(p_values)), key=lambda i: p_values[i])
  adjusted = [1.0] * len(p_values)
  largest = 0.0
  for rank, i in enumerate(order):
    largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
    adjusted[i] = largest
  return adjusted


def read_family(words: Sequence[str]) -> Pairs:
  """Reads the pairs of --family, each SYSTEM:OTHER.

  Raises:
    InputError: Not a pair of two systems, or a pair twice.
  """
  pairs = []
  for word in words:
    system, _, other = word.partition(":")
    if not (system and other) or system == other:
      raise InputError(
        f"--family: {word!r} is not a pair of systems, as in "
        "pascal:transformer."
      )
    if (system, other) in pairs or (other, system) in pairs:
      raise InputError(f"--family names the pair {word} twice.")
    pairs.append((system, other))
  return tuple(pairs)


def check_family(family: Pairs, systems: Sequence[str]) -> None:
  """Raises InputError where a pair names a system that is not compared."""
  for name in (name for pair in family for name in pair):
    if name not in systems:
      raise InputError(
        f"--family: {name!r} is not compared. {did_you_mean(name, systems)}"
      )


def read_margins(
  words: Sequence[str], metrics: Sequence[str]
) -> dict[str, float]:
  """Reads --margin: a number for the first metric, or METRIC=NUMBER.

  Raises:
    InputError: Not a positive number, or a metric that is not compared.
  """
  margins = {}
  for word in words:
    name, equals, margin_text = word.rpartition("=")
    name = (
      SCORED.check_name(name, ConfigPath("--margin")) if equals else metrics[0]
    )
    if name not in metrics:
      raise InputError(f"--margin: {name} is not one of --metrics.")
    try:
      margin = float(margin_text)
    except ValueError:
      margin = 0.0
    if not 0 < margin < float("inf"):
      raise InputError(
        f"--margin: {word!r} has no positive number of points, as in 0.5 or "
        "bleu=0.5."
      )
    margins[name] = margin
  return margins
