"""What decides which checkpoint of a run is the best: config.train.selection.

The training loop compares ranks (`jaxsyn.training.loop`): the metric's score, and
then the likelihood, so that a model whose translations are all wrong still gets
better while it learns, and patience does not end it.
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
  """What translations of the validation split score.

  Attributes:
    values: for the log: the score by the metric's name, and its "tokenizer".
    compared: the score as it ranks.
  """

  values: dict[str, Any]
  compared: float


class Selector:
  """The metric that selects, against fixed references."""

  def __init__(self, train: Train, references: Sequence[str]):
    """Reads the references; of a settled config whose selection is a metric."""
    self._name, self._tokenizer = train.selection, train.tokenizer
    self._spec = METRICS[self._name]()
    references_ = References([references], self._tokenizer)
    self._scorer = self._spec.scorer(references_)
    self._ranking = self._spec.ranking(references_)

  def __call__(self, hypotheses: Sequence[str]) -> Selected:
    """The score of translations, one a reference."""
    measured = self._scorer.measure(hypotheses)
    values: dict[str, Any] = {self._name: measured.value}
    if self._spec.of_words:
      values["tokenizer"] = self._tokenizer
    ranked = dataclasses.replace(measured, scorer=self._ranking).value
    return Selected(values, ranked if self._spec.larger_is_better else -ranked)


def name_of(selection: str) -> str:
  """What selects, as it is printed: "BLEU"."""
  return SELECTIONS[selection].title


def title(train: Train | Mapping[str, Any]) -> str:
  """As in "BLEU (13a)", of a settled config or of what `save_best` kept."""
  section = train if isinstance(train, Mapping) else dataclasses.asdict(train)
  selection = section["selection"]
  if SELECTIONS[selection].of_words:
    return f"{name_of(selection)} ({section['tokenizer']})"
  return name_of(selection)
