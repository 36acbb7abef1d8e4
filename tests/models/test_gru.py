"""The recurrent model: loops, contexts, dropout and options."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  BATCH,
  JOINT,
  PAIRS,
  config_of,
  logits,
  parameters,
  plan_of,
)
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.configs import systems
from jaxsyn.models.gru_layers import INITIALISATIONS, Cell
from jaxsyn.plan import resolve


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
    query = cell_by_hand(first, linear(first["input"], word), state)
    score = []
    for h in annotation:
      inner = np.tanh(linear(align["query"], query) + linear(align["key"], h))
      score.append(linear(align["score"], inner)[0])
    weight = np.exp(score) / np.exp(score).sum()
    context = sum(w * h for w, h in zip(weight, annotation))
    state = cell_by_hand(second, linear(second["input"], context), query)
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
  for row in (0, 3, 4):
    source_S, target_T = (
      PAIRS[row][name] for name in ("source_id_BS", "target_id_BT")
    )
    expected = logits_by_hand(plain, source_S, target_T)
    assert_allclose(result[row, : len(target_T)], expected, atol=2e-5)


DOUBLES = [name for name in systems.SYSTEMS if name.startswith("gru_double")]


@pytest.mark.parametrize("system", DOUBLES)
def test_a_second_context_of_zero_weight_equals_the_baseline(system):
  """Golden value 13: L_cs = 0."""
  plan, plain = plan_of(system), plan_of("gru_global")
  params = parameters(plan, BATCH)
  expected = logits(plain, params, BATCH)
  assert not np.allclose(logits(plan, params, BATCH), expected)
  read = params["decoder_0"]["read_context_1"]
  params["decoder_0"]["read_context_1"] = jax.tree.map(jnp.zeros_like, read)
  assert_array_equal(logits(plan, params, BATCH), expected)


def with_options(system, **options):
  """Plan of a recurrent system with other options of the architecture."""
  config = config_of(system)
  family = dataclasses.replace(config.model.family, **options)
  model = dataclasses.replace(config.model, family=family)
  return resolve(dataclasses.replace(config, model=model), JOINT)


@pytest.mark.parametrize("update, size", [("first", 24), ("all", 48)])
def test_contexts_that_update_the_state(update, size):
  plan = with_options("gru_double_syntax", update=update)
  second = parameters(plan, BATCH)["decoder_0"]["second"]
  assert second["input"]["kernel"].shape == (size, 3, 12)  # 2·G or 4·G


def test_each_gate_is_initialized_orthogonally():
  assert set(INITIALISATIONS) == {"orthogonal", "xavier"}
  cell, x, state = Cell(64, "orthogonal", "float32"), np.ones(128), np.ones(64)
  params = cell.init(
    jax.random.key(0), x, state, method=lambda m, x, h: m(m.input(x), h, h)
  )["params"]
  gates = np.asarray(params["recurrent"]["kernel"]).transpose(1, 0, 2)
  for gate in gates:
    assert_allclose(gate @ gate.T, np.eye(64), atol=1e-4)
  assert not np.allclose(gates[0], gates[1], atol=0.1)
  small = np.asarray(params["input"]["kernel"])
  assert_allclose(small.std(), 0.01, rtol=0.05)
  assert not params["input"]["bias"].any()


def test_dropout_mask_is_shared_by_a_sentence():
  plan = with_options("gru_global", dropout_embedding=0.5)
  drop = plan.recipe.model.bind(
    {"params": parameters(plan, BATCH)}, rngs={"dropout": jax.random.key(0)}
  ).drop_embedding
  kept_BSD = np.asarray(drop(jnp.ones((40, 7, 16)), train=True)) > 0
  assert (kept_BSD == kept_BSD[:, :1]).all()
  assert 0.4 < kept_BSD.mean() < 0.6
  assert len({row.tobytes() for row in kept_BSD[:, 0]}) > 30
