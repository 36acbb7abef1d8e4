"""Relative positions in the sentence and in the tree, by loops."""

import dataclasses

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FEATURES, HEADS, SCORE, B, K, S, heads_of, normal
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.syntax.dependency_relative import DependencyRelative, depth_BQM
from jaxsyn.syntax.relative import MAX_CHAIN, Relative, collect, spread

WEIGHT, MIXED = jax.nn.softmax(normal(B, HEADS, S, S)), normal(B, S, HEADS, K)


def tables(labels):
  return {"key_LK": normal(labels, K), "value_LK": normal(labels, K)}


def stages(spec, params):
  """Scores and mixed values after the modifier, zeros at padding."""
  score = cases.rescore(spec, params=params)
  mixed = cases.run(spec, "mix", MIXED, WEIGHT, FEATURES, params=params)
  return cases.real_pairs(score), cases.real_subwords(mixed.reshape(B, S, -1))


def by_loops(spec, params, label_of):
  """score + q · a^K and mixed + Σ weight · a^V, pair by pair.

  Args:
    spec: Options.
    params: Both tables.
    label_of: Function of sentence, query and key; None: no label.
  """
  score, mixed = np.array(SCORE, float), np.array(MIXED, float)
  for b, sentence in enumerate(cases.SENTENCES):
    size = len(sentence.word)
    for h, q, m in np.ndindex(HEADS, size, S):  # padding has labels too
      label = label_of(sentence, q, m)
      if h not in heads_of(spec) or label is None:
        continue
      if m < size:
        score[b, h, q, m] += cases.QUERY[b, q, h] @ params["key_LK"][label]
      mixed[b, q, h] += float(WEIGHT[b, h, q, m]) * params["value_LK"][label]
  return cases.real_pairs(score), cases.real_subwords(mixed.reshape(B, S, -1))


def clipped(offset, clip):
  return max(-clip, min(clip, offset)) + clip


# Few labels and many are computed in different ways.
@pytest.mark.parametrize("clip, heads", [(2, None), (5, (2, 0))])
def test_relative_positions_equal_loops(clip, heads):
  assert 2 * 2 + 1 <= MAX_CHAIN < 2 * 5 + 1
  spec, params = Relative(clip=clip, heads=heads), tables(2 * clip + 1)
  expected = by_loops(spec, params, lambda _, q, m: clipped(m - q, clip))
  for result, wanted in zip(stages(spec, params), expected):
    assert_allclose(result, wanted, atol=1e-5)


@pytest.mark.parametrize("label", ["depth", "distance"])
@pytest.mark.parametrize("clip", [1, 4])
def test_dependency_relative_equals_loops(label, clip):
  spec = DependencyRelative(label=label, clip=clip)
  params = tables(2 * clip + 2)

  def label_of(sentence, q, m):
    if not sentence.parsed:
      return None
    words = (*sentence.word[q : q + 1], *sentence.word[m : m + 1])
    if -1 in words or m >= len(sentence.word):  # padding counts as EOS
      return 2 * clip + 1
    if label == "depth":
      return clipped(sentence.depth(m) - sentence.depth(q), clip)
    edges = sentence.edges(q, m)
    edges = 255 if edges is None else edges
    return clipped(edges if m > q else -edges, clip)

  expected = by_loops(spec, params, label_of)
  for result, wanted in zip(stages(spec, params), expected):
    assert_allclose(result, wanted, atol=1e-5)


def test_depth_labels_of_the_paper():
  # "My father bought a red car .", Table 1; "bought" has two subwords.
  sentence = cases.Sentence((0, 1, 2, 2, 3, 4, 5, 6, -1), (1, 2, 2, 5, 5, 2, 2))
  rows = np.asarray(depth_BQM(cases.features_of([sentence])))[0]
  words = [0, 1, 2, 4, 5, 6, 7]
  assert rows[0, words].tolist() == [0, -1, -2, 0, 0, -1, -1]
  assert rows[1, words].tolist() == [1, 0, -1, 1, 1, 0, 0]
  for bought in (2, 3):
    assert rows[bought, words].tolist() == [2, 1, 0, 2, 2, 1, 1]


@pytest.mark.parametrize("full_context, visible", [(True, 4), (False, 3)])
def test_decoder_labels_at_one_position(full_context, visible):
  # Offsets from position 2 are -2, -1, 0, 1; clip=1 gives labels 0, 0, 1, 2.
  # The last one is used only where later positions are visible.
  site = dataclasses.replace(cases.SITE, stack="decoder", heads=1, width=1)
  features = FEATURES.replace(
    position_Q=jnp.array([2]),
    position_M=jnp.arange(4),
    full_context=full_context,
  )
  score, q = np.zeros((1, 1, 1, 4)), np.ones((1, 1, 1, 1))
  params = {
    "key_LK": np.array([[10.0], [20], [30]]),
    "value_LK": np.zeros((3, 1)),
  }
  spec = Relative(clip=1)
  out = cases.rescore(spec, score, features, q, q, params=params, site=site)
  assert out.ravel()[:visible].tolist() == [10, 10, 20, 30][:visible]


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("labels", [3, MAX_CHAIN + 1])
def test_spread_and_collect_are_transposes(rows, labels):
  rng = np.random.default_rng(1)
  label = rng.integers(-1, labels, (rows, 4, 4))
  label[0, 0, :2] = [-1, labels - 1]
  value, out = normal(2, 4, 2, labels), normal(2, 2, 4, 4)
  spread_values, sums = np.zeros((2, 2, 4, 4)), np.zeros((2, 4, 2, labels))
  for b, h, q, m in np.ndindex(2, 2, 4, 4):
    one = label[b % rows, q, m]
    if one >= 0:
      spread_values[b, h, q, m] = value[b, q, h, one]
      sums[b, q, h, one] += out[b, h, q, m]
  label = jnp.asarray(label)
  result, vjp = jax.vjp(lambda value: spread(value, label), value)
  assert_allclose(result, spread_values, atol=1e-6)
  assert_allclose(vjp(out)[0], sums, atol=1e-5)
  result, vjp = jax.vjp(lambda out: collect(out, label, labels), out)
  assert_allclose(result, sums, atol=1e-5)
  assert_allclose(vjp(value)[0], spread_values, atol=1e-6)


@pytest.mark.parametrize("tie", [False, True])
def test_gradients_equal_differences(tie):
  spec, params = Relative(clip=2, tie=tie), tables(5)
  if tie:
    params = {"both_LK": params["key_LK"]}

  def loss(params):
    weight = WEIGHT * jax.nn.softmax(cases.rescore(spec, params=params))
    mixed = cases.run(spec, "mix", MIXED, weight, FEATURES, params=params)
    return 30 * (mixed**2).mean()

  cases.check_gradients(loss, params)


@pytest.mark.parametrize("disabled", ["keys", "values"])
def test_keys_and_values_can_be_disabled(disabled):
  params = tables(5)
  score, mixed = stages(Relative(clip=2), params)
  name = "value_LK" if disabled == "keys" else "key_LK"
  spec = Relative(clip=2, **{disabled: False})
  result = stages(spec, {name: params[name]})
  if disabled == "keys":
    expected = cases.real_pairs(SCORE), mixed
  else:
    expected = score, cases.real_subwords(MIXED.reshape(B, S, -1))
  for one, wanted in zip(result, expected):
    assert_array_equal(one, wanted)
