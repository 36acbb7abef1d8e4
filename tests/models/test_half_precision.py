"""bfloat16: parameters and activations are rounded, scores are not.

A score adds up values of different size, such as a product near 10 and a bias of
-50. Rounded to the eight bits of bfloat16 at any step, it would be wrong by up to
0.4 % of the largest value, and a softmax turns that into a factor of a weight.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from models_under_test import (
  JOINT,
  batch_of,
  plan_of,
  random_shared_features,
  sentence,
  windows_of,
)
from numpy.testing import assert_array_equal

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.models.attention import Attention
from jaxsyn.models.contract import sentence_features
from jaxsyn.models.gru_decoder import Contexts
from jaxsyn.models.layers import Embedding
from jaxsyn.plan import resolve
from jaxsyn.syntax import Modifier, Window
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.training.step import first_state, train_step

BATCH = batch_of([sentence(30, 4, 1), sentence(9, 4, 2)])
SOURCE = sentence_features(BATCH, "source")
B, S = SOURCE.real_BS.shape
RNG = np.random.default_rng(0)
ULP = 2.0**-8  # relative step of bfloat16; the rounding error is half of it
# Modifiers whose vectors are multiplied with queries or keys in bfloat16.
PRODUCTS = {"relative", "dependency_relative", "sisa", "dbsa"}


def rounded(x):
  """Rounds to values of bfloat16, in float32."""
  return jnp.asarray(x, jnp.bfloat16).astype(jnp.float32)


def half(plan):
  model = dataclasses.replace(plan.config.model, dtype="bfloat16")
  return resolve(dataclasses.replace(plan.config, model=model), JOINT)


def random_params(shapes):
  """Random parameters of bfloat16 values, which make activations large."""
  rng = np.random.default_rng(1)
  return jax.tree.map(lambda x: rounded(rng.normal(0, 0.7, x.shape)), shapes)


X_BSD = rounded(RNG.normal(size=(B, S, 16)))
FEATURES = SOURCE.with_positions().replace(
  inputs=(X_BSD, X_BSD),
  shared_features=random_shared_features(2, B, S),
  weighting_BSS=jnp.asarray(RNG.uniform(size=(B, S, S)), jnp.float32),
)


def attentions():
  """One (system, stack, layer) for each combination of modifiers' names."""
  sites = {}
  for system in SYSTEMS:
    plan = plan_of(system)
    if windows_of(plan):
      continue
    for stack in ("encoder", "decoder"):
      for layer in (0, 1):
        modifiers = plan.spec.modifiers.modifiers_in_layer(stack, layer)
        names = [name for name, _ in modifiers]
        sites[stack, *names] = system, stack, layer  # the last has most options
  return sorted(sites.values())


def attend(spec, stack, layer, params=None):
  """Attention of a system: parameters, calls of `rescore`, weights, output."""
  modifiers = spec.modifiers.modifiers_in_layer(stack, layer)
  attention = Attention(spec.attention_site(stack, layer), 0.0, modifiers)
  x_BSD = X_BSD.astype(spec.model.dtype)
  features = FEATURES.replace(inputs=(x_BSD, x_BSD))
  allowed_B1QM = FEATURES.real_BS[:, None, None, :]
  if stack == "decoder":
    allowed_B1QM = allowed_B1QM & np.tril(np.ones((S, S), bool))
  inputs = x_BSD, x_BSD, allowed_B1QM, features
  if params is None:
    shapes = jax.eval_shape(lambda: attention.init(jax.random.key(0), *inputs))
    params = random_params(shapes["params"])
  calls = []

  def record(call, arguments, options, context):
    out = call(*arguments, **options)
    is_modifier = isinstance(context.module, Modifier)
    if is_modifier and context.method_name == "rescore":
      calls.append((context.module.name, *arguments, out))
    return out

  with nn.intercept_methods(record):
    out, state = attention.apply(
      {"params": params}, *inputs, mutable=[COLLECTION]
    )
  (weight,) = Maps.of(state).find(kind="weight_BHQM")
  return params, calls, weight.value, out


