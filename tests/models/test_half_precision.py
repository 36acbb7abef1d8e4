"""bfloat16: parameters and activations are rounded, scores are not.

A score is the sum of what may lie far apart: a product near 10, a bias of -50.
Rounded to bfloat16's eight bits at any step, it is off by up to 0.4 % of the
largest of them, which a softmax turns into as much of a weight.
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
  sentence,
  told_by_parts,
  windows_of,
)

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
POSITION = jnp.arange(S)
RNG = np.random.default_rng(0)
ULP = 2.0**-8  # a relative step of bfloat16; rounding errs by half of it
# Parts whose own vectors meet queries or keys in a product, as those do each
# other.
PRODUCTS = {"relative", "dependency_relative", "sisa", "dbsa"}


def rounded(x):
  """To what bfloat16 can hold, in float32."""
  return jnp.asarray(x, jnp.bfloat16).astype(jnp.float32)


def half(plan):
  model = dataclasses.replace(plan.config.model, dtype="bfloat16")
  return resolve(dataclasses.replace(plan.config, model=model), JOINT)


def drawn(shapes):
  """Random parameters that bfloat16 can hold, so that activations are large."""
  rng = np.random.default_rng(1)
  return jax.tree.map(lambda x: rounded(rng.normal(0, 0.7, x.shape)), shapes)


WIDTH = 16
X_BSD = rounded(RNG.normal(size=(B, S, WIDTH)))
VIEW = SOURCE.replace(
  position_Q=POSITION,
  position_M=POSITION,
  inputs=(X_BSD, X_BSD),
  shared_features=told_by_parts(2, B, S),
  weighting_BSS=jnp.asarray(RNG.uniform(size=(B, S, S)), jnp.float32),
)


def attentions():
  """One system and place for each set of parts that attention can have."""
  first = {}
  for system in SYSTEMS:
    plan = plan_of(system)
    if not windows_of(plan):
      for place in ("encoder", "decoder"):
        first.setdefault(
          (place, plan.spec.modifiers.modifiers_in_layer(place, 1)), None
        )
        for layer in (0, 1):
          parts = plan.spec.modifiers.modifiers_in_layer(place, layer)
          if first.get((place, parts)) is None:
            first[place, parts] = (system, place, layer)
  return sorted(first.values())


def attend(spec, place, layer, params=None):
  """Attention of a system on X: parameters, stages of its parts, weights."""
  attention = Attention(
    spec.attention_site(place, layer),
    0.0,
    spec.modifiers.modifiers_in_layer(place, layer),
  )
  dtype = jnp.dtype(spec.model.dtype)
  x_BSD = X_BSD.astype(dtype)
  view = VIEW.replace(inputs=tuple(x.astype(dtype) for x in VIEW.inputs))
  seen_B1QM = VIEW.real_BS[:, None, None, :]
  if place == "decoder":
    seen_B1QM = seen_B1QM & np.tril(np.ones((S, S), bool))
  inputs = x_BSD, x_BSD, seen_B1QM, view
  if params is None:
    params = drawn(
      jax.eval_shape(lambda: attention.init(jax.random.key(0), *inputs))[
        "params"
      ]
    )
  stages = []

  def watch(call, arguments, options, context):
    out = call(*arguments, **options)
    if (
      isinstance(context.module, Modifier) and context.method_name == "rescore"
    ):
      stages.append((context.module.name, arguments, out))
    return out

  with nn.intercept_methods(watch):
    out, state = attention.apply(
      {"params": params}, *inputs, mutable=[COLLECTION]
    )
  (weight,) = Maps.of(state).find(kind="weight_BHQM")
  return params, stages, weight.value, out


@pytest.mark.parametrize("system, place, layer", attentions())
def test_scores_stay_float32_up_to_the_softmax(system, place, layer):
  plan = plan_of(system)
  params, stages, weight_BHQM, out = attend(half(plan).spec, place, layer)
  assert weight_BHQM.dtype == jnp.float32 and out.dtype == jnp.bfloat16
  for index, (name, (score, q, k, view), after) in enumerate(stages):
    assert score.dtype == after.dtype == jnp.float32
    assert q.dtype == k.dtype == jnp.bfloat16  # and the products are cheap
    q, k = (np.asarray(x, np.float64) for x in (q, k))
    size_BHQM = np.einsum("BQHK,BMHK->BHQM", abs(q), abs(k))
    if not index:
      exact_BHQM = np.einsum("BQHK,BMHK->BHQM", q, k)
      assert abs(exact_BHQM).max() > 8
      assert (abs(score - exact_BHQM) <= 1e-6 * size_BHQM + 1e-6).all()
    # The same part of a float32 model on the same numbers.
    spec = dict(plan.spec.modifiers.modifiers_in_layer(place, layer))[name]
    complete = spec.make(
      plan.spec.attention_site(place, layer).for_modifier(name)
    ).apply(
      {"params": params.get(name, {})},
      *(score, jnp.asarray(q, jnp.float32), jnp.asarray(k, jnp.float32), view),
      method="rescore",
    )
    complete = np.asarray(complete)
    off = abs(np.asarray(after) - complete)
    if name in PRODUCTS:  # one factor of theirs is rounded once
      assert off.max() <= ULP * abs(complete).max()
    else:
      assert (off <= 1e-5 * (1 + abs(complete))).all(), name


@pytest.mark.parametrize("system, place, layer", attentions())
def test_attention_is_that_of_float32_but_for_rounded_activations(
  system, place, layer
):
  plan = plan_of(system)
  params, _, _, wanted = attend(plan.spec, place, layer)
  *_, result = attend(half(plan).spec, place, layer, params)
  off = abs(np.asarray(result, np.float32) - wanted)
  # Queries, keys and values of three digits: of scores up to 30, as here, a
  # unit in the last place is 1/8.
  assert off.max() < abs(wanted).max() / 16


def steps(cross, annotations, query_BNG, view):
  facts = cross.project_memory(annotations, view)
  past = cross.start(view, query_BNG.shape[1])
  return cross(query_BNG, past, facts, view)


RECURRENT = [s for s in SYSTEMS if windows_of(plan_of(s))]


@pytest.mark.parametrize("system", RECURRENT)
def test_alignment_scores_are_float32_up_to_the_softmax(system):
  plan = plan_of(system)
  index = 1 + sum(w.has_own_annotations for w in windows_of(plan).values())
  rng = np.random.default_rng(2)
  annotations = tuple(
    rounded(rng.normal(size=(B, S, 24))) for _ in range(index)
  )
  query_BNG = rounded(rng.normal(size=(B, 2, 12)))
  shapes = jax.eval_shape(
    lambda: Contexts(plan.spec).init(
      jax.random.key(0), annotations, query_BNG, VIEW, method=steps
    )
  )
  params, scores = drawn(shapes["params"]), []

  def watch(call, arguments, options, context):
    out = call(*arguments, **options)
    if isinstance(context.module, Window) and context.method_name == "__call__":
      assert arguments[0].dtype == out[0].dtype == jnp.float32
      scores.append(np.asarray(arguments[0]))
    return out

  weights = []
  for spec in (plan.spec, half(plan).spec):
    dtype = jnp.dtype(spec.model.dtype)
    with nn.intercept_methods(watch):
      contexts, result, _ = Contexts(spec).apply(
        {"params": params},
        tuple(x.astype(dtype) for x in annotations),
        query_BNG.astype(dtype),
        VIEW,
        method=steps,
      )
    assert all(c.dtype == dtype for c in contexts)
    weights.append(result)
  count = len(scores) // 2
  for one, other in zip(scores[:count], scores[count:]):
    assert abs(one - other).max() < 2 * ULP * abs(one).max()
  for one, other in zip(*weights):
    assert abs(one - other).max() < 0.015


def test_trained_parameters_stay_float32():
  """Parameters, both moments and the average; losses within 1 %."""
  losses = []
  for plan in (plan_of("pascal"), half(plan_of("pascal"))):
    recipe = plan.recipe.replace(optimiser=optax.adam(3e-3), ema=0.9)
    state = jax.jit(functools.partial(first_state, recipe, seed=0))(BATCH)
    step = jax.jit(functools.partial(train_step, recipe=recipe))
    for _ in range(20):
      state, metrics = step(state, BATCH)
    saved = jax.tree.leaves((state.params, state.opt, state.ema))
    assert {str(x.dtype) for x in saved} == {"float32", "int32"}
    losses.append(np.divide(*metrics["terms"]["nll"]))
  assert losses[1] == pytest.approx(losses[0], rel=0.01)
  assert losses[0] < 2  # of 3 at first, so something was learnt


def test_gradients_of_a_frequent_subword_add_up_in_float32():
  # 600 times 1: in bfloat16, which holds 8 bits, adding 1 to 256 leaves it.
  table = Embedding(3, 2, dtype="bfloat16")
  ids = jnp.zeros(600, int)
  params = {"params": {"embedding": jnp.ones((3, 2))}}

  def total(params):
    return jnp.sum(table.apply(params, ids).astype(jnp.float32))

  result = jax.grad(total)(params)["params"]["embedding"]
  np.testing.assert_array_equal(result, [[600, 600], [0, 0], [0, 0]])
