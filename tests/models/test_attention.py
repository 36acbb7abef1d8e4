"""Attention: the fused function and rematerialization."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import JOINT, batch_of, config_of, sentence
from numpy.testing import assert_allclose

from jaxsyn.models import attention as attention_module
from jaxsyn.models.attention import Attention
from jaxsyn.models.contract import sentence_features
from jaxsyn.plan import resolve
from jaxsyn.syntax import MODIFIERS, AttentionSite
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
  "stack, modifiers, dtype",
  [
    ("encoder", ADDITIVE, "float32"),
    ("encoder", ADDITIVE, "bfloat16"),
    ("decoder", (), "float32"),
    ("cross", (), "bfloat16"),
  ],
)
def test_fused_attention_equals_einsum(
  monkeypatch, caplog, stack, modifiers, dtype
):
  attention_module._log_fallback.cache_clear()
  biases, fused_attention = [], jax.nn.dot_product_attention

  def record(*arguments, bias, **options):
    biases.append(bias)
    return fused_attention(*arguments, bias=bias, **options)

  monkeypatch.setattr(jax.nn, "dot_product_attention", record)
  expected, results = (
    output_and_gradients(fused, dtype, modifiers, stack)
    for fused in (False, True)
  )
  # A step of bfloat16 is 2⁻⁸; one rounds weights, the other sums of gradients.
  tolerance = 1e-6 if dtype == "float32" else 2 * 2.0**-8
  # Relative to the largest of all, as the gradient of a key's bias is 0.
  largest = max(float(np.abs(x).max()) for x in expected)
  for one, other in zip(results, expected, strict=True):
    assert_allclose(one, other, rtol=0, atol=tolerance * largest)
  # Without cuDNN's kernel, the bias is not rounded; the reason is logged once.
  dtypes = {None if bias is None else bias.dtype for bias in biases}
  assert dtypes == ({jnp.dtype("float32")} if modifiers else {None})
  (warning,) = caplog.records
  assert "does not use cuDNN's kernel: " in warning.message
  assert "not compiled for a GPU" in warning.message


def recipe_of(remat, system="dbsa+pascal_ignoring", **model):
  config = config_of(system, **model)
  train = dataclasses.replace(config.train, remat=remat)
  return resolve(dataclasses.replace(config, train=train), JOINT).recipe


def test_rematerialization_changes_neither_numbers_nor_model_flops():
  rates = {"dropout": 0.3, "attention_dropout": 0.2}
  results, flops, executed = {}, {}, {}
  for remat in ("none", "attention", "layer"):
    recipe = recipe_of(remat, encoder_layers=1, **rates)
    state = jax.jit(functools.partial(first_state, recipe, seed=0))(BATCH)
    step = functools.partial(train_step, recipe=recipe)
    traced = jax.jit(step).trace(state, BATCH)
    assert ("remat" in str(traced.jaxpr)) == (remat != "none")
    new, metrics = traced.lower().compile()(state, BATCH)
    results[remat] = state.params, new.params, metrics
    flops[remat] = model_flops(recipe, state, BATCH)
    executed[remat] = product_flops(step, state, BATCH)
  for result in (results["attention"], results["layer"]):
    assert jax.tree.structure(result) == jax.tree.structure(results["none"])
    for one, other in zip(*map(jax.tree.leaves, (result, results["none"]))):
      assert_allclose(one, other, rtol=1e-6, atol=1e-7)
  assert {*flops.values()} == {executed["none"]}
  assert executed["none"] < executed["attention"] < executed["layer"]
