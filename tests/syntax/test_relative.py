"""Relative positions: a reference of plain loops, and each option seen."""

import finite_differences
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import check_part

from jaxsyn.errors import InputError
from jaxsyn.syntax import AttentionSite, SentenceFeatures
from jaxsyn.syntax.relative import FEW, Relative, collect, spread

B, H, Q, M, K = 2, 2, 4, 4, 3
WHERE = AttentionSite("encoder", 0, heads=H, width=H * K, dtype="float32")
RNG = np.random.default_rng(0)


def numbers(*shape):
  return RNG.normal(size=shape).astype(np.float32)


SCORE, WEIGHT = (
  numbers(B, H, Q, M),
  np.asarray(jax.nn.softmax(numbers(B, H, Q, M))),
)
QUERY, KEY, MIXED = (
  numbers(B, Q, H, K),
  numbers(B, M, H, K),
  numbers(B, Q, H, K),
)


def tables(labels):
  return {"key_LK": numbers(labels, K), "value_LK": numbers(labels, K)}


def view_of(query=range(Q), memory=range(M)):
  real = jnp.arange(len(memory)) < np.array([[len(memory)], [3]])
  return SentenceFeatures(
    real, position_Q=jnp.array([*query]), position_M=jnp.array([*memory])
  )


def rescored(spec, params, view=None, score=SCORE, q=QUERY, k=KEY):
  return spec.make(WHERE).apply(
    {"params": params},
    *(score, q, k, view or view_of()),
    method="rescore",
  )


def mixed(spec, params, view=None, weight=WEIGHT, mix=MIXED):
  return spec.make(WHERE).apply(
    {"params": params},
    mix,
    weight,
    view or view_of(),
    method="mix",
  )


def made(spec):
  """The parameters of a new module."""
  variables = spec.make(WHERE).init(
    jax.random.key(0),
    *(SCORE, QUERY, KEY, view_of()),
    method="rescore",
  )
  return variables.get("params", {})


def offset(query, memory, clip):
  """m - q, at most clip to either side, as a row of a table."""
  return max(-clip, min(clip, memory - query)) + clip


def loops(clip, key_LK, value_LK, query=range(Q), memory=range(M)):
  """score + q · a^K and mixed + Σ weight · a^V, pair by pair."""
  score, mix = np.array(SCORE), np.array(MIXED)
  for b in range(B):
    for h in range(H):
      for i, at in enumerate(query):
        for j, present in enumerate(memory):
          row = offset(at, present, clip)
          score[b, h, i, j] += np.dot(QUERY[b, i, h], key_LK[row])
          mix[b, i, h] += WEIGHT[b, h, i, j] * np.asarray(value_LK[row])
  return score, mix


# At 2 the labels are few, at 5 they are many: two ways to compute.
@pytest.mark.parametrize("clip", [2, 5])
@pytest.mark.parametrize(
  "query, memory",
  [
    (range(4), range(4)),
    ((3, 3, 3, 3), (0, 1, 0, 1)),  # beams at one step, each with its past
  ],
)
def test_against_loops(clip, query, memory):
  assert 5 <= FEW < 11
  params, spec = tables(2 * clip + 1), Relative(clip=clip)
  score, mix = loops(clip, *params.values(), query, memory)
  view = view_of(query, memory)
  np.testing.assert_allclose(rescored(spec, params, view), score, atol=1e-5)
  np.testing.assert_allclose(mixed(spec, params, view), mix, atol=1e-5)


@pytest.mark.parametrize("full_context, seen", [(True, 4), (False, 3)])
def test_one_query_at_position_two(full_context, seen):
  # Offsets of 0..3 from 2 are -2, -1, 0, 1; k = 1 clips the first, so rows 0,
  # 0, 1, 2 of a table 10, 20, 30 that the query meets as it is. The last one
  # counts where a decoder is shown all of a sentence.
  params = {"key_LK": jnp.array([[10.0], [20], [30]]), "value_LK": None}
  out = (
    Relative(clip=1)
    .make(AttentionSite("decoder", 0, heads=1, width=1, dtype="float32"))
    .apply(
      {"params": params},
      jnp.zeros((1, 1, 1, 4)),
      jnp.ones((1, 1, 1, 1)),
      jnp.ones((1, 4, 1, 1)),
      SentenceFeatures(
        jnp.ones((1, 4), bool),
        position_Q=jnp.array([2]),
        position_M=jnp.arange(4),
        full_context=full_context,
      ),
      method="rescore",
    )
  )
  assert out.ravel()[:seen].tolist() == [10, 10, 20, 30][:seen]


@pytest.mark.parametrize("rows", [1, B])
@pytest.mark.parametrize("labels", [3, FEW + 1])
def test_spread_and_collect_are_each_the_others_transpose(rows, labels):
  rng = np.random.default_rng(1)
  label = rng.integers(-1, labels, (rows, Q, M))
  label[0, 0, :2] = [-1, labels - 1]
  value, out = numbers(B, Q, H, labels), numbers(B, H, Q, M)
  wanted, sums = np.zeros((B, H, Q, M)), np.zeros((B, Q, H, labels))
  for b, h, q, m in np.ndindex(B, H, Q, M):
    one = label[b % rows, q, m]
    if one >= 0:
      wanted[b, h, q, m] = value[b, q, h, one]
      sums[b, q, h, one] += out[b, h, q, m]
  label = jnp.asarray(label)
  got, back = jax.vjp(lambda value: spread(value, label), value)
  np.testing.assert_allclose(got, wanted, atol=1e-6)
  np.testing.assert_allclose(back(out)[0], sums, atol=1e-5)
  got, back = jax.vjp(lambda out: collect(out, label, labels), out)
  np.testing.assert_allclose(got, sums, atol=1e-5)
  np.testing.assert_allclose(back(value)[0], wanted, atol=1e-6)


@pytest.mark.parametrize("spec", [Relative(clip=2), Relative(clip=2, tie=True)])
def test_gradients_are_those_of_differences(spec):
  params = tables(5)
  if spec.tie:
    params = {"both_LK": params["key_LK"]}

  def loss(moved):
    params, q = moved
    weight = WEIGHT * jax.nn.softmax(rescored(spec, params, q=q))
    return (mixed(spec, params, weight=weight) ** 2).mean()

  finite_differences.agree_with_differences(loss, (params, QUERY))


def test_dropping_keys_or_values():
  params = tables(5)
  no_keys, no_values = (
    Relative(clip=2, keys=False),
    Relative(clip=2, values=False),
  )
  score, mix = loops(2, *params.values())
  np.testing.assert_array_equal(rescored(no_keys, params), SCORE)
  np.testing.assert_allclose(mixed(no_keys, params), mix, atol=1e-5)
  np.testing.assert_array_equal(mixed(no_values, params), MIXED)
  np.testing.assert_allclose(rescored(no_values, params), score, atol=1e-5)
  assert {*made(no_keys)} == {"value_LK"} and {*made(no_values)} == {"key_LK"}
  assert made(Relative(keys=False, values=False)) == {}


def test_rejects_a_clip_of_zero():
  with pytest.raises(
    InputError, match=r"parts\.encoder\.relative\.clip must be from 1 to"
  ):
    check_part("encoder", "relative", {"clip": 0})
