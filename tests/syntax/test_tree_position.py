"""Positions in trees at the embeddings, by loops."""

import dataclasses
import math

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FEATURES, SENTENCES, SITE, normal, real_subwords
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.syntax.tree_position import TreePosition

D = SITE.width  # 24
X = normal(cases.B, cases.S, D)


def embed(spec, params, features=FEATURES, key=0):
  out = cases.run(spec, "embed", X, features, params=params, key=key)
  return np.asarray(out)


def path_code(spec, params, b, sentence, word):
  """Shiv & Quirk: from the root down, each branch is pushed on a stack."""
  size, path, copies = spec.branches * spec.levels, sentence.path(word), []
  for p in cases.sigmoid(params["logit_C"].astype(float)):
    stack = [0.0] * size
    for parent, child in list(zip(path[1:], path))[::-1]:
      index = sentence.children(parent).index(child)
      index = min(index, spec.branches - 1)
      pushed = [float(i == index) for i in range(spec.branches)]
      stack = (pushed + [p * old for old in stack])[:size]
    copies += [math.sqrt((1 - p * p) * D / 2) * value for value in stack]
  return np.array(copies + [0.0] * (D - len(copies)))


def laplacian_code(spec, params, b, sentence, word):
  vector_E = np.asarray(FEATURES.eigenvectors_BWE[b, word, : spec.eigenvectors])
  return vector_E.astype(float) @ params["projection_ED"]


def depth_code(spec, params, b, sentence, word):
  depth, half = len(sentence.path(word)) - 1, D // 2
  angles = [depth * 10_000 ** (-i / (half - 1)) for i in range(half)]
  sines, cosines = ([f(a) for a in angles] for f in (math.sin, math.cos))
  return np.array(sines + cosines)[::-1]


@pytest.mark.parametrize(
  "options, code_of",
  [
    # Also more levels than any tree has, one level, and one branch.
    *(
      ({"branches": branches, "levels": levels}, path_code)
      for branches, levels in ((4, 3), (1, 7), (3, 1), (5, 2), (1, 24))
    ),
    ({"kind": "laplacian", "eigenvectors": 5}, laplacian_code),
    ({"kind": "depth"}, depth_code),
  ],
)
def test_codes_equal_loops(options, code_of):
  spec = TreePosition(**options)
  params = cases.random_params(spec, "embed", X, FEATURES, scale=1.0)
  out, expected = embed(spec, params), np.array(X, np.float64)
  for b, sentence in enumerate(SENTENCES):
    for s, word in enumerate(sentence.word):
      if sentence.parsed and word >= 0:
        expected[b, s] += code_of(spec, params, b, sentence, word)
  assert_allclose(real_subwords(out), real_subwords(expected), atol=3e-6)
  no_word = np.asarray(FEATURES.word_BS) < 0
  assert_array_equal(out[no_word], X[no_word])
  assert_array_equal(out[-1], X[-1])
  assert not FEATURES.eigenvectors_BWE[3].any()  # one word


def test_signs_of_eigenvectors_are_random_in_training():
  spec = TreePosition(kind="laplacian", eigenvectors=4)
  params = {"projection_ED": np.eye(4, D)}  # each has its own dimension
  train, plain = FEATURES.replace(train=True), embed(spec, params) - X
  samples = set()
  for key in range(8):
    out = embed(spec, params, train, key=key) - X
    for b in (0, 1, 2):
      is_same, is_flipped = (
        [
          np.allclose(out[b, :, e], sign * plain[b, :, e], atol=1e-6)
          for e in range(4)
        ]
        for sign in (1, -1)
      )
      assert all(one != other for one, other in zip(is_same, is_flipped))
      samples.add((b, *is_same))
  assert len(samples) > 15  # of 24 samples; there are 48 possible ones
  fixed = dataclasses.replace(spec, flip=False)
  assert_array_equal(embed(fixed, params, train) - X, plain)


def test_decays_start_evenly_spaced_and_have_finite_gradients_near_0_and_1():
  spec = TreePosition(branches=2, levels=3)
  params = spec.make(SITE).init(jax.random.key(0), X, FEATURES, method="embed")
  decays = jax.nn.sigmoid(params["params"]["logit_C"])
  assert_allclose(decays, [0.2, 0.4, 0.6, 0.8], atol=1e-6)

  def loss(logit_C):
    return jnp.sum(
      cases.run(spec, "embed", X, FEATURES, params={"logit_C": logit_C}) ** 2
    )

  for logits in ([-100.0, -30.0, -1.0, 17.0], [17.0, 30.0, 100.0, -1.0]):
    value, gradient = jax.value_and_grad(loss)(jnp.array(logits))
    assert np.isfinite(value) and np.isfinite(np.asarray(gradient)).all()
