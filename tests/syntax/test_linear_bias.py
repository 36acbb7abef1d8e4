"""T5's biases: the ranges, loops, and a decoder that goes step by step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_by_loops import WHERE

from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.linear_bias import LinearBias, bucket

RNG = np.random.default_rng(0)
LONG = 150
HEADS = 3
SCORE = RNG.normal(size=(1, HEADS, LONG, LONG)).astype(np.float32)
TABLE = RNG.normal(size=(32, HEADS)).astype(np.float32)


# The last distance of each range of one direction of T5's encoder, 16 ranges, and
# of its decoder, 32: from the formula in double precision, by hand at the edges:
# of 16, range 8 + i ends before 8 · 16^((i + 1) / 8) = 8 · 2^((i + 1) / 2).
ENCODER = [*range(8), 11, 15, 22, 31, 45, 63, 90]
DECODER = [
  *range(16),
  18,
  20,
  23,
  26,
  30,
  34,
  39,
  45,
  51,
  58,
  66,
  76,
  86,
  98,
  112,
]


@pytest.mark.parametrize("buckets, ends", [(16, ENCODER), (32, DECODER)])
def test_where_ranges_end(buckets, ends):
  distance = jnp.arange(400)
  label = np.asarray(bucket(distance, buckets=buckets, farthest=128))
  wanted = [sum(d > end for end in ends) for d in range(400)]
  assert label.tolist() == wanted and label.max() == buckets - 1


def view(query=None):
  position = jnp.arange(LONG)
  return SentenceFeatures(
    real_BS=jnp.ones((1, LONG), bool),
    position_Q=position if query is None else jnp.array([query]),
    position_M=position,
  )


def rescored(spec, place, table, score=SCORE, seen=None):
  site = dataclasses.replace(WHERE, stack=place, modifier="linear_bias")
  features = seen or view()
  shared = spec.make(dataclasses.replace(site, layer=-1)).apply(
    {"params": {"bias_LH": table}}, features, method="make_shared_features"
  )
  features = features.replace(shared_features={"linear_bias": shared})
  return spec.make(site).apply(
    {}, score, None, None, features, method="rescore"
  )


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("heads", [None, (2, 0)])
def test_against_loops(place, heads):
  spec = LinearBias(heads=heads)
  table = TABLE if heads is None else TABLE[:, :2]
  out = np.asarray(rescored(spec, place, table))
  wanted = np.array(SCORE, np.float64)
  for i, h in enumerate(range(HEADS) if heads is None else heads):
    for q in range(LONG):
      for m in range(LONG):
        if place == "decoder" and m > q:  # hidden, or seen without a range
          continue
        ends = DECODER if place == "decoder" else ENCODER
        kind = sum(abs(m - q) > end for end in ends)
        wanted[0, h, q, m] += table[kind + 16 * (m > q), i]
  np.testing.assert_allclose(out, wanted, atol=1e-6)


def test_a_step_of_decoding_is_a_row_of_all_at_once():
  spec = LinearBias()
  complete = rescored(spec, "decoder", TABLE)
  for at in (0, 7, 140):
    one = SCORE[:, :, at : at + 1]
    row = rescored(spec, "decoder", TABLE, one, view(query=at))
    np.testing.assert_array_equal(row[:, :, 0], complete[:, :, at])


def test_every_range_learns():
  def loss(table):
    score = rescored(LinearBias(), "encoder", table)
    return jnp.sum(jax.nn.softmax(score)[..., 3])

  gradient = np.asarray(jax.grad(loss)(TABLE))
  # But for 0 subwords behind the query, which is no range of any pair.
  assert (abs(gradient).max(1) > 0).tolist() == [i != 16 for i in range(32)]
