"""The cross-entropy loss, and a loss without its maps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsyn import train
from jaxsyn.errors import InputError
from jaxsyn.training.losses import LOSSES, NegativeLogLikelihood
from jaxsyn.training.objective import Loss


def test_sum_count_and_gradient_against_loops():
  """The weight of an example scales its sum, and not the count."""
  rng, count = np.random.default_rng(0), 0
  logits_BTV = jnp.asarray(rng.normal(size=(3, 4, 7)), jnp.float32)
  ids, weight_B = rng.integers(0, 7, (3, 4)), np.array([1.0, 0.25, 2.0])
  target_BTV = np.zeros((3, 4, 7))
  for b, t in np.ndindex(3, 4):
    if ids[b, t] != 0:
      target_BTV[b, t] = weight_B[b] * 0.3 / 7
      target_BTV[b, t, ids[b, t]] += weight_B[b] * 0.7
      count += 1
  batch = {"target_id_BT": jnp.asarray(ids), "weight_B": jnp.asarray(weight_B)}
  loss = NegativeLogLikelihood(smoothing=0.3)
  (result, counted), gradient = jax.value_and_grad(
    lambda logits_BTV: loss(logits_BTV, {}, batch), has_aux=True
  )(logits_BTV)
  p_BTV = np.exp(logits_BTV) / np.exp(logits_BTV).sum(2, keepdims=True)
  assert counted == count < 12
  expected = -(target_BTV * np.log(p_BTV)).sum()
  np.testing.assert_allclose(result, expected, rtol=1e-5)
  expected = target_BTV.sum(2, keepdims=True) * p_BTV - target_BTV
  np.testing.assert_allclose(gradient, expected, atol=1e-6)


@dataclasses.dataclass(frozen=True)
class Spread(Loss):
  """A loss that reads the attention of the encoder."""

  def of_rows(self, logits_BTV, maps, batch):
    result = maps.find(stack="encoder", kind="weight_BHQM")
    sum_B = sum(jnp.sum(one.value**2, axis=(1, 2, 3)) for one in result)
    return sum_B / len(result), jnp.ones_like(sum_B)


def test_rejects_a_loss_without_its_map(tiny, monkeypatch, tmp_path):
  monkeypatch.setitem(LOSSES, "spread", Spread)
  config = tiny("gru_global")
  config.losses.spread = LOSSES.section("spread")
  with pytest.raises(
    InputError,
    match=r"losses\.spread reads the map stack='encoder', kind='weight_BHQM'"
    r".*There are: stack='cross', modifier='global', kind='weight_BTS' of layer",
  ):
    train.run(config, tmp_path / "run")
