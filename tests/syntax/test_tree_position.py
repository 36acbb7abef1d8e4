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


def check_codes(out, code_of):
  """Compares x + code_of(b, sentence, word) in all subwords of words."""
  expected = np.array(X, np.float64)
  for b, sentence in enumerate(SENTENCES):
    for s, word in enumerate(sentence.word):
      if sentence.parsed and word >= 0:
        expected[b, s] += code_of(b, sentence, word)
  assert_allclose(real_subwords(out), real_subwords(expected), atol=3e-6)
  no_word = np.asarray(FEATURES.word_BS) < 0
  assert_array_equal(out[no_word], X[no_word])
  assert_array_equal(out[-1], X[-1])


# Also more levels than any tree has, one level, one branch; 24 dimensions or less.
@pytest.mark.parametrize(
  "branches, levels", [(4, 3), (1, 7), (3, 1), (5, 2), (1, 24)]
)
def test_path_codes_equal_loops(branches, levels):
  size = branches * levels
  logits = normal(D // size)

  def code_of(b, sentence, word):
    """Shiv & Quirk: from the root down, each branch is pushed on a stack."""
    path, copies = sentence.path(word), []
    for p in cases.sigmoid(logits.astype(float)):
      stack = [0.0] * size
      for parent, child in list(zip(path[1:], path))[::-1]:
        index = min(sentence.children(parent).index(child), branches - 1)
        pushed = [float(i == index) for i in range(branches)]
        stack = (pushed + [p * old for old in stack])[:size]
      copies += [math.sqrt((1 - p * p) * D / 2) * value for value in stack]
    return np.array(copies + [0.0] * (D - len(copies)))

  spec = TreePosition(branches=branches, levels=levels)
  check_codes(embed(spec, {"logit_C": logits}), code_of)


def test_laplacian_codes_equal_loops():
  projection = normal(5, D)
  vectors = np.asarray(FEATURES.eigenvectors_BWE)
  assert not vectors[3].any()  # one word

  def code_of(b, sentence, word):
    return sum(float(vectors[b, word, e]) * projection[e] for e in range(5))

  spec = TreePosition(kind="laplacian", eigenvectors=5)
  check_codes(embed(spec, {"projection_ED": projection}), code_of)


def test_depth_codes_equal_loops():
  rates = [10_000 ** (-i / (D // 2 - 1)) for i in range(D // 2)]

  def code_of(b, sentence, word):
    depth = len(sentence.path(word)) - 1
    sines, cosines = (
      [f(depth * rate) for rate in rates] for f in (math.sin, math.cos)
    )
    return np.array(sines + cosines)[::-1]

  check_codes(embed(TreePosition(kind="depth"), {}), code_of)


def test_signs_of_eigenvectors_are_random_in_training():
  spec = TreePosition(kind="laplacian", eigenvectors=4)
  params = {"projection_ED": np.eye(4, D)}  # each has its own dimension
  train, plain = FEATURES.replace(train=True), embed(spec, params) - X
  samples = set()
  for key in range(8):
    out = embed(spec, params, train, key=key) - X
    for b in (0, 1, 2):
      signs = []
      for e in range(4):
        is_same, is_flipped = (
          np.allclose(out[b, :, e], sign * plain[b, :, e], atol=1e-6)
          for sign in (1, -1)
        )
        assert is_same != is_flipped
        signs.append(is_same)
      samples.add((b, *signs))
  assert len(samples) > 15  # of 24 samples; there are 48 possible ones
  fixed = dataclasses.replace(spec, flip=False)
  assert_array_equal(embed(fixed, params, train) - X, plain)


def test_decays_start_evenly_spaced():
  spec = TreePosition(branches=2, levels=3)
  params = spec.make(SITE).init(jax.random.key(0), X, FEATURES, method="embed")
  decays = jax.nn.sigmoid(params["params"]["logit_C"])
  assert_allclose(decays, [0.2, 0.4, 0.6, 0.8], atol=1e-6)


def test_gradients_of_decays_near_0_and_1_are_finite():
  spec = TreePosition(branches=2, levels=2)

  def loss(logit_C):
    out = cases.run(spec, "embed", X, FEATURES, params={"logit_C": logit_C})
    return jnp.sum(out**2)

  logit_C = jnp.array([-100.0, -30.0, -1.0, 17.0, 30.0, 100.0])
  value, gradient = jax.value_and_grad(loss)(logit_C)
  assert np.isfinite(value) and np.isfinite(np.asarray(gradient)).all()
