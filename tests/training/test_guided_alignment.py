"""The guided alignment loss, its gradients and its options."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import JOINT, batch_of, config_of, parameters, sentence

from jaxsyn.config import as_dict, read_config
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.syntax.maps import Address, Maps, Published
from jaxsyn.training.guided_alignment import MEAN, GuidedAlignment
from jaxsyn.training.step import outputs

PAIRS = [sentence(5, 6, 1), sentence(3, 4, 2), sentence(7, 8, 3)]
BATCH = batch_of(PAIRS, extra=1)


def maps_of(weight_BHTS, layer=0):
  address = Address("cross", layer, "", "weight_BHQM")
  return Maps((Published(address, jnp.asarray(weight_BHTS, jnp.float32)),))


def heads_of(head):
  return slice(None) if head == MEAN else slice(head, head + 1)


@pytest.mark.parametrize("head", [1, MEAN])
def test_loss_and_accuracy_against_loops(head):
  rng = np.random.default_rng(4)
  B, H, T, S = 3, 2, 5, 4
  weight_BHTS = rng.dirichlet(np.ones(S), (B, H, T))
  links_BTS = rng.integers(0, 2, (B, T, S)) * (np.arange(B) < 2)[:, None, None]
  weights, wanted, counts, right = rng.uniform(size=B), 0.0, 0, 0
  for b in range(B):
    for t in range(T):
      linked = [s for s in range(S) if links_BTS[b, t, s]]
      for s in linked:
        p = weight_BHTS[b, heads_of(head), t, s].mean()
        wanted -= weights[b] * np.log(p) / len(linked)
      counts += bool(linked)
      row = weight_BHTS[b, heads_of(head), t].mean(0)
      right += row.argmax() in linked
  batch = {"links_BTS": jnp.asarray(links_BTS, jnp.uint8)}
  batch["weight_B"] = jnp.asarray(weights)
  loss = GuidedAlignment(layer=0, head=head)
  added, count = jax.jit(loss)(None, maps_of(weight_BHTS), batch)
  assert count == counts > 3 and added == pytest.approx(wanted, rel=1e-5)
  assert loss.measure(maps_of(weight_BHTS), batch) == {"links": (right, counts)}


def test_only_linked_subwords_have_a_gradient():
  rng = np.random.default_rng(4)
  weight_BHTS = jnp.asarray(rng.dirichlet(np.ones(4), (2, 3, 5)))
  weight_BHTS = weight_BHTS.at[0, 1, 2].set(jnp.array([0.0, 1, 0, 0]))
  links_BTS = np.zeros((2, 5, 4), np.uint8)
  links_BTS[0, 2, [0, 3]] = links_BTS[0, 4, 1] = 1
  batch = {"links_BTS": jnp.asarray(links_BTS)}

  def value(weight_BHTS):
    loss = GuidedAlignment(layer=0, head=1)
    return loss(None, maps_of(weight_BHTS), batch)[0]

  got = np.asarray(jax.grad(value)(weight_BHTS))
  assert np.isfinite(got).all() and np.isfinite(value(weight_BHTS))
  # A weight of exactly 0 is below the lower bound in the logarithm.
  assert {tuple(at) for at in np.argwhere(got)} == {(0, 1, 4, 1)}
  nothing = {"links_BTS": jnp.zeros((2, 5, 4), jnp.uint8)}
  assert GuidedAlignment(layer=0)(None, maps_of(weight_BHTS), nothing) == (0, 0)


def plan_with(system="guided_alignment", loss=None, **model):
  config = as_dict(config_of(system, **model))
  config["losses"].setdefault("guided_alignment", as_dict(GuidedAlignment()))
  config["losses"]["guided_alignment"] |= loss or {}
  return resolve(read_config(config), JOINT)


RNGS = {"dropout": jax.random.key(0), "syntax": jax.random.key(1)}


def gradient(plan):
  """The loss, its gradient, and the names of the parameters that have one."""
  params = parameters(plan, BATCH)

  def value(params):
    _, maps = outputs(plan.recipe, params, BATCH, train=True, rngs=RNGS)
    loss = plan.recipe.losses["guided_alignment"]
    return loss(None, maps["guided_alignment"], BATCH)[0]

  added, slopes = jax.jit(jax.value_and_grad(value))(params)
  names = {
    jax.tree_util.keystr(path, simple=True, separator="/")
    for path, leaf in jax.tree_util.tree_leaves_with_path(slopes)
    if np.abs(leaf).max() > 0
  }
  return added, slopes, names


def test_one_head_of_the_last_layer_but_one_is_guided():
  _, got, names = gradient(plan_with(decoder_layers=3))
  assert any(name.startswith("encoder_1") for name in names)
  assert any(name.startswith("decoder_0/cross/value") for name in names)
  assert "decoder_1/cross/query/kernel" in names
  assert not any(name.startswith("decoder_2") for name in names)
  assert not any(
    f"decoder_1/{after}" in name
    for name in names
    for after in ("cross/value", "cross/output", "feed_forward")
  )
  by_head = got["decoder_1"]["cross"]["query"]["kernel"]  # D, H, K
  assert np.abs(by_head[:, 0]).max() > 0 and not np.abs(by_head[:, 1]).any()


def test_fused_attention_publishes_the_guided_layer():
  plain, fused = (
    plan_with(decoder_layers=2, attention=kind) for kind in ("einsum", "fused")
  )
  assert fused.spec.published_maps == (("cross", 0),)
  assert not plain.spec.published_maps
  (one, ours, _), (other, theirs, _) = gradient(plain), gradient(fused)
  assert one == pytest.approx(float(other), rel=1e-5)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), ours, theirs
  )


def test_windows_of_a_recurrent_decoder_are_heads():
  for head, is_local in ((1, True), (0, False)):
    value, _, names = gradient(plan_with("gru_double_local", {"head": head}))
    assert np.isfinite(value) and value > 0
    assert any("cross/local" in name for name in names) == is_local


@pytest.mark.parametrize(
  ("system", "loss", "message"),
  [
    ("guided_alignment", {"layer": 1}, r"\.layer: 1 is not one of the 1"),
    ("guided_alignment", {"layer": -3}, r"\.layer: -3 is not one of"),
    ("guided_alignment", {"head": 2}, r"\.head: 2 is not one of the 2 heads"),
    ("gru_global", {"head": 1}, r"\.head: 1 is not one of the 1 heads"),
  ],
)
def test_rejects_invalid_options(system, loss, message):
  with pytest.raises(InputError, match=message):
    plan_with(system, loss)
