"""Guided alignment: against loops, what it teaches, and where it is refused."""

import dataclasses

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
from jaxsyn.training.step import check_maps, outputs

PAIRS = [sentence(5, 6, 1), sentence(3, 4, 2), sentence(7, 8, 3)]
BATCH = batch_of(PAIRS, extra=1)


def maps_of(weight_BHTS, layer=0):
  address = Address("cross", layer, "", "weight_BHQM")
  return Maps((Published(address, jnp.asarray(weight_BHTS, jnp.float32)),))


def test_by_hand():
  # Two heads; of three subwords one has two links, one has one, one has none.
  # Head 0: -(ln .5 + ln .25) / 2 = 1.0397; -ln .1 = 2.3026; over 2.
  weight_BHTS = np.array(
    [[[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [1, 0, 0]], [[1 / 3] * 3] * 3]]
  )
  links_BTS = jnp.array([[[1, 1, 0], [0, 0, 1], [0, 0, 0]]], jnp.uint8)
  batch = {"links_BTS": links_BTS}
  added, count = GuidedAlignment(layer=0)(None, maps_of(weight_BHTS), batch)
  assert count == 2
  assert added == pytest.approx((np.log(2) + np.log(4)) / 2 + np.log(10))
  added, _ = GuidedAlignment(layer=0, head=1)(None, maps_of(weight_BHTS), batch)
  assert added == pytest.approx(2 * np.log(3))
  # The first looks at a linked one, the second does not.
  share = GuidedAlignment(layer=0).measure(maps_of(weight_BHTS), batch)
  assert share == {"links": (1, 2)}


@pytest.mark.parametrize("head", [0, 1, MEAN])
def test_against_loops(head):
  rng = np.random.default_rng(4)
  B, H, T, S = 3, 2, 5, 4
  weight_BHTS = rng.dirichlet(np.ones(S), (B, H, T))
  links_BTS = rng.integers(0, 2, (B, T, S)) * (np.arange(B) < 2)[:, None, None]
  weights, wanted, counts = rng.uniform(size=B), 0.0, 0
  for b in range(B):
    for t in range(T):
      linked = [s for s in range(S) if links_BTS[b, t, s]]
      for s in linked:
        heads = range(H) if head == MEAN else [head]
        p = sum(weight_BHTS[b, h, t, s] for h in heads) / len(heads)
        wanted -= weights[b] * np.log(p) / len(linked)
      counts += bool(linked)
  batch = {"links_BTS": jnp.asarray(links_BTS, jnp.uint8)}
  batch["weight_B"] = jnp.asarray(weights)
  loss = GuidedAlignment(layer=0, head=head)
  added, count = jax.jit(loss)(None, maps_of(weight_BHTS), batch)
  assert count == counts > 3 and added == pytest.approx(wanted, rel=1e-5)


def test_a_gradient_where_there_are_links_alone():
  rng = np.random.default_rng(4)
  weight_BHTS = jnp.asarray(rng.dirichlet(np.ones(4), (2, 3, 5)))
  weight_BHTS = weight_BHTS.at[0, 1, 2].set(jnp.array([0.0, 1, 0, 0]))
  links_BTS = np.zeros((2, 5, 4), np.uint8)
  links_BTS[0, 2, [0, 3]] = links_BTS[0, 4, 1] = 1
  batch = {"links_BTS": jnp.asarray(links_BTS)}

  def value(weight_BHTS):
    return GuidedAlignment(layer=0, head=1)(None, maps_of(weight_BHTS), batch)[
      0
    ]

  got = np.asarray(jax.grad(value)(weight_BHTS))
  assert np.isfinite(got).all() and np.isfinite(value(weight_BHTS))
  # What has weight 0 to the bit is below the least that a logarithm is of.
  assert {tuple(at) for at in np.argwhere(got)} == {(0, 1, 4, 1)}
  nothing = {"links_BTS": jnp.zeros((2, 5, 4), jnp.uint8)}
  assert GuidedAlignment(layer=0)(None, maps_of(weight_BHTS), nothing) == (0, 0)


def plan_with(system="guided_alignment", loss=None, **model):
  config = as_dict(config_of(system, **model))
  config["losses"]["guided_alignment"] = {
    **config["losses"].get("guided_alignment", as_dict(GuidedAlignment())),
    **(loss or {}),
  }
  return resolve(read_config(config), JOINT)


