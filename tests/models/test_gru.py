"""The recurrent model: loops, contexts, dropout and options."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  JOINT,
  apply,
  batch_of,
  config_of,
  logits,
  parameters,
  plan_of,
  sentence,
)

from jaxsyn.config import read_config
from jaxsyn.configs import base, systems
from jaxsyn.errors import InputError
from jaxsyn.models.contract import forward
from jaxsyn.models.gru_layers import INITIALISATIONS
from jaxsyn.plan import resolve

PAIRS = [sentence(5, 6, 1), sentence(3, 4, 2), sentence(7, 8, 3)]
BATCH = batch_of(PAIRS)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def linear(params, x):
  """A linear layer; gates are concatenated."""
  kernel = params["kernel"].reshape(len(x), -1)
  return x @ kernel + np.ravel(params.get("bias", 0.0))


def cell_by_hand(params, gates, state):
  """A GRU with gates r, u, c; the reset gate acts after the recurrent matrix."""
  size = len(state)
  recurrent = linear(params["recurrent"], state)
  reset = sigmoid(gates[:size] + recurrent[:size])
  update = sigmoid(gates[size : 2 * size] + recurrent[size : 2 * size])
  new = np.tanh(gates[2 * size :] + reset * recurrent[2 * size :])
  return update * state + (1 - update) * new


def logits_by_hand(params, source_S, target_T):
  """Logits of `gru_global` for one sentence, word by word, as in Nematus."""
  table = params["target_table"]["embedding"]
  runs = []
  for name, order in (("forward", source_S), ("backward", source_S[::-1])):
    cell, states = params["encoder_0"][name], []
    state = np.zeros(cell["recurrent"]["kernel"].shape[0])
    for word in order:
      state = cell_by_hand(cell, linear(cell["input"], table[word]), state)
      states.append(state)
    runs.append(states)
  annotation = [np.r_[f, b] for f, b in zip(runs[0], runs[1][::-1])]
  decoder = params["decoder_0"]
  align = decoder["cross"]["alignment_0"]
  state = np.tanh(linear(params["first_state"], np.mean(annotation, 0)))
  out, word = [], np.zeros(table.shape[1])
  for target in target_T:
    first, second = decoder["first"], decoder["second"]
    request = cell_by_hand(first, linear(first["input"], word), state)
    score = []
    for h in annotation:
      inner = np.tanh(linear(align["query"], request) + linear(align["key"], h))
      score.append(linear(align["score"], inner)[0])
    weight = np.exp(score) / np.exp(score).sum()
    context = sum(w * h for w, h in zip(weight, annotation))
    state = cell_by_hand(second, linear(second["input"], context), request)
    read = np.tanh(
      linear(decoder["read_state"], state)
      + linear(decoder["read_word"], word)
      + linear(decoder["read_context_0"], context)
    )
    out.append(read @ table.T + params["output_bias"])
    word = table[target]
  return np.array(out)


def test_baseline_equals_loops():
  plan = plan_of("gru_global")
  params = parameters(plan, BATCH)
  result = logits(plan, params, BATCH)
  plain = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  for row, pair in enumerate(PAIRS):
    target_T = pair["target_id_BT"]
    expected = logits_by_hand(plain, pair["source_id_BS"], target_T)
    np.testing.assert_allclose(
      result[row, : len(target_T)], expected, atol=2e-5
    )


DOUBLES = [name for name in systems.SYSTEMS if name.startswith("gru_double")]


@pytest.mark.parametrize("system", DOUBLES)
def test_a_second_context_of_zero_weight_equals_the_baseline(system):
  """Golden value 13: L_cs = 0."""
  plan, plain = plan_of(system), plan_of("gru_global")
  params = parameters(plan, BATCH)
  read = params["decoder_0"]["read_context_1"]
  assert not np.allclose(
    logits(plan, params, BATCH), logits(plain, params, BATCH)
  )
  params["decoder_0"]["read_context_1"] = jax.tree.map(jnp.zeros_like, read)
  np.testing.assert_array_equal(
    logits(plan, params, BATCH), logits(plain, params, BATCH)
  )


def test_both_contexts_can_update_the_state():
  plan = plan_of("gru_double_syntax")
  both = dataclasses.replace(plan.config.model.family, update="all")
  model = dataclasses.replace(plan.config.model, family=both)
  both = resolve(dataclasses.replace(plan.config, model=model), JOINT)
  kernels = [
    parameters(p, BATCH)["decoder_0"]["second"]["input"]["kernel"].shape
    for p in (plan, both)
  ]
  assert kernels == [(24, 3, 12), (48, 3, 12)]  # 2·G and 4·G


@pytest.mark.parametrize("position", ["interp", "hard", "expected"])
def test_gradients_reach_the_position_predictor(position):
  config = base.get_config()
  config.model.gru.hidden = 12
  systems.apply(config, "gru_syntax")
  config.model.gru.windows.syntax.position = position
  plan = resolve(read_config(config), JOINT)
  params = parameters(plan, BATCH)

  def value(params):
    key, model = jax.random.key(0), plan.recipe.model
    return jnp.sum(jnp.square(apply(params, BATCH, key, model, False)))

  window = jax.jit(jax.grad(value))(params)["decoder_0"]["cross"].get(
    "syntax", {}
  )
  largest = [float(jnp.abs(x).max()) for x in jax.tree.leaves(window)]
  if position == "expected":
    assert not largest
  elif position == "hard":
    assert largest and not any(largest)
  else:
    assert all(x > 0 for x in largest)


def test_each_gate_is_initialized_orthogonally():
  config = systems.apply(base.get_config(), "gru_global")
  config.model.gru.update(initialisation="orthogonal", hidden=64)
  plan = resolve(read_config(config), JOINT)
  params = plan.recipe.model.init(
    jax.random.key(0), BATCH, train=False, method=forward
  )["params"]
  decoder = params["decoder_0"]
  recurrent = decoder["second"]["recurrent"]["kernel"]
  for gate in np.asarray(recurrent).transpose(1, 0, 2):
    np.testing.assert_allclose(gate @ gate.T, np.eye(64), atol=1e-4)
  small = np.asarray(decoder["second"]["input"]["kernel"])
  np.testing.assert_allclose(small.std(), 0.01, rtol=0.05)
  assert set(INITIALISATIONS) == {"orthogonal", "xavier"}
  assert not decoder["second"]["input"]["bias"].any()


def test_dropout_mask_is_shared_by_a_sentence():
  config = config_of("gru_global")
  gru = dataclasses.replace(config.model.family, dropout_embedding=0.5)
  model = dataclasses.replace(config.model, family=gru)
  plan = resolve(dataclasses.replace(config, model=model), JOINT)
  params = parameters(plan, BATCH)
  drop = plan.recipe.model.bind(
    {"params": params}, rngs={"dropout": jax.random.key(0)}
  ).drop_embedding
  kept_BSD = np.asarray(drop(jnp.ones((40, 7, 16)), train=True)) > 0
  assert (kept_BSD == kept_BSD[:, :1]).all()
  assert 0.4 < kept_BSD.mean() < 0.6
  assert len({row.tobytes() for row in kept_BSD[:, 0]}) > 30


@pytest.mark.parametrize(
  "change, message",
  [
    ({"model.gru.hidden": 0}, r"config\.model\.gru\.hidden must be from 1 "),
    (
      {"model.gru.dropout_hidden": 1.0},
      r"gru\.dropout_hidden must be from 0 to b",
    ),
    ({"model.gru.windows": {}}, r"config\.model\.gru\.windows is empty"),
    ({"model.gru.windows": {"golbal": {}}}, r"no window 'golbal'.* 'global'"),
    (
      {"model.gru.windows": {"local": {"reach": -1}}},
      r"config\.model\.gru\.windows\.local\.reach must be from 0 to",
    ),
    (
      {"model.gru.windows": {"local": {"sigme": 1}}},
      r"config\.model\.gru\.windows\.local has no option 'sigme'",
    ),
  ],
)
def test_rejects_invalid_options(change, message):
  config = systems.apply(base.get_config(), "gru_global")
  config.unlock()
  for path, value in change.items():
    *sections, field = path.split(".")
    section = config
    for name in sections:
      section = section[name]
    section[field] = value
  with pytest.raises(InputError, match=message):
    resolve(read_config(config), JOINT)


@pytest.mark.parametrize("mix", ["gru_global+pascal", "dbsa+gru_global"])
def test_rejects_modifiers_of_attention(mix):
  config = systems.apply(base.get_config(), mix)
  with pytest.raises(InputError, match=r"changes attention of the Transformer"):
    resolve(read_config(config), JOINT)
