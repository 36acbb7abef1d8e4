"""Optimizers: optax chains made from config.optimiser."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import optax

from jaxsyn.options import Choice, Registry, choice, option
from jaxsyn.options.bounds import (
  Amount,
  Count,
  Epsilon,
  Positive,
  Rate,
)
from jaxsyn.training import frozen, muon
from jaxsyn.training.schedules import SCHEDULES, Schedule


@dataclasses.dataclass(frozen=True)
class OptimizerSpec(Choice):
  """Base class of the optimizers, with their options."""

  def make(self) -> optax.GradientTransformation:
    """Creates the gradient transformation, without the learning rate."""
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Adam(OptimizerSpec):
  """Adam optimizer (Kingma & Ba 2015, algorithm 1)."""

  beta1: Rate = option(0.9, "Decay of the running mean of gradients.")
  beta2: Rate = option(0.98, "Decay of the running mean of squared gradients.")
  epsilon: Epsilon = option(
    1e-9,
    "Constant that is added to the square root of the running mean of "
    "squared gradients.",
  )

  def make(self) -> optax.GradientTransformation:
    return optax.scale_by_adam(b1=self.beta1, b2=self.beta2, eps=self.epsilon)


@dataclasses.dataclass(frozen=True)
class Adadelta(OptimizerSpec):
  """Adadelta optimizer (Zeiler 2012, algorithm 1).

  The update is Δ = -RMS(previous Δ) / RMS(g) · g for the gradient g, where
  RMS(x) = √(E[x²] + epsilon) and E is a running mean with decay `rho`,
  initialized to 0. A constant learning rate of 1 gives the published optimizer.
  """

  rho: Rate = option(
    0.95, "Decay of the running means of squared gradients and squared updates."
  )
  epsilon: Epsilon = option(
    1e-6, "Constant that is added to both running means; 1e-6 in the paper."
  )

  def make(self) -> optax.GradientTransformation:
    return optax.scale_by_adadelta(rho=self.rho, eps=self.epsilon)


@dataclasses.dataclass(frozen=True)
class Muon(Adam):
  """Muon optimizer (Jordan et al. 2024) for weight matrices, Adam for the rest.

  Newton-Schulz iterations make the singular values of the momentum equal. The
  factor .2 · √(longer side) gives the update the root mean square of Adam's (Liu
  et al. 2025, arXiv:2502.16982, Eq. 4), so one learning rate suits both.
  Embeddings, an untied output projection and biases use Adam, with the options of
  `adam` unless they are set here. The momentum is that of optax, with bias
  correction: in the first steps, updates differ by 6 to 15 % from Jordan's
  reference implementation.
  """

  def make(self) -> optax.GradientTransformation:
    def kinds(params: optax.Params) -> Any:
      return jax.tree_util.tree_map_with_path(
        lambda path, _: "matrix" if muon.is_matrix(path) else "other", params
      )

    transforms = {"matrix": muon.scale_by_muon(), "other": super().make()}
    return optax.partition(transforms, kinds)


OPTIMIZERS: Registry[OptimizerSpec] = Registry(
  "optimiser", {"adam": Adam, "adadelta": Adadelta, "muon": Muon}
)


@dataclasses.dataclass(frozen=True)
class Optimiser:
  """Options of the optimizer, learning rate, clipping and weight decay."""

  name: OptimizerSpec = choice(
    OPTIMIZERS,
    "adam",
    'Optimizer: "adam", "adadelta", or "muon" (for the weight matrices of '
    "layers; Adam for the rest).",
    common=True,
  )
  learning_rate: Positive = option(
    4e-3,
    'Peak learning rate, or the factor of a schedule such as "noam". Good '
    "values depend on the optimizer: for Transformer-Tiny, 4e-3 with adam "
    "(1,000 updates of warm-up) or 1e-2 with muon (100 updates of warm-up); "
    'for adadelta as published, 1.0 with schedule "constant".',
    common=True,
  )
  schedule: Schedule = choice(
    SCHEDULES,
    "inverse_sqrt",
    "Learning-rate schedule.",
  )
  weight_decay: Amount = option(
    0.0,
    "Decoupled weight decay (AdamW) for all parameters, including norms and "
    "biases; 0: off.",
  )
  clip: Amount = option(
    0.0, "Maximum global norm of the gradient; 0: no clipping."
  )
  accumulate: Count = option(
    1,
    "Number of batches per parameter update (gradient accumulation). The "
    "update is exactly the same as for one batch with all of their rows, even "
    "for losses that are not averaged over subwords. A system with n losses "
    "then needs n backward passes per batch, and memory for n additional "
    "gradients.",
    unit="batches",
    common=True,
  )


def make(
  config: Optimiser, width: int, freeze: Sequence[str] = ()
) -> optax.GradientTransformation:
  """Creates the optax chain: clipping, optimizer, weight decay, learning rate.

  Args:
    config: Options of config.optimiser.
    width: Model width, which some schedules use.
    freeze: Patterns of frozen parameters.
  """
  chain = [config.name.make()]
  if config.clip > 0:
    chain.insert(0, optax.clip_by_global_norm(config.clip))
  if config.weight_decay > 0:
    chain.append(optax.add_decayed_weights(config.weight_decay))
  rate = config.schedule.make(config.learning_rate, width)
  chain.append(optax.scale_by_learning_rate(rate))
  return frozen.without_frozen(freeze, optax.chain(*chain))