def gradient(plan):
  params = parameters(plan, BATCH)

  def value(params):
    _, maps = outputs(plan.recipe, params, BATCH, train=True, rngs=RNGS)
    loss = plan.recipe.losses["guided_alignment"]
    return loss(None, maps["guided_alignment"], BATCH)[0]

  return jax.jit(jax.value_and_grad(value))(params)


RNGS = {"dropout": jax.random.key(0), "syntax": jax.random.key(1)}


def taught(gradients):
  flat, _ = jax.tree_util.tree_flatten_with_path(gradients)
  return {
    jax.tree_util.keystr(path, simple=True, separator="/")
    for path, leaf in flat
    if np.abs(leaf).max() > 0
  }


def test_it_teaches_one_head_of_the_last_layer_but_one():
  plan = plan_with(decoder_layers=3)
  _, got = gradient(plan)
  names = taught(got)
  assert any(name.startswith("encoder_1") for name in names)
  assert any(name.startswith("decoder_0/cross/value") for name in names)
  assert "decoder_1/cross/query/kernel" in names
  # Nothing of what comes after the weights.
  assert not any(name.startswith("decoder_2") for name in names)
  assert not any(
    f"decoder_1/{after}" in name
    for name in names
    for after in ("cross/value", "cross/output", "feed_forward")
  )
  by_head = got["decoder_1"]["cross"]["query"]["kernel"]  # D, H, K
  assert np.abs(by_head[:, 0]).max() > 0 and not np.abs(by_head[:, 1]).any()
  mean = gradient(plan_with(decoder_layers=3, loss={"head": MEAN, "layer": 1}))
  by_head = mean[1]["decoder_1"]["cross"]["query"]["kernel"]
  assert (np.abs(by_head).max(axis=(0, 2)) > 0).all()


def test_fused_attention_makes_the_weights_of_its_layer():
  plain, fused = (
    plan_with(decoder_layers=2, attention=kind) for kind in ("einsum", "fused")
  )
  assert (
    fused.spec.published_maps == (("cross", 0),)
    and not plain.spec.published_maps
  )
  check_maps(fused.recipe, BATCH)
  _, maps = jax.eval_shape(
    lambda: outputs(fused.recipe, parameters(fused, BATCH), BATCH, train=False)
  )
  assert [p.address for p in maps["guided_alignment"].published] == [
    Address("cross", 0, "", "weight_BHQM")
  ]
  (one, ours), (other, theirs) = gradient(plain), gradient(fused)
  assert one == pytest.approx(float(other), rel=1e-5)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), ours, theirs
  )


def test_rematerialized_layers_publish_maps():
  """config.train.remat: shapes alone, as training checks them first."""
  plan = plan_with()
  for kind in ("attention", "layer"):
    train = dataclasses.replace(plan.config.train, remat=kind)
    config = dataclasses.replace(plan.config, train=train)
    check_maps(resolve(config, JOINT).recipe, BATCH)


def test_windows_of_a_recurrent_decoder_are_its_heads():
  plan = plan_with("gru_double_local", {"head": 1})
  value, got = gradient(plan)
  assert np.isfinite(value) and value > 0
  names = taught(got)
  assert any("cross/local" in name for name in names)
  other, got = gradient(plan_with("gru_double_local", {"head": 0}))
  assert other != value
  assert not any("cross/local" in name for name in taught(got))


@pytest.mark.parametrize(
  ("system", "loss", "message"),
  [
    (
      "guided_alignment",
      {"layer": 3},
      r"\.layer: 3 is not one of the 1 layers",
    ),
    ("guided_alignment", {"layer": -3}, r"\.layer: -3 is not one of"),
    ("guided_alignment", {"head": 2}, r"\.head: 2 is not one of the 2 heads"),
    ("guided_alignment", {"head": -2}, r"head must be from 0 to .*, or -1"),
    ("guided_alignment", {"weight": -1.0}, r"weight must be from 0"),
    ("gru_global", {"head": 1}, r"\.head: 1 is not one of the 1 heads"),
  ],
)
def test_rejects_invalid_options(system, loss, message):
  with pytest.raises(InputError, match=message):
    plan_with(system, loss)


def test_layers_count_from_the_end_of_this_model():
  for layers, wanted in ((1, 0), (2, 0), (4, 2)):
    plan = plan_with(decoder_layers=layers)
    assert plan.recipe.losses["guided_alignment"].layer == wanted
    assert dict(plan.config.losses)["guided_alignment"].layer == -2
