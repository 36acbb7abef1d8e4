"""Every option of jaxsyn: its default, bounds, unit and meaning.

The only place where an option is said, with `jaxsyn.data.options` and
`jaxsyn.train_options`; those of
choices (parts, windows, families, losses, rules, schedules, searches) stand with
the choice.
`configs/base.py` makes the ConfigDict of a command line from it; `read_config`
is the way back and refuses unknown, missing or mistyped fields by name.
`jaxsyn.plan` comes after and checks that the fields fit each other.

  jaxsyn train --helpconfig[=optimiser]    prints all of it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jaxsyn.data.options import Batches, Data, Prepare
from jaxsyn.errors import InputError
from jaxsyn.options import (
  COMPLETE_MODE,
  ROOT,
  NamedSpecs,
  ValidationMode,
  as_dict,
  choice,
  choices,
  from_config,
  option,
  section,
)
from jaxsyn.options.bounds import (
  Name,
  Range,
  Seed,
  Units,
)
from jaxsyn.train_options import Optimiser, Train

if TYPE_CHECKING:  # rooms above: an option names its table by address
  from jaxsyn.decode.strategy import DecodingStrategy
  from jaxsyn.models.spec import Architecture
  from jaxsyn.syntax import ModifierSpec
  from jaxsyn.training.objective import Loss

MODIFIER_REGISTRY = "jaxsyn.syntax:MODIFIERS"


@dataclasses.dataclass(frozen=True)
class Model:
  """The encoder-decoder: what all families have, and a section for each."""

  family: Architecture = choice(
    "jaxsyn.models.architectures:ARCHITECTURES",
    "transformer",
    "A system sets it.",
  )
  width: Units = option(
    128, 'D, of all families; of "gru" that of the embeddings.'
  )
  tie_embeddings: bool = option(
    True, "Source and target share a table (joint vocabulary)."
  )
  tie_output: bool = option(
    True, "The output projection is the target's table."
  )
  attention: Literal["einsum", "fused"] = option(
    "einsum",
    'Of a Transformer: "fused" is JAX\'s own, without scores, for systems whose '
    "parts do nothing but add to them; on an NVIDIA GPU in bfloat16 cuDNN's "
    "kernel, as yet untried. It has no attention_dropout. On a CPU it is slower.",
    resume=True,
  )
  dtype: Literal["float32", "bfloat16"] = option(
    "float32", "Of the computation; parameters are float32."
  )


@dataclasses.dataclass(frozen=True)
class Placement:
  """Parts, by the place where they change attention."""

  encoder: NamedSpecs[ModifierSpec] = choices(
    MODIFIER_REGISTRY, "Parts of the encoder."
  )
  decoder: NamedSpecs[ModifierSpec] = choices(
    MODIFIER_REGISTRY, "Parts of the decoder's self-attention."
  )
  cross: NamedSpecs[ModifierSpec] = choices(
    MODIFIER_REGISTRY, "Parts of the cross-attention."
  )

  def modifiers_in(self, place: str) -> NamedSpecs[ModifierSpec]:
    """(name, spec) of the parts at a place, in table order."""
    return getattr(self, place)

  def modifiers_at_embeddings(self, place: str) -> NamedSpecs[ModifierSpec]:
    return tuple(
      (n, spec) for n, spec in self.modifiers_in(place) if spec.embeds
    )

  def shared_modifiers(self, place: str) -> NamedSpecs[ModifierSpec]:
    return tuple(
      (n, spec) for n, spec in self.modifiers_in(place) if spec.is_shared
    )

  def modifiers_in_layer(
    self, place: str, layer: int
  ) -> NamedSpecs[ModifierSpec]:
    return tuple(
      (n, spec)
      for n, spec in self.modifiers_in(place)
      if not spec.embeds and spec.in_layer(layer)
    )


@dataclasses.dataclass(frozen=True)
class Decode:
  """How translations are searched for."""

  search: DecodingStrategy = choice(
    "jaxsyn.decode.strategies:STRATEGIES",
    "beam",
    "The best by a beam, samples, or a beam of groups that avoid each other.",
  )
  beam: Annotated[int, Range(1, 1000)] = option(
    5, "Hypotheses kept of a sentence; 1: greedy."
  )
  length_penalty: Literal["fairseq", "gnmt"] = option(
    "fairseq", '"fairseq": len**alpha; "gnmt": ((5+len)/6)**alpha.'
  )
  # A length to the 9th overflows.
  alpha: Annotated[float, Range(0, 8)] = option(
    1.0, "Exponent of the length penalty."
  )
  stop: Literal["first", "bound"] = option(
    "first",
    'End when the "first" `beam` hypotheses ended, or when none that goes on '
    'can win: "bound".',
  )
  max_length_factor: Annotated[float, Range(0, 1000)] = option(
    1.5,
    "Longest output of a sentence, EOS included: factor * own source subwords, "
    "rounded up, + offset. The source's EOS and tags count too.",
  )
  max_length_offset: Annotated[int, Range(0, 100_000)] = option(
    10, "See max_length_factor.", unit="subwords"
  )
  checkpoint: Literal["best", "last"] = option(
    "best", 'Parameters to translate with: "best" or "last".'
  )
  sentences: Annotated[int, Range(1, 2**16)] = option(
    64, "Decoded together.", unit="sentences"
  )
  nbest: Annotated[int, Range(1, 1000)] = option(
    1, "Translations of a sentence that are given."
  )


@dataclasses.dataclass(frozen=True)
class Config:
  """All of it."""

  system: Name = option(
    "transformer",
    "Name of a function in configs/systems.py, which sets it: the part after "
    "':' in --config.",
  )
  seed: Seed = option(
    0, "Of parameters, dropout, batch order and random trees."
  )
  data: Data = section(Data)
  prepare: Prepare = section(Prepare, neutral=True)
  batch: Batches = section(Batches)
  model: Model = section(Model)
  parts: Placement = section(Placement)
  losses: NamedSpecs[Loss] = choices(
    "jaxsyn.training.losses:LOSSES",
    "Terms of the objective. Perplexity is of the unsmoothed likelihood.",
    ["nll"],
  )
  optimiser: Optimiser = section(Optimiser)
  train: Train = section(Train)
  decode: Decode = section(Decode, resume=True)


# Removed options that recorded configs may have. They changed no result.
REMOVED = frozenset({"train.writers.mlflow"})


def read_config(
  config: Mapping[str, Any], how: ValidationMode = COMPLETE_MODE
) -> Config:
  """Checks a whole config.

  Args:
    config: a ConfigDict as `get_config` returns it, or a plain nested dict.
    how: how strictly.

  Raises:
    InputError: a field is unknown, missing or of a wrong type; the message
      gives its dotted name.
  """
  if hasattr(config, "to_dict"):
    config = config.to_dict()
  if how.from_older_version:
    for name in REMOVED:
      config = _without(config, name)
  return from_config(Config, config, ROOT, how)


def _without(config: Any, name: str) -> Any:
  """Returns a copy of a nested dict without an entry, named with dots."""
  first, _, rest = name.partition(".")
  if not isinstance(config, Mapping):
    return config
  return {
    key: _without(value, rest) if key == first else value
    for key, value in config.items()
    if rest or key != first
  }


__all__ = ["Config", "InputError", "as_dict", "read_config"]
