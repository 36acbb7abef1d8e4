"""Attention with each part: pads get nothing, rows sum to 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, sentence, told_by_parts

from jaxsyn.models.attention import Attention
from jaxsyn.models.contract import sentence_features
from jaxsyn.syntax import MODIFIERS, AttentionSite, SentenceFeatures
from jaxsyn.syntax.given_weighting import GivenWeighting
from jaxsyn.syntax.maps import COLLECTION, Address, Maps

WHERE = AttentionSite(
  "encoder", 0, heads=2, width=8, dtype="float32", relations=5
)


def weights(parts, view: SentenceFeatures, x_BSD) -> np.ndarray:
  """Attention weights of random parameters (weight_BHQM)."""
  length = jnp.arange(x_BSD.shape[1])
  B, S, _ = x_BSD.shape
  view = view.replace(
    position_Q=length,
    position_M=length,
    inputs=(x_BSD,),
    shared_features=told_by_parts(WHERE.heads, B, S),
  )
  allowed_B1QM = view.real_BS[:, None, None, :]
  attention = Attention(WHERE, modifiers=parts)
  inputs = x_BSD, x_BSD, allowed_B1QM, view

  @jax.jit
  def seen(key):
    params = attention.init(key, *inputs)
    state = attention.apply(params, *inputs, mutable=[COLLECTION])[1]
    return Maps.of(state).at(Address("encoder", 0, "", "weight_BHQM"))

  return np.asarray(seen(jax.random.key(0)))


@pytest.mark.parametrize(
  "name", [n for n, s in MODIFIERS.items() if not s().embeds]
)
def test_pads_get_exactly_nothing(name):
  batch = batch_of([sentence(4, 3, 1), sentence(2, 3, 2)], extra=2)
  view = sentence_features(batch, "source")
  x = np.random.default_rng(0).normal(size=(*view.real_BS.shape, 8))
  weight = weights(
    ((name, MODIFIERS[name]()),), view, jnp.asarray(x, jnp.float32)
  )
  pads_B1QM = np.broadcast_to(~view.real_BS[:, None, None, :], weight.shape)
  assert (weight[pads_B1QM] == 0).all()
  np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-5)


def test_a_matrix_of_zeros_on_pads_does_not_unmask_them():
  # Masked first and multiplied then, a pad would stand at score 0 and get the
  # weight of an ordinary subword: exp(0).
  real_BS = jnp.array([[True, True, True, False, False]])
  matrix = (real_BS[:, :, None] & real_BS[:, None, :]).astype(jnp.float32)
  view = SentenceFeatures(real_BS=real_BS, weighting_BSS=matrix)
  x = jnp.asarray(np.random.default_rng(1).normal(size=(1, 5, 8)), jnp.float32)
  parts = (("given_weighting", GivenWeighting(heads=(0, 1))),)
  weight = weights(parts, view, x)
  assert (weight[..., 3:] == 0).all()
  plain = weights((), view, x)  # the matrix is 1 on real subwords
  np.testing.assert_allclose(weight[:, :, :3], plain[:, :, :3], rtol=1e-6)
