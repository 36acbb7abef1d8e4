"""Attention with each modifier: padding, fused attention, rematerialization."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  JOINT,
  batch_of,
  config_of,
  plan_of,
  random_shared_features,
  sentence,
)

from jaxsyn.errors import InputError
from jaxsyn.models import attention as attention_module
from jaxsyn.models.attention import Attention
from jaxsyn.models.contract import sentence_features
from jaxsyn.plan import resolve
from jaxsyn.syntax import MODIFIERS, AttentionSite, SentenceFeatures
from jaxsyn.syntax.given_weighting import GivenWeighting
from jaxsyn.syntax.maps import COLLECTION, Address, Maps
from jaxsyn.training.flops import product_flops
from jaxsyn.training.programs import model_flops
from jaxsyn.training.step import first_state, train_step

PAIRS = [sentence(5, 6, 1), sentence(7, 8, 3), sentence(0, 2, 5)]
BATCH = batch_of(PAIRS)
FEATURES = sentence_features(batch_of(PAIRS[:2], extra=2), "source")
B, S = FEATURES.real_BS.shape
WIDTH = 16
SITE = AttentionSite(
  "encoder", 0, heads=2, width=WIDTH, dtype="float32", relations=5
)


def weights(modifiers, features: SentenceFeatures, x_BSD) -> np.ndarray:
  """Attention weights with random parameters (weight_BHQM)."""
  rows, size, _ = x_BSD.shape
  features = features.with_positions().replace(
    inputs=(x_BSD,),
    shared_features=random_shared_features(SITE.heads, rows, size),
  )
  attention = Attention(SITE, modifiers=modifiers)
  inputs = x_BSD, x_BSD, features.real_BS[:, None, None, :], features

  @jax.jit
  def run(key):
    params = attention.init(key, *inputs)
    state = attention.apply(params, *inputs, mutable=[COLLECTION])[1]
    return Maps.of(state).at(Address("encoder", 0, "", "weight_BHQM"))

  return np.asarray(run(jax.random.key(0)))


@pytest.mark.parametrize(
  "name", [n for n, cls in MODIFIERS.items() if not cls().at_embeddings]
)
def test_padding_gets_no_weight(name):
  x = np.random.default_rng(0).normal(size=(B, S, WIDTH))
  modifiers = ((name, MODIFIERS[name]()),)
  weight = weights(modifiers, FEATURES, jnp.asarray(x, jnp.float32))
  is_real = np.broadcast_to(FEATURES.real_BS[:, None, None], weight.shape)
  assert (weight[~is_real] == 0).all()
  np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-5)


def test_zero_weights_do_not_unmask_padding():
  # If the product came after the mask, padding would have score 0.
  real_BS = jnp.array([[True, True, True, False, False]])
  matrix = (real_BS[:, :, None] & real_BS[:, None, :]).astype(jnp.float32)
  features = SentenceFeatures(real_BS=real_BS, weighting_BSS=matrix)
  x = np.random.default_rng(1).normal(size=(1, 5, WIDTH))
  x = jnp.asarray(x, jnp.float32)
  modifiers = (("given_weighting", GivenWeighting(heads=(0, 1))),)
  weight, plain = weights(modifiers, features, x), weights((), features, x)
  assert (weight[..., 3:] == 0).all()
  np.testing.assert_allclose(weight[:, :, :3], plain[:, :, :3], rtol=1e-6)


ADDITIVE = (
  ("parent_scaled", MODIFIERS["parent_scaled"](apply="add")),
  ("localness", MODIFIERS["localness"]()),
)


def output_and_gradients(fused, dtype, modifiers, stack):
  site = dataclasses.replace(SITE, stack=stack, dtype=dtype)
  attention = Attention(site, modifiers=modifiers, fused=fused)
  rng = np.random.default_rng(0)
  x_BSD, memory_BMD = (
    jnp.asarray(rng.normal(size=(B, S, WIDTH)), dtype) for _ in range(2)
  )
  allowed_B1QM = FEATURES.real_BS[:, None, None, :]
  if stack == "decoder":
    allowed_B1QM = allowed_B1QM & np.tril(np.ones((S, S), bool))
  if stack == "cross":
    x_BSD = x_BSD[:, :3]  # fewer queries than keys
  features = FEATURES.replace(
    position_Q=jnp.arange(x_BSD.shape[1]), position_M=jnp.arange(S)
  )
  inputs = x_BSD, memory_BMD, allowed_B1QM, features

  @jax.jit
  def run(key):
    def loss(params):
      out_BQD = attention.apply(params, *inputs).astype(jnp.float32)
      return jnp.sum(jnp.sin(out_BQD)), out_BQD

    return jax.grad(loss, has_aux=True)(attention.init(key, *inputs))

  return jax.tree.leaves(run(jax.random.key(0)))


@pytest.mark.parametrize(
  ("stack", "modifiers", "dtype"),
  [
    ("encoder", ADDITIVE, "float32"),
    ("encoder", ADDITIVE, "bfloat16"),
    ("decoder", (), "float32"),
    ("cross", (), "bfloat16"),
  ],
)
def test_fused_attention_equals_einsum(stack, modifiers, dtype):
  expected, results = (
    output_and_gradients(fused, dtype, modifiers, stack)
    for fused in (False, True)
  )
  # A step of bfloat16 is 2⁻⁸; one rounds weights, the other sums of gradients.
  tolerance = 1e-6 if dtype == "float32" else 2 * 2.0**-8
  # Relative to the largest of all, as the gradient of a key's bias is 0.
  largest = max(float(np.abs(x).max()) for x in expected)
  for one, other in zip(results, expected, strict=True):
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * largest)


def test_fused_bias_is_float32_without_the_kernel(monkeypatch):
  dtypes, fused = [], jax.nn.dot_product_attention

  def record(*arguments, bias, **options):
    dtypes.append(bias.dtype)
    return fused(*arguments, bias=bias, **options)

  monkeypatch.setattr(jax.nn, "dot_product_attention", record)
  output_and_gradients(True, "bfloat16", ADDITIVE, "encoder")
  assert dtypes and set(dtypes) == {jnp.dtype("float32")}


@pytest.mark.parametrize(
  ("system", "options", "message"),
  [
    ("pascal", {}, r"config\.parts\.encoder\.parent_scaled: parent_scaled nee"),
    ("relative", {}, r"config\.parts\.encoder\.relative: relative needs"),
    (
      "transformer",
      {"attention_dropout": 0.1},
      r"config\.model\.transformer\.attention_dropout=0\.1: config\.model\.att",
    ),
    ("gru_global", {}, r"config\.model\.attention='fused' is not for family"),
  ],
)
def test_fused_attention_rejects_unsupported_models(system, options, message):
  with pytest.raises(InputError, match=f"^{message}"):
    plan_of(system, attention="fused", **options)
  plan_of("pascal_additive", attention="fused")


def test_logs_once_why_the_kernel_is_not_used(caplog):
  attention_module._log_fallback.cache_clear()
  for _ in range(2):  # two traces
    output_and_gradients(True, "bfloat16", (), "encoder")
  (record,) = caplog.records
  assert record.levelname == "WARNING"
  assert "attention=fused does not use cuDNN's kernel: " in record.message
  assert "not compiled for a GPU" in record.message


def recipe_of(remat, system="sync_attention+pascal_ignoring", **model):
  config = config_of(system, **model)
  train = dataclasses.replace(config.train, remat=remat)
  return resolve(dataclasses.replace(config, train=train), JOINT).recipe


def first_step(remat):
  """Parameters before and after the first step with metrics, and its jaxpr."""
  rates = {"dropout": 0.3, "attention_dropout": 0.2}
  recipe = recipe_of(remat, encoder_layers=1, **rates)
  state = jax.jit(functools.partial(first_state, recipe, seed=0))(BATCH)
  step = jax.jit(functools.partial(train_step, recipe=recipe)).trace(
    state, BATCH
  )
  new, metrics = step.lower().compile()(state, BATCH)
  return (state.params, new.params, metrics), str(step.jaxpr)


def test_rematerialization_does_not_change_numbers():
  expected, text = first_step("none")
  assert "remat" not in text
  for remat in ("attention", "layer"):
    result, text = first_step(remat)
    assert "remat" in text
    assert jax.tree.structure(result) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(result), jax.tree.leaves(expected)):
      np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_flops_of_the_model_exclude_rematerialization():
  counts, executed = {}, {}
  for remat in ("none", "attention", "layer"):
    recipe = recipe_of(remat)
    state = jax.eval_shape(
      functools.partial(first_state, recipe, seed=0), BATCH
    )
    counts[remat] = model_flops(recipe, state, BATCH)
    step = functools.partial(train_step, recipe=recipe)
    executed[remat] = product_flops(step, state, BATCH)
  assert counts == dict.fromkeys(counts, executed["none"])
  assert executed["none"] < executed["attention"] < executed["layer"]


def test_rematerialization_rejects_unsupported_architectures():
  message = (
    r"^config\.train\.remat='layer' is not for family 'gru'; take 'none'"
  )
  with pytest.raises(InputError, match=message):
    recipe_of("layer", system="gru_global")
