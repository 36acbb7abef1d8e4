"""Selects the best checkpoint of a run (config.train.selection).

The training loop ranks checkpoints by the metric's score and then by likelihood,
so that a model whose translations are all wrong still improves while it learns,
and early stopping does not end it.

Letters: I statistic of a sentence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxsyn.options import Registry
from jaxsyn.scoring.metrics import LIKELIHOOD, METRICS, Likelihood
from jaxsyn.scoring.scorers import Metric, References
from jaxsyn.training.options import Train

SELECTIONS: Registry[Metric] = Registry(
  "metric", {**METRICS, LIKELIHOOD: Likelihood}
)


class Selected(NamedTuple):
  """Score of a checkpoint on the validation split.

  Attributes:
    values: Values to log: the score by the metric's name, and the "tokenizer".
    compared: The score by which checkpoints are ranked; larger is better.
  """

  values: dict[str, Any]
  compared: float


class Selector:
  """Function that scores translations by the metric that selects checkpoints."""

  def __init__(self, train: Train, references: Sequence[str]):
    """Reads the references of the validation split.

    Args:
      train: Section of a config `with_defaults`, whose selection is of METRICS.
      references: The references.
    """
    self._name, self._tokenizer = train.selection, train.tokenizer
    self._metric = METRICS[self._name]()
    self._scorer = self._metric.scorer(
      References([references], self._tokenizer)
    )

  def __call__(self, hypotheses: Sequence[str]) -> Selected:
    """Returns the score of a list of translations, in reference order."""
    measured = self._scorer.measure(hypotheses)
    values: dict[str, Any] = {self._name: measured.value}
    if self._metric.of_words:
      values["tokenizer"] = self._tokenizer
    score = self._metric.ranking_score(measured.statistic_BI.sum(axis=0))
    return Selected(values, score if self._metric.larger_is_better else -score)


def name_of(selection: str) -> str:
  """Returns the title of a checkpoint-selection metric, such as "BLEU"."""
  return SELECTIONS[selection].title


def check(selection: str) -> None:
  """Raises ValueError if the metric of a stored score is unknown.

  Args:
    selection: Field of the score, as read from a file.
  """
  if selection not in SELECTIONS:
    raise ValueError(
      f"selection={selection[:80]!r} is no metric of this version"
    )


def title(train: Train | Mapping[str, Any]) -> str:
  """Returns the name of the metric that selects checkpoints: "BLEU (13a)".

  Args:
    train: Section of a config `with_defaults`, or metadata of `save_best`.
  """
  section = train if isinstance(train, Mapping) else dataclasses.asdict(train)
  selection = section["selection"]
  if SELECTIONS[selection].of_words:
    return f"{name_of(selection)} ({section['tokenizer']})"
  return name_of(selection)
