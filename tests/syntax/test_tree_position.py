"""Positions in trees at the embeddings, by loops."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import (
  FEATURES,
  SENTENCES,
  SITE,
  B,
  S,
  normal,
  random_params,
  real_subwords,
  run,
  sigmoid,
)
from models_under_test import check_modifier

from jaxsyn.errors import InputError
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.syntax.tree_position import TreePosition

D = SITE.width  # 24
X = normal(B, S, D)


def embed(spec, params, features=FEATURES, key=0):
  return np.asarray(run(spec, "embed", X, features, params=params, key=key))


def check_codes(out, code_of):
  """Compares x + code_of(b, sentence, word) in all subwords of words."""
  expected = np.array(X, np.float64)
  for b, sentence in enumerate(SENTENCES):
    for s, word in enumerate(sentence.word):
      if sentence.parsed and word >= 0:
        expected[b, s] += code_of(b, sentence, word)
  np.testing.assert_allclose(
    real_subwords(out), real_subwords(expected), atol=3e-6
  )
  no_word = np.asarray(FEATURES.word_BS) < 0
  np.testing.assert_array_equal(out[no_word], X[no_word])
  np.testing.assert_array_equal(out[-1], X[-1])


# Also more levels than any tree has, one level, one branch; 24 dimensions or less.
@pytest.mark.parametrize(
  "branches, levels", [(4, 3), (2, 2), (1, 7), (3, 1), (5, 2), (24, 1), (1, 24)]
)
def test_path_codes_equal_loops(branches, levels):
  size = branches * levels
  logits = normal(D // size)

  def code_of(b, sentence, word):
    """Shiv & Quirk: from the root down, each branch is pushed on a stack."""
    path, copies = sentence.path(word), []
    for p in sigmoid(logits.astype(float)):
      stack = [0.0] * size
      for parent, child in list(zip(path[1:], path))[::-1]:
        index = min(sentence.children(parent).index(child), branches - 1)
        pushed = [float(i == index) for i in range(branches)]
        stack = (pushed + [p * old for old in stack])[:size]
      copies += [math.sqrt((1 - p * p) * D / 2) * value for value in stack]
    return np.array(copies + [0.0] * (D - len(copies)))

  spec = TreePosition(branches=branches, levels=levels)
  check_codes(embed(spec, {"logit_C": logits}), code_of)


def test_decays_start_evenly_spaced():
  spec = TreePosition(branches=2, levels=3)
  params = spec.make(SITE).init(jax.random.key(0), X, FEATURES, method="embed")
  decays = jax.nn.sigmoid(params["params"]["logit_C"])
  np.testing.assert_allclose(decays, [0.2, 0.4, 0.6, 0.8], atol=1e-6)


def test_laplacian_codes_equal_loops():
  projection = normal(5, D)
  vectors = np.asarray(FEATURES.eigenvectors_BWE)
  assert not vectors[3].any()  # one word

  def code_of(b, sentence, word):
    return sum(float(vectors[b, word, e]) * projection[e] for e in range(5))

  spec = TreePosition(kind="laplacian", eigenvectors=5)
  check_codes(embed(spec, {"projection_ED": projection}), code_of)


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
  np.testing.assert_array_equal(embed(fixed, params, train) - X, plain)


def test_depth_codes_equal_loops():
  rates = [10_000 ** (-i / (D // 2 - 1)) for i in range(D // 2)]

  def code_of(b, sentence, word):
    depth = len(sentence.path(word)) - 1
    sines, cosines = (
      [f(depth * rate) for rate in rates] for f in (math.sin, math.cos)
    )
    return np.array(sines + cosines)[::-1]

  check_codes(embed(TreePosition(kind="depth"), {}), code_of)


@pytest.mark.parametrize("logit", [-100.0, -30.0, 17.0, 30.0, 100.0])
def test_gradients_of_decays_near_0_and_1_are_finite(logit):
  spec = TreePosition(branches=2, levels=3)

  def loss(logit_C):
    out = run(spec, "embed", X, FEATURES, params={"logit_C": logit_C})
    return jnp.sum(out**2)

  value, gradient = jax.value_and_grad(loss)(jnp.full(4, logit))
  assert np.isfinite(value) and np.isfinite(np.asarray(gradient)).all()


@pytest.mark.parametrize("kind", ["path", "laplacian", "depth"])
def test_publishes_the_cosine_of_two_codes(kind):
  spec = TreePosition(kind=kind, branches=2, levels=3, eigenvectors=3)
  params = random_params(spec, "embed", X, FEATURES)
  out, state = spec.make(dataclasses.replace(SITE, layer=-1)).apply(
    {"params": params}, X, FEATURES, method="embed", mutable=[COLLECTION]
  )
  (cosine,) = Maps.of(state).find(kind="alike_BQM", modifier="it", layer=-1)
  code = np.asarray(out - X, np.float64)
  size = np.linalg.norm(code, axis=-1)
  product = np.einsum("BQD,BMD->BQM", code, code)
  sizes = size[:, :, None] * size[:, None, :]
  is_zero = sizes < 1e-5
  expected = np.where(is_zero, 0, product / np.where(is_zero, 1, sizes))
  np.testing.assert_allclose(cosine.value, expected, atol=2e-5)


@pytest.mark.parametrize(
  "options, message",
  [
    ({"levels": 5}, "levels=5: branches · levels = 20 dimensions"),
    ({"kind": "laplacian", "eigenvectors": 17}, "eigenvectors=17: a batch"),
    ({"kind": "depth", "levels": 3}, "levels=3 does nothing with kind='depth'"),
    ({"flip": False}, "flip=False does nothing with kind='path'"),
  ],
)
def test_rejects_invalid_options(options, message):
  with pytest.raises(InputError, match=rf"tree_position\.{message}"):
    check_modifier("encoder", "tree_position", options)
