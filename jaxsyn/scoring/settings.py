"""Scoring options of `jaxsyn score` and `jaxsyn compare`, and their flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import (
  ConfigPath,
  Registry,
  metadata,
  option,
  range_of,
  with_default,
)
from jaxsyn.options.bounds import CountOrOff, Seed
from jaxsyn.options.flags import list_flag, number_flag
from jaxsyn.scoring import tokenizers
from jaxsyn.scoring.buckets import EDGES, check_edges
from jaxsyn.scoring.comet import Comet
from jaxsyn.scoring.metrics import LIKELIHOOD, METRICS, Likelihood
from jaxsyn.scoring.scorers import Lines, Metric, References, Scorer
from jaxsyn.scoring.significance import CHOICES, SEED, Draws

flags.disclaim_key_flags()  # they show in the help of the command

SCORED: Registry[Metric] = Registry(
  "metric", {**METRICS, "comet": Comet, LIKELIHOOD: Likelihood}
)


@dataclasses.dataclass(frozen=True)
class Settings:
  """Metrics, tests and tokenizer; each setting has a flag of the same name.

  Raises:
    InputError: An unknown metric or test, no metric or the same one twice, or
      edges that do not ascend from 1.
  """

  metrics: tuple[str, ...] = option(
    ("bleu", "chrf"), f"Metrics, in order, from {', '.join(SCORED)}."
  )
  tokenizer: str = option(
    "",
    "sacreBLEU tokenizer for BLEU and for the words of RIBES and TER: 13a, "
    "intl, zh, char, none, ja-mecab (pip install -e '.[ja]'), ko-mecab "
    "('.[ko]'), or flores101, flores200, spBLEU-1K, which are downloaded. "
    "Default: that of the target language; 13a if the language is unknown.",
  )
  lowercase: bool = option(
    False, "Ignore case, as sacreBLEU's -lc does. TER always ignores it."
  )
  significance: str = option(
    "bootstrap",
    "Significance test against the baseline. sign: sign test on sentence "
    "scores; none: no test and no bootstrap confidence intervals.",
  )
  samples: CountOrOff = option(
    0, "Resamples or shuffles per test; 0: 1000 resamples, 10000 shuffles."
  )
  seed: Seed = option(SEED, "Seed of the tests; by default sacreBLEU's.")
  edges: tuple[int, ...] = option(
    EDGES,
    "Upper bounds of length buckets, in words: 1-10, 11-20, ..., over 50.",
  )
  comet_model: str = with_default(Comet, "model", Comet.model)
  comet_python: str = with_default(Comet, "python", Comet.python)

  def __post_init__(self) -> None:
    for metric in self.metrics:
      SCORED.check_name(metric, ConfigPath("--metrics"))
    if not self.metrics or len(set(self.metrics)) < len(self.metrics):
      raise InputError(
        f"--metrics must name one or more, each once; got {self.metrics}."
      )
    if self.significance not in CHOICES:
      known = did_you_mean(self.significance, CHOICES)
      raise InputError(f"no test {self.significance!r}. {known}")
    check_edges(self.edges)

  @property
  def tests(self) -> tuple[str, ...]:
    return CHOICES[self.significance]

  @property
  def draws(self) -> Draws:
    return Draws(self.samples, self.seed)

  @property
  def specs(self) -> list[Metric]:
    """Metric objects for the selected metrics, such as BLEU and COMET."""
    comet = Comet(self.comet_model, self.comet_python)
    return [
      comet if SCORED[name] is Comet else SCORED[name]()
      for name in self.metrics
    ]

  def with_defaults(self, language: str) -> Settings:
    """Returns the settings with the tokenizer resolved for a language.

    Raises:
      InputError: A metric or tokenizer is unknown or not installed.
    """
    for spec in self.specs:
      spec.check()
    tokenizer = tokenizers.resolved(self.tokenizer, language)
    return dataclasses.replace(self, tokenizer=tokenizer)

  def scorers(
    self, references: Sequence[Lines], sources: Lines = ()
  ) -> list[Scorer]:
    """Returns a scorer for each metric; requires settings from `with_defaults`.

    Raises:
      InputError: References differ in length; a metric needs sources.
    """
    tokenized_references = References(
      references, self.tokenizer, self.lowercase, sources
    )
    return [spec.scorer(tokenized_references) for spec in self.specs]


def settings_flags(defaults: Settings, without: Sequence[str] = ()) -> None:
  """Defines a command-line flag for each scoring setting.

  Args:
    defaults: Default values.
    without: Settings without a flag.
  """
  for field in dataclasses.fields(Settings):
    name, meaning = field.name, metadata(field).meaning
    default = getattr(defaults, name)
    if name in without:
      continue
    if name == "significance":
      flags.DEFINE_enum(name, default, list(CHOICES), meaning)
    elif isinstance(default, tuple):
      list_flag(name, list(map(str, default)), meaning)
    elif isinstance(default, bool):
      flags.DEFINE_bool(name, default, meaning)
    elif isinstance(default, int):
      number_flag(name, default, range_of(Settings, name), meaning)
    else:
      flags.DEFINE_string(name, default, meaning)


def of_flags(values: flags.FlagValues) -> Settings:
  """Returns the scoring settings that command-line flags select.

  Raises:
    InputError: A value is invalid; see `Settings`.
  """
  settings: dict[str, Any] = {
    field.name: values[field.name].value
    for field in dataclasses.fields(Settings)
    if field.name in values
  }
  settings["metrics"] = tuple(values.metrics)
  try:
    settings["edges"] = tuple(map(int, values.edges))
  except ValueError:
    raise InputError(
      f"--edges are whole numbers, as in 10,20,30; got {values.edges}."
    ) from None
  return Settings(**settings)
