"""T5's biases: the ranges, loops, and a decoder that goes step by step."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from graph_by_loops import WHERE
from models_under_test import check_part

from jaxsyn.errors import InputError
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
  return spec.make(dataclasses.replace(WHERE, stack=place)).apply(
    {"params": {"bias_LH": table}},
    *(score, None, None, seen or view()),
    method="rescore",
  )


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("heads", [None, (2, 0)])
def test_against_loops(place, heads):
  spec = LinearBias(share=False, heads=heads)
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
  spec = LinearBias(share=False)
  complete = rescored(spec, "decoder", TABLE)
  for at in (0, 7, 140):
    one = SCORE[:, :, at : at + 1]
    row = rescored(spec, "decoder", TABLE, one, view(query=at))
    np.testing.assert_array_equal(row[:, :, 0], complete[:, :, at])


@pytest.mark.parametrize(
  "place, options, message",
  [
    ("encoder", {"buckets": 31}, "buckets=31: an encoder takes an even number"),
    ("encoder", {"farthest": 8}, "farthest=8 must be more than 8: up to there"),
    ("decoder", {"buckets": 1}, "a decoder 2 or more"),
  ],
)
def test_rejects_invalid_options(place, options, message):
  with pytest.raises(InputError, match=message):
    check_part(place, "linear_bias", options)
