"""Every option of jaxsyn: its default, bounds, unit and meaning.

The only place where an option is said, with `jaxsyn.data.options`; those of
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
  CONFIG,
  WHOLE,
  Named,
  any_of,
  as_dict,
  from_config,
  one_of,
  option,
  section,
)
from jaxsyn.options.bounds import (
  Amount,
  Axis,
  Count,
  CountOrOff,
  Name,
  NameOf,
  Positive,
  Range,
  Rate,
  Seed,
  Text,
  Units,
)

if TYPE_CHECKING:  # rooms above: an option names its table by address
  from jaxsyn.decode.spec import SearchSpec
  from jaxsyn.models.spec import Family
  from jaxsyn.syntax import Spec
  from jaxsyn.training.objective import Loss
  from jaxsyn.training.optimiser import Rule
  from jaxsyn.training.schedules import Schedule

PARTS = "jaxsyn.syntax:PARTS"


@dataclasses.dataclass(frozen=True)
class Model:
  """The encoder-decoder: what all families have, and a section for each."""

  family: Family = one_of(
    "jaxsyn.models.families:FAMILIES", "transformer", "A system sets it."
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
class Places:
  """Parts, by the place where they change attention."""

  encoder: Named[Spec] = any_of(PARTS, "Parts of the encoder.")
  decoder: Named[Spec] = any_of(PARTS, "Parts of the decoder's self-attention.")
  cross: Named[Spec] = any_of(PARTS, "Parts of the cross-attention.")

  def at(self, place: str) -> Named[Spec]:
    """(name, spec) of the parts at a place, in table order."""
    return getattr(self, place)

  def at_embeddings(self, place: str) -> Named[Spec]:
    return tuple((n, spec) for n, spec in self.at(place) if spec.embeds)

  def at_layer(self, place: str, layer: int) -> Named[Spec]:
    return tuple(
      (n, spec)
      for n, spec in self.at(place)
      if not spec.embeds and spec.in_layer(layer)
    )


@dataclasses.dataclass(frozen=True)
class Optimiser:
  """How parameters are updated: rule, learning rate, clipping, decay."""

  name: Rule = one_of(
    "jaxsyn.training.optimiser:RULES", "adam", "The update rule."
  )
  learning_rate: Positive = option(
    4e-3,
    "Its peak, or what the schedule multiplies. Each rule wants its own: of "
    "Transformer-Tiny adam 4e-3 after 1,000 updates of warm-up, muon 1e-2 after "
    '100; adadelta as published has 1.0 and "constant".',
  )
  schedule: Schedule = one_of(
    "jaxsyn.training.schedules:SCHEDULES",
    "inverse_sqrt",
    "Of the learning rate.",
  )
  weight_decay: Amount = option(0.0, "Decoupled (AdamW) if above 0.")
  clip: Amount = option(0.0, "Largest global gradient norm; 0: no clipping.")
  accumulate: Count = option(
    1,
    "Batches a parameter update; exactly one batch of all their rows, also for "
    "losses that count other things than subwords. A system of n losses needs "
    "n backward passes a batch for that, and memory for n gradients more.",
    unit="batches",
  )


@dataclasses.dataclass(frozen=True)
class Mesh:
  """Devices an axis; -1: the rest."""

  data: Axis = option(-1, "Rows of a batch are split over it.")
  fsdp: Axis = option(1, "Rows and parameters are split over it.")
  tensor: Axis = option(1, "Heads and wide layers are split over it.")


@dataclasses.dataclass(frozen=True)
class Writers:
  """Where figures go beside log.jsonl, and what else goes there.

  Who writes: jaxsyn.training.writers.
  """

  tensorboard: bool = option(True, "Files in the run's folder.")
  wandb: str = option(
    "",
    "Project of Weights & Biases; empty: none. With WANDB_MODE=offline it "
    "needs no network.",
  )
  mlflow: str = option(
    "", "Experiment of MLflow; empty: none. MLFLOW_TRACKING_URI says where."
  )
  samples: CountOrOff = option(
    4,
    "Of the validation split, with their translations, at each validation.",
    unit="sentences",
  )
  pictures: CountOrOff = option(
    0,
    "Of the validation split, whose attention is drawn at each validation; "
    "some tenths of a second each.",
    unit="sentences",
  )


@dataclasses.dataclass(frozen=True)
class Start:
  """Another run, whose parameters this one begins with: docs/fine_tuning.md."""

  run: str = option(
    "", "Its folder, here or on a store; empty: all parameters are drawn."
  )
  checkpoint: Annotated[
    str, Text(r"|best|last|\d{1,10}", '"best", "last", a step, or nothing')
  ] = option("", "Which; empty: what `translate` would take of that run.")
  unknown: Literal["drawn", "mean"] = option(
    "drawn",
    "Vectors of subwords and relations that it does not have: as they are "
    '"drawn", or the "mean" of those it has.',
  )


@dataclasses.dataclass(frozen=True)
class Train:
  """The run of the training."""

  steps: Count = option(20_000, "Until the end.", unit="batches", resume=True)
  minutes: Annotated[float, Range(0, 1_000_000_000)] = option(
    0.0,
    "Stop after as much training time, resumes added, compiling and the last "
    "validation not counted; 0: off.",
    unit="minutes",
    resume=True,
  )
  evaluate_every: Count = option(
    500,
    "Between validations: losses and `selection`.",
    unit="steps",
    resume=True,
  )
  save_every: Count = option(
    500, "Between checkpoints.", unit="steps", resume=True
  )
  keep: Count = option(3, "Checkpoints kept beside the best one.", resume=True)
  log_every: Count = option(
    50, "Between log lines.", unit="steps", neutral=True
  )
  patience: CountOrOff = option(
    0,
    "Evaluations without a better one by `selection`; 0: off.",
    resume=True,
  )
  # How it is validated may not change: scores would not compare with the best
  # so far.
  selection: Annotated[str, NameOf("jaxsyn.scoring.selection:SELECTIONS")] = (
    option(
      "bleu",
      "What is the best on the validation split: a metric of its translations, "
      'or the "log_likelihood" of a target subword, for which nothing is '
      "translated. A tie goes to the likelihood, and BLEU without a right 4-gram "
      "counts as 0, since a model learns for long before it has any.",
    )
  )
  tokenizer: str = option(
    "",
    'sacreBLEU\'s, for validation BLEU and RIBES: "13a", "zh", '
    '"ja-mecab", "char", ... Empty: what fits data.target_language, as in '
    "jaxsyn.scoring.tokenizers.",
  )
  validation_beam: Annotated[int, Range(1, 1000)] = option(
    1, "Beam of the validation's translations; 1: greedy."
  )
  validation_sentences: CountOrOff = option(
    0, "Of the split, to be translated; 0: all.", unit="sentences"
  )
  ema: Rate = option(
    0.0,
    "Decay d of an average of the parameters, used to evaluate; 0: off. Those "
    "after update i of n weigh dⁿ⁻ⁱ; the initial ones nothing.",
  )
  average: Count = option(
    1,
    "Translate with the mean of the last N kept checkpoints.",
    resume=True,
  )
  logits: Annotated[int, Range(1, 2**40)] = option(
    2**28,
    "Made at once on a device; of a larger batch, a loss that adds up over "
    "target positions takes some positions at a time.",
    unit="logits",
    resume=True,
  )
  parallelism: Literal["jit", "pmap"] = option(
    "jit", '"jit" (NamedSharding) or "pmap".', resume=True
  )
  mesh: Mesh = section(Mesh, resume=True)
  remat: Literal["none", "attention", "layer"] = option(
    "none",
    "What a Transformer computes again in the backward pass instead of keeping "
    'it: "attention", all between its projections; "layer", each whole layer. '
    "It saves memory and changes no number; what it costs: docs/speed.md.",
    resume=True,
  )
  start: Start = section(Start)
  freeze: tuple[str, ...] = option(
    (),
    "Parameters that stay as they began, by patterns of their names, in which * "
    "is anything: ('encoder_*', '*table/*'). No update, weight decay or average "
    "moves them, and the optimiser keeps nothing for them.",
  )
  profile: Annotated[
    str, Text(r"|\d{1,9}-\d{1,9}", 'two steps, as in "100-105", or nothing')
  ] = option(
    "",
    'Steps "FIRST-LAST" of which a profile is written for TensorBoard\'s profile '
    "plugin; empty: none.",
    neutral=True,
  )
  prefetch: Annotated[int, Range(0, 10_000)] = option(
    2, "Made ahead of the device.", unit="batches", neutral=True
  )
  writers: Writers = section(Writers, neutral=True)


@dataclasses.dataclass(frozen=True)
class Decode:
  """How translations are searched for."""

  search: SearchSpec = one_of(
    "jaxsyn.decode.searches:SEARCHES",
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
  parts: Places = section(Places)
  losses: Named[Loss] = any_of(
    "jaxsyn.training.losses:LOSSES",
    "Terms of the objective. Perplexity is of the unsmoothed likelihood.",
    ["nll"],
  )
  optimiser: Optimiser = section(Optimiser)
  train: Train = section(Train)
  decode: Decode = section(Decode, resume=True)


# Options that have moved: dotted name -> where they are now.
MOVED = {
  **{
    f"model.{name}": f"model.transformer.{name}"
    for name in (
      *("encoder_layers", "decoder_layers", "feed_forward", "heads", "norm"),
      *("activation", "positions", "dropout", "attention_dropout"),
      "activation_dropout",
    )
  },
  **{f"optimiser.{name}": f"optimiser.adam.{name}" for name in (
    "beta1", "beta2", "epsilon")},
  "optimiser.rho": "optimiser.adadelta.rho",
  **{f"optimiser.{name}": f"optimiser.inverse_sqrt.{name}" for name in (
    "warmup", "warmup_start", "minimum")},
  "contexts": "model.gru.windows",
  "prepare.shards": "prepare.shard_mib",
  "prepare.parse.source_model": "prepare.parse.source.udpipe.model",
  "prepare.parse.target_model": "prepare.parse.target.udpipe.model",
  "prepare.parse.beam": "prepare.parse.source.udpipe.beam",
}  # fmt: skip


def moved(name: str) -> str:
  """What to say of an option that stood elsewhere; "" of any other.

  Args:
    name: dotted, without "config.".
  """
  for old, new in MOVED.items():
    if f"{name}.".startswith(f"{old}."):
      return f"config.{old} is now config.{new}."
  return ""


def read_config(config: Mapping[str, Any]) -> Config:
  """Checks a whole config.

  Args:
    config: a ConfigDict as `get_config` returns it, or a plain nested dict.

  Raises:
    InputError: a field is unknown, missing or of a wrong type; the message
      gives its dotted name.
  """
  if hasattr(config, "to_dict"):
    config = config.to_dict()
  for old in MOVED:
    if _holds(config, old):
      raise InputError(moved(old))
  return from_config(Config, config, CONFIG, WHOLE)


def _holds(config: Any, name: str) -> bool:
  """Whether a nested dict has a dotted name."""
  for one in name.split("."):
    if not isinstance(config, Mapping) or one not in config:
      return False
    config = config[one]
  return True


__all__ = ["Config", "InputError", "as_dict", "moved", "read_config"]
