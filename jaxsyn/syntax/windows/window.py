"""What every window is: from the scores of a step and facts to weights.

At each step a recurrent decoder compares its state with all annotations of the
source (`jaxsyn.models.gru_layers.Alignment`). A window turns those scores into
weights; the annotations summed under these weights are a context. The table of
windows is `jaxsyn.syntax.WINDOWS`; what `config.contexts` names are the
contexts of a model, so two windows there are a double context.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import Choice, ConfigPath
from jaxsyn.syntax.modifier import AttentionSite, SentenceFeatures


def softmax_within(score_BNS: Array, allowed_BNS: Array) -> Array:
  """Softmax over the positions allowed, exactly 0 elsewhere; float32.

  A row in which nothing is allowed (of padding) is even, never NaN.
  """
  lowest = jnp.finfo(jnp.float32).min
  score_BNS = jnp.where(allowed_BNS, score_BNS, lowest)
  return jax.nn.softmax(score_BNS, axis=-1)


class Window(nn.Module):
  """A window in one context of a decoder. Set-up in `setup`.

  It must leave out pads, and read no sentence but its own;
  `tests/test_every_window` holds every window of the table to this.

  Attributes:
    spec: its options.
    where: place "cross"; `width` is that of the decoder's state, G.
  """

  spec: Any
  site: AttentionSite

  def features(self, view: SentenceFeatures) -> Any:
    """What it reads of a sentence, made once for all steps: any pytree."""
    return ()

  def sequence(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    """What its own annotations are made from: BSD, of any width.

    Only of a window whose spec sets `has_own_annotations`.

    Args:
      x_BSD: embeddings of the source.
      view: facts about it.
    """
    raise NotImplementedError

  def start(self, view: SentenceFeatures, beams: int) -> Any:
    """What it remembers from step to step, before the first: any pytree.

    Its arrays have the axes sentence, hypothesis, and any more; shapes and
    types stay the same from step to step, and the search reorders hypotheses.
    """
    return ()

  def __call__(
    self,
    score_BNS: Array,
    query_BNG: Array,
    facts: Any,
    past: Any,
    view: SentenceFeatures,
  ) -> tuple[Array, Any]:
    """The weights of one step.

    Args:
      score_BNS: alignment scores of N hypotheses a sentence, float32; of pads
        too.
      query_BNG: the state that asked.
      facts: of `facts`.
      past: of `start`, or the step before.
      view: facts about the source; in training what is meant for translating
        alone is off.

    Returns: weight_BNS, float32, 0 on pads; and what it remembers.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class WindowSpec(Choice):
  """What a config may say of a window. Subclasses add options and checks.

  A window that needs facts of the tree is passed over for a sentence without
  one: a first context is then global attention, a further one nothing.
  """

  window: ClassVar[type[Window]]
  # Facts of the source it reads, as `jaxsyn.data.schema` names them after the
  # side: "head", "tree_distance", ... What `SentenceFeatures` derives needs its
  # origins.
  required_features: ClassVar[tuple[str, ...]] = ()
  # Sums up annotations of its own (`Window.sequence`), not the encoder's.
  has_own_annotations: ClassVar[bool] = False

  def make(self, site: AttentionSite) -> Window:
    """The module of this window."""
    return self.window(self, site)

  def check(self, at: ConfigPath) -> None:
    """Raises InputError where options do not fit each other.

    Args:
      at: where in the config they stand.
    """


class PredictedPosition(nn.Module):
  """The source position that a step is about, predicted from its state.

  p = J · σ(vᵀ tanh(W q + b)): Luong et al. 2015, Eq. 9; Chen et al. 2018,
  Eq. 5. J counts the source's subwords, EOS included, so p is in
  (0, J), positions counting from 0.
  """

  dtype: str

  @nn.compact
  def __call__(self, query_BNG: Array, real_BS: Array) -> Array:
    """p_BN, float32."""
    hidden_BNG = nn.Dense(
      query_BNG.shape[-1],
      dtype=self.dtype,
      kernel_init=nn.initializers.orthogonal(),
      name="hidden",
    )(query_BNG)
    raw_BN1 = nn.Dense(
      1,
      use_bias=False,
      dtype=jnp.float32,  # in bfloat16, p of a long source misses its subword
      kernel_init=nn.initializers.normal(0.01),
      name="position",
    )(jnp.tanh(hidden_BNG))
    share_BN = jax.nn.sigmoid(raw_BN1[..., 0])
    return share_BN * jnp.sum(real_BS, axis=1)[:, None]


def row_of(position_BN: Array, real_BS: Array) -> Array:
  """The subword a real position falls on, within the sentence; int32 BN."""
  # A sigmoid from 17 on is 1 in float32, and p = J one row beyond the last.
  last_B1 = jnp.maximum(jnp.sum(real_BS, axis=1) - 1, 0)[:, None]
  row_BN = jnp.clip(jnp.floor(position_BN), 0, last_B1)
  return row_BN.astype(jnp.int32)
