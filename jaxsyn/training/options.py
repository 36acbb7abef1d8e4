"""Options of training, and the sections of a config that training reads."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from jaxsyn.data.options import Batches, DataConfig
from jaxsyn.models.spec import Model
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
from jaxsyn.syntax.placement import Placement
from jaxsyn.training.losses import LOSSES
from jaxsyn.training.objective import Loss
from jaxsyn.training.optimiser import Optimiser


@dataclasses.dataclass(frozen=True)
class Mesh:
  """Devices an axis; -1: the rest."""

  data: Axis = option(-1, "Rows of a batch are split over it.")
  fsdp: Axis = option(1, "Rows and parameters are split over it.")
  tensor: Axis = option(
    1,
    "Attention heads, feed-forward units and the vocabulary are split over it; "
    "it must divide the first two.",
  )


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
    str,
    TextPattern(r"|best|last|\d{1,10}", '"best", "last", a step, or nothing'),
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
    "Limit of the training time, all resumes together; 0: none. Validations "
    "count, except the last one. Waiting for programs to compile does not: the "
    "clock runs again once training goes on.",
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
  # `jaxsyn.config` limits it to the metrics that there are.
  selection: str = option(
    "bleu",
    "What is the best on the validation split: a metric of its translations, "
    'or the "log_likelihood" of a target subword, for which nothing is '
    "translated. A tie goes to the likelihood, and BLEU without a right 4-gram "
    "counts as 0, since a model learns for long before it has any.",
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
    str,
    TextPattern(r"|\d{1,9}-\d{1,9}", 'two steps, as in "100-105", or nothing'),
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
class TrainingConfig(DataConfig):
  """The sections that training reads."""

  seed: Seed = option(
    0, "Of parameters, dropout, batch order and random trees."
  )
  batch: Batches = section(Batches)
  model: Model = section(Model)
  parts: Placement = section(Placement)
  losses: NamedSpecs[Loss] = choices(
    LOSSES,
    "Terms of the objective. Perplexity is of the unsmoothed likelihood.",
    ["nll"],
  )
  optimiser: Optimiser = section(Optimiser)
  train: Train = section(Train)
