"""Options of training, and the sections of a config that training reads."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from jaxsyn.data.options import Batches, DataConfig
from jaxsyn.models.spec import Model, Placement
from jaxsyn.options import NamedSpecs, choices, option, section
from jaxsyn.options.bounds import (
  Axis,
  Count,
  CountOrOff,
  Range,
  Rate,
  Seed,
  TextPattern,
)
from jaxsyn.training.losses import LOSSES
from jaxsyn.training.objective import Loss
from jaxsyn.training.optimizers import Optimiser


@dataclasses.dataclass(frozen=True)
class Mesh:
  """Sizes of the mesh axes; the remaining devices form the data-parallel axis."""

  fsdp: Axis = option(
    1,
    "Number of devices that batch rows and parameters are split over; -1: all "
    "remaining devices.",
  )
  tensor: Axis = option(
    1,
    "Number of devices that attention heads, feed-forward units and the "
    "vocabulary are split over; it must divide the numbers of heads and of "
    "units. -1: all remaining devices.",
  )


@dataclasses.dataclass(frozen=True)
class Writers:
  """Options of TensorBoard and Weights & Biases logs."""

  tensorboard: bool = option(
    True, "Whether to write TensorBoard files into the run directory."
  )
  wandb: str = option(
    "",
    "Weights & Biases project that the run is logged to; empty: none. With "
    "WANDB_MODE=offline no network is needed.",
  )
  samples: CountOrOff = option(
    4,
    "Number of validation sentences that are logged with their translations "
    "at each validation.",
    unit="sentences",
  )
  pictures: CountOrOff = option(
    0,
    "Number of validation sentences whose attention is plotted at each "
    "validation; each plot takes a few tenths of a second.",
    unit="sentences",
  )


@dataclasses.dataclass(frozen=True)
class Start:
  """Options for initializing from another run; see docs/fine_tuning.md."""

  run: str = option(
    "",
    "Run directory, local or on an object store, whose parameters "
    "initialize this run; empty: random initialization.",
    common=True,
  )
  checkpoint: Annotated[
    str,
    TextPattern(r"|best|last|\d{1,10}", '"best", "last", a step, or nothing'),
  ] = option(
    "",
    "Checkpoint of the run in `run`; empty: the one that is used for "
    "translation.",
  )
  unknown: Literal["drawn", "mean"] = option(
    "drawn",
    "Initial embeddings of subwords and relations that the other run does not "
    'have: "drawn", random values; "mean", the mean of all embeddings of the '
    "other run.",
  )


@dataclasses.dataclass(frozen=True)
class Train:
  """Options of training steps, validation, checkpoints and logs."""

  steps: Count = option(
    20_000,
    "Number of training steps.",
    unit="batches",
    resume=True,
    common=True,
  )
  minutes: Annotated[float, Range(0, 1_000_000_000)] = option(
    0.0,
    "Limit on a run's total training time, including the time before it was "
    "resumed; 0: no limit. The time includes validation, except for the last "
    "one, but not compilation.",
    unit="minutes",
    resume=True,
    common=True,
  )
  evaluate_every: Count = option(
    500,
    "Steps between validations, which compute losses and the `selection` "
    "metric.",
    unit="steps",
    resume=True,
    common=True,
  )
  save_every: Count = option(
    500, "Steps between checkpoints.", unit="steps", resume=True
  )
  keep: Count = option(
    3,
    "Number of checkpoints kept in addition to the best one. Older ones are "
    "removed when the next save starts, so one more may exist until then.",
    resume=True,
  )
  log_every: Count = option(
    50, "Steps between log lines.", unit="steps", neutral=True
  )
  patience: CountOrOff = option(
    0,
    "Number of validations without improvement of `selection` after which "
    "training stops; 0: no early stopping.",
    resume=True,
    common=True,
  )
  # How it is validated may not change: scores would not compare with the best
  # so far.
  # `jaxsyn.config` limits it to the metrics that there are.
  selection: str = option(
    "bleu",
    "Metric that selects the best checkpoint: a translation metric, or "
    '"log_likelihood" (no decoding). Likelihood breaks ties; BLEU without a '
    "correct 4-gram counts as 0, so that likelihood decides early in training.",
    common=True,
  )
  tokenizer: str = option(
    "",
    'sacreBLEU tokenizer for validation BLEU and RIBES: "13a", "zh", '
    '"ja-mecab", "char", ...; empty: chosen according to '
    "config.data.target_language (jaxsyn.scoring.tokenizers).",
  )
  validation_beam: Annotated[int, Range(1, 1000)] = option(
    1, "Beam size in validation; 1: greedy decoding."
  )
  validation_sentences: CountOrOff = option(
    0,
    "Number of validation sentences that are translated; 0: all.",
    unit="sentences",
  )
  ema: Rate = option(
    0.0,
    "Decay d of an exponential moving average of the parameters, which is "
    "used for evaluation; 0: off. After n updates, the weight of the "
    "parameters after update i is proportional to dⁿ⁻ⁱ; the initial "
    "parameters have no weight.",
    common=True,
  )
  average: Count = option(
    1,
    "Number of most recent checkpoints whose parameters are averaged for "
    "translation.",
    resume=True,
  )
  logits: Annotated[int, Range(1, 2**40)] = option(
    2**28,
    "Maximum number of logits computed at once on a device. For larger "
    "batches, losses that are sums over target positions are computed for "
    "some of the positions at a time.",
    unit="logits",
    resume=True,
  )
  parallelism: Literal["jit", "pmap"] = option(
    "jit", 'Parallel execution: "jit" (NamedSharding) or "pmap".', resume=True
  )
  mesh: Mesh = section(Mesh, resume=True)
  remat: Literal["none", "attention", "layer"] = option(
    "none",
    "Transformer activations that are recomputed in the backward pass: "
    '"attention" (all activations between the attention projections), "layer" '
    '(each complete layer) or "none". Recomputation saves memory and does not '
    "change results; see docs/speed.md for its cost.",
    resume=True,
  )
  start: Start = section(Start)
  freeze: tuple[str, ...] = option(
    (),
    "Name patterns of the parameters to freeze, in which * matches any text: "
    "('encoder_*', '*table/*'). Frozen parameters are not updated, decayed or "
    "averaged, and have no optimizer state.",
  )
  profile: Annotated[
    str,
    TextPattern(r"|\d{1,9}-\d{1,9}", 'two steps, as in "100-105", or nothing'),
  ] = option(
    "",
    'Range "FIRST-LAST" of steps that are profiled for TensorBoard; empty: '
    "none.",
    neutral=True,
  )
  writers: Writers = section(Writers, neutral=True)


@dataclasses.dataclass(frozen=True)
class TrainingConfig(DataConfig):
  """Config sections that training reads."""

  seed: Seed = option(
    0,
    "Seed of initial parameters, dropout, batch order and random trees.",
    common=True,
  )
  batch: Batches = section(Batches)
  model: Model = section(Model)
  parts: Placement = section(Placement)
  losses: NamedSpecs[Loss] = choices(
    LOSSES,
    "Terms of the training objective. Perplexity is always computed from "
    "the likelihood without smoothing.",
    ["nll"],
  )
  optimiser: Optimiser = section(Optimiser)
  train: Train = section(Train)
