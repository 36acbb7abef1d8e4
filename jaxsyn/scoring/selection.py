"""What decides which checkpoint of a run is the best: config.train.selection.

The training loop compares ranks (`jaxsyn.training.loop`): the metric's score, and
then the likelihood, so that a model whose translations are all wrong still gets
better while it learns, and patience does not end it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxsyn.config import Config, Train
from jaxsyn.scoring import tokenizers
from jaxsyn.scoring.metrics import SacreBleu, measure, scorer_of

# Choices -> how they are printed; all but the last are metrics.
TITLES = {
  "bleu": "BLEU",
  "chrf": "chrF",
  "ribes": "RIBES",
  "likelihood": "log-likelihood",
}
OF_WORDS = ("bleu", "ribes")  # those that need a tokeniser


def settled(config: Config) -> Config:
  """A config that names the tokeniser where it left that to the language.

  What a run is begun with: installing another tokeniser later does not change
  what its scores are of.

  Raises:
    InputError: no such tokeniser, or it is not installed.
  """
  tokenizer = tokenizers.settled(
    config.train.tokenizer, config.data.target_language
  )
  train = dataclasses.replace(config.train, tokenizer=tokenizer)
  return dataclasses.replace(config, train=train)


class Selected(NamedTuple):
  """What translations of the validation split score.

  Attributes:
    values: for the log: the score by the metric's name, and its "tokenizer".
    compared: the score as it ranks.
  """

  values: dict[str, Any]
  compared: float


class Metric:
  """The metric that selects, against fixed references."""

  def __init__(self, train: Train, references: Sequence[str]):
    """Reads the references; of a settled config whose selection is a metric."""
    self._name, self._tokenizer = train.selection, train.tokenizer
    self._scorer = scorer_of(self._name, [references], self._tokenizer)
    self._compared = self._scorer
    if self._name == "bleu":
      # Smoothed BLEU of translations without a single right 4-gram is a number
      # like 0.3, and goes up and down by chance while a model learns: without
      # this step 100 stayed best though the perplexity halved until step 200.
      bleu = tokenizers.bleu_of(self._tokenizer, smooth_method="none")
      self._compared = SacreBleu("BLEU", len(references), bleu)

  def __call__(self, hypotheses: Sequence[str]) -> Selected:
    """The score of translations, one a reference."""
    found = measure(self._scorer, hypotheses)
    values: dict[str, Any] = {self._name: found.value}
    if self._name in OF_WORDS:
      values["tokenizer"] = self._tokenizer
    ranked = dataclasses.replace(found, scorer=self._compared)
    return Selected(values, ranked.value)


def title(train: Train | Mapping[str, Any]) -> str:
  """As in "BLEU (13a)", of a settled config or of what `save_best` kept."""
  found = train if isinstance(train, Mapping) else dataclasses.asdict(train)
  name = TITLES[found["selection"]]
  if found["selection"] in OF_WORDS:
    return f"{name} ({found['tokenizer']})"
  return name
