"""What decides which checkpoint of a run is the best: config.train.selection.

The training loop compares scores (`jaxsyn.training.loop`); here stands what they
are called, and which tokeniser counts them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxsyn.config import Config, Train
from jaxsyn.scoring import tokenizers

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


def title(train: Train | Mapping[str, Any]) -> str:
  """As in "BLEU (13a)", of a settled config or of what `save_best` kept."""
  found = train if isinstance(train, Mapping) else dataclasses.asdict(train)
  name = TITLES[found["selection"]]
  if found["selection"] in OF_WORDS:
    return f"{name} ({found['tokenizer']})"
  return name
