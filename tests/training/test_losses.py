"""The cross-entropy loss, and a loss without its maps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsyn import train
from jaxsyn.errors import InputError
from jaxsyn.training.losses import LOSSES, NegativeLogLikelihood, cross_entropy
from jaxsyn.training.objective import Loss


def test_smoothed_loss_against_loops():
  rng = np.random.default_rng(0)
  logits = rng.normal(size=(3, 4, 7)).astype(np.float32)
  ids = rng.integers(0, 7, (3, 4))
  expected, index = 0.0, 0
  for b in range(3):
    for t in range(4):
      if ids[b, t] == 0:
        continue
      p = np.exp(logits[b, t]) / np.exp(logits[b, t]).sum()
      smooth = np.full(7, 0.1 / 7)
      smooth[ids[b, t]] += 0.9
      expected -= (smooth * np.log(p)).sum()
      index += 1
  batch = {"target_id_BT": jnp.asarray(ids)}
  total, count = NegativeLogLikelihood()(jnp.asarray(logits), {}, batch)
  np.testing.assert_allclose(total, expected, rtol=1e-5)
  assert count == index


def test_gradient_of_the_cross_entropy_equals_automatic_differentiation():
  smoothing = 0.3
  rng = np.random.default_rng(2)
  logits_BTV = jnp.asarray(rng.normal(size=(2, 3, 5)), jnp.float32)
  id_BT = jnp.asarray(rng.integers(0, 5, (2, 3)))
  scale_BT = jnp.asarray(rng.normal(size=(2, 3)), jnp.float32)

  def plain(logits_BTV):
    log_p_BTV = jax.nn.log_softmax(logits_BTV)
    gold_BT = jnp.take_along_axis(log_p_BTV, id_BT[..., None], 2)[..., 0]
    loss_BT = (1 - smoothing) * gold_BT + smoothing * log_p_BTV.mean(2)
    return -jnp.sum(scale_BT * loss_BT)

  def ours(logits_BTV):
    return jnp.sum(scale_BT * cross_entropy(logits_BTV, id_BT, smoothing))

  np.testing.assert_allclose(
    jax.grad(ours)(logits_BTV), jax.grad(plain)(logits_BTV), atol=1e-6
  )


def test_the_weight_of_an_example_scales_the_sum_and_not_the_count():
  # With a count of 2.25, the weight would cancel in a batch of such pairs.
  logits_BTV = jnp.array(np.random.default_rng(1).normal(size=(2, 2, 5)))
  batch = {"target_id_BT": jnp.array([[4, 3], [3, 0]])}
  loss = NegativeLogLikelihood(smoothing=0.0)
  log_p_BTV = np.asarray(jax.nn.log_softmax(logits_BTV))
  batch["weight_B"] = jnp.array([1.0, 0.25])
  total, count = loss(logits_BTV, {}, batch)
  assert count == 3
  by_hand = -(
    log_p_BTV[0, 0, 4] + log_p_BTV[0, 1, 3] + 0.25 * log_p_BTV[1, 0, 3]
  )
  assert total == pytest.approx(float(by_hand))


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
