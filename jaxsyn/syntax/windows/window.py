"""Base classes of attention windows: options and Linen module.

In each step, a recurrent decoder compares its state with all annotations of the
source (`jaxsyn.models.gru_layers.Alignment`). A window turns these scores into
weights, and the weighted sum of the annotations is a context vector. A model has
one context for each window in `config.model.gru.windows`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import Choice, ConfigPath
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.modifier import AttentionSite


def softmax_within(score_BNS: Array, allowed_BNS: Array) -> Array:
  """Returns the softmax of scores at allowed positions, and 0 at all others.

  A row without allowed positions (padding) is uniform, not NaN.
  """
  lowest = jnp.finfo(jnp.float32).min
  score_BNS = jnp.where(allowed_BNS, score_BNS, lowest)
  return jax.nn.softmax(score_BNS, axis=-1)


class Window(nn.Module):
  """Base class of attention-window modules, which compute attention weights.

  It must ignore padding and treat sentences independently;
  `tests/test_every_window.py` tests this for the whole table.

  Attributes:
    spec: Options.
    site: Location and sizes; `width` is that of the decoder's state, G.
  """

  spec: Any
  site: AttentionSite

  def make_shared_features(self, features: SentenceFeatures) -> Any:
    """Computes values that the window reuses in all decoding steps.

    They are a pytree.
    """
    return ()

  def sequence(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    """Returns the input sequence of the window's own encoder.

    Only for windows whose spec sets `has_own_annotations`.

    Args:
      x_BSD: Embeddings of the source.
      features: Features of the source.
    """
    raise NotImplementedError

  def start(self, features: SentenceFeatures, beams: int) -> Any:
    """Returns the initial decoding state of the window as a pytree.

    The first axes of its arrays are sentence and hypothesis, because the search
    reorders hypotheses. Shapes and types stay the same in all steps.
    """
    return ()

  def __call__(
    self,
    score_BNS: Array,
    query_BNG: Array,
    shared: Any,
    past: Any,
    features: SentenceFeatures,
  ) -> tuple[Array, Any]:
    """Computes the attention weights of one decoding step.

    Args:
      score_BNS: Alignment scores of N hypotheses per sentence, float32,
        including those of padding.
      query_BNG: State of the decoder.
      shared: Result of `make_shared_features`.
      past: State of the window after the previous step, or of `start`.
      features: Features of the source.

    Returns:
      weight_BNS, float32, 0 on padding, and the new state of the window.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class WindowSpec(Choice):
  """Base class of attention-window options.

  For a sentence without a tree, a window that requires features is replaced: by
  global attention in the first context, by zeros in others.
  """

  window: ClassVar[type[Window]]
  # Features of the source that the window reads, as in `jaxsyn.data.schema`.
  required_features: ClassVar[tuple[str, ...]] = ()
  # Whether it has its own annotations (`Window.sequence`), not the encoder's.
  has_own_annotations: ClassVar[bool] = False

  def make(self, site: AttentionSite) -> Window:
    """Creates the window's Linen module for a location in the model."""
    return self.window(self, site)

  def check(self, at: ConfigPath) -> None:
    """Raises InputError if options of this attention window are incompatible.

    Args:
      at: Location of the options in the config.
    """


class PredictedPosition(nn.Module):
  """Predictor of the source position to attend to, from the decoder's state.

  p = J · σ(vᵀ tanh(W q + b)): Luong et al. 2015, Eq. 9; Chen et al. 2018, Eq. 5.
  J is the number of source subwords with EOS; positions count from 0.
  """

  dtype: str

  @nn.compact
  def __call__(self, query_BNG: Array, real_BS: Array) -> Array:
    """Returns each hypothesis's predicted source position (BN, float32)."""
    hidden_BNG = nn.Dense(
      query_BNG.shape[-1],
      dtype=self.dtype,
      kernel_init=nn.initializers.orthogonal(),
      name="hidden",
    )(query_BNG)
    raw_BN1 = nn.Dense(
      1,
      use_bias=False,
      dtype=jnp.float32,  # in bfloat16, p misses its subword in a long source
      kernel_init=nn.initializers.normal(0.01),
      name="position",
    )(jnp.tanh(hidden_BNG))
    share_BN = jax.nn.sigmoid(raw_BN1[..., 0])
    return share_BN * jnp.sum(real_BS, axis=1)[:, None]


def subword_at(position_BN: Array, real_BS: Array) -> Array:
  """Rounds fractional source positions down to indices of existing subwords."""
  # From 17 on, a sigmoid is 1 in float32, and p = J is beyond the last subword.
  last_B1 = jnp.maximum(jnp.sum(real_BS, axis=1) - 1, 0)[:, None]
  index_BN = jnp.clip(jnp.floor(position_BN), 0, last_B1)
  return index_BN.astype(jnp.int32)