@pytest.mark.parametrize("system, stack, layer", attentions())
def test_scores_are_float32_up_to_the_softmax(system, stack, layer):
  plan = plan_of(system)
  params, calls, weight_BHQM, out = attend(half(plan).spec, stack, layer)
  assert weight_BHQM.dtype == jnp.float32 and out.dtype == jnp.bfloat16
  for index, (name, score, features, new) in enumerate(calls):
    assert score.dtype == new.dtype == jnp.float32
    q, k = features.query_BQHK, features.key_BMHK
    assert q.dtype == k.dtype == jnp.bfloat16  # so that products are cheap
    if not index:
      q, k = (np.asarray(x, np.float64) for x in (q, k))
      size_BHQM = np.einsum("BQHK,BMHK->BHQM", abs(q), abs(k))
      exact_BHQM = np.einsum("BQHK,BMHK->BHQM", q, k)
      assert abs(exact_BHQM).max() > 8
      assert (abs(score - exact_BHQM) <= 1e-6 * size_BHQM + 1e-6).all()
    # The same modifier of a float32 model with the same inputs.
    spec = dict(plan.spec.modifiers.modifiers_in_layer(stack, layer))[name]
    site = plan.spec.attention_site(stack, layer).for_modifier(name)
    features = features.replace(
      query_BQHK=jnp.asarray(q, jnp.float32),
      key_BMHK=jnp.asarray(k, jnp.float32),
    )
    expected = spec.make(site).apply(
      {"params": params.get(name, {})}, score, features, method="rescore"
    )
    expected = np.asarray(expected)
    error = abs(np.asarray(new) - expected)
    if name in PRODUCTS:  # one of their factors is rounded
      assert error.max() <= ULP * abs(expected).max()
    else:
      assert (error <= 1e-5 * (1 + abs(expected))).all(), name
  *_, expected = attend(plan.spec, stack, layer, params)
  error = abs(np.asarray(out, np.float32) - expected)
  # Queries, keys and values have three digits; of scores up to 30, as here, a
  # unit in the last place is 1/8.
  assert error.max() < abs(expected).max() / 16


def context_step(cross, annotations, query_BNG, features):
  source = cross.project_memory(annotations, features)
  past = cross.start(features, query_BNG.shape[1])
  return cross(query_BNG, past, source, features)


@pytest.mark.parametrize(
  "system", [name for name in SYSTEMS if name.startswith("gru_double")]
)
def test_alignment_scores_are_float32_up_to_the_softmax(system):
  plan, rng = plan_of(system), np.random.default_rng(2)
  windows = windows_of(plan).values()
  sequences = 1 + sum(window.has_own_annotations for window in windows)
  annotations = tuple(rng.normal(size=(sequences, B, S, 24)))
  query_BNG = rng.normal(size=(B, 2, 12))

  def record(call, arguments, options, context):
    out = call(*arguments, **options)
    if isinstance(context.module, Window) and context.method_name == "__call__":
      assert arguments[0].dtype == out[0].dtype == jnp.float32
    return out

  def apply(spec, params):
    """Parameters, contexts and weights of one step."""
    dtype, cross = jnp.dtype(spec.model.dtype), Contexts(spec)
    cast = tuple(rounded(x).astype(dtype) for x in annotations)
    inputs = cast, rounded(query_BNG).astype(dtype), FEATURES
    if params is None:
      shapes = jax.eval_shape(
        lambda: cross.init(jax.random.key(0), *inputs, method=context_step)
      )
      params = random_params(shapes["params"])
    with nn.intercept_methods(record):
      contexts, weights, _ = cross.apply(
        {"params": params}, *inputs, method=context_step
      )
    assert all(c.dtype == dtype for c in contexts)
    return params, weights

  params, expected = apply(plan.spec, None)
  _, result = apply(half(plan).spec, params)
  for one, other in zip(result, expected):
    assert abs(one - other).max() < 0.015


def test_trained_parameters_stay_float32():
  """Parameters, both moments and the average; losses within 1 %."""
  losses, plain = [], plan_of("pascal", encoder_layers=1)
  for plan in (plain, half(plain)):
    recipe = plan.recipe.replace(optimiser=optax.adam(3e-3), ema=0.9)
    state = jax.jit(functools.partial(first_state, recipe, seed=0))(BATCH)
    step = jax.jit(functools.partial(train_step, recipe=recipe))
    for _ in range(20):
      state, metrics = step(state, BATCH)
    leaves = jax.tree.leaves((state.params, state.opt, state.ema))
    assert {str(x.dtype) for x in leaves} == {"float32", "int32"}
    losses.append(np.divide(*metrics["terms"]["nll"]))
  assert losses[1] == pytest.approx(losses[0], rel=0.01)
  assert losses[0] < 2  # 3 at first


def test_gradients_of_a_frequent_subword_add_up_in_float32():
  # 600 times 1; in bfloat16 the sum would stay at 256.
  table = Embedding(3, 2, dtype="bfloat16")
  ids = jnp.zeros(600, int)
  params = {"params": {"embedding": jnp.ones((3, 2))}}

  def total(params):
    return jnp.sum(table.apply(params, ids).astype(jnp.float32))

  gradient = jax.grad(total)(params)["params"]["embedding"]
  assert_array_equal(gradient, [[600, 600], [0, 0], [0, 0]])
