"""Positions in trees at the embeddings: values by hand, loops over heads."""

import dataclasses
import math

import graph_by_loops as graph
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_by_loops import SENTENCES, VIEW, WHERE
from models_under_test import check_part

from jaxsyn.data.sentence.spectrum import eigenvectors
from jaxsyn.errors import InputError
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.syntax.tree_position import (
  TreePosition,
)

RNG = np.random.default_rng(0)
D = WHERE.width  # 24
AT = dataclasses.replace(WHERE, layer=-1)
X = RNG.normal(size=(graph.B, graph.S, D)).astype(np.float32)


def _vectors():
  """Of the sentences, as a batch has them."""
  heads = [np.asarray(head, int) for head, *_ in SENTENCES]
  result = np.zeros((graph.B, graph.W, 16), np.float32)
  for item, made in zip(result, eigenvectors(heads)):
    item[: len(made)] = made
  return result


VECTORS = _vectors()
FULL = dataclasses.replace(VIEW, eigenvectors_BWE=jnp.asarray(VECTORS))


def embedded(spec, params, view=FULL, x=X, key=0, site=AT):
  variables = {
    "params": jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
  }
  return spec.make(site).apply(
    variables, x, view, method="embed", rngs={"syntax": jax.random.key(key)}
  )


def children(head, word):
  return [w for w, parent in enumerate(head) if parent == word != w]


def by_loops(code_of):
  """x + code of each real subword's word; code_of(sentence, word)."""
  out = np.array(X, np.float64)
  for b, (head, _, word, parsed) in enumerate(SENTENCES):
    for s, item in enumerate(word):
      if parsed and item >= 0:
        out[b, s] += code_of(b, head, item)
  return out


def real(x_BSD):
  """A copy with zeros in pads."""
  return np.where(np.asarray(VIEW.real_BS)[..., None], np.asarray(x_BSD), 0)


def path_code(head, word, branches, levels, decays):
  """Shiv & Quirk, pushed from the root down: the stack moves, a branch enters."""
  size = branches * levels
  copies = []
  for p in decays:
    stack = [0.0] * size
    for parent, child in reversed(
      list(zip(graph.chain(head, word)[1:], graph.chain(head, word)))
    ):
      which = min(children(head, parent).index(child), branches - 1)
      entering = [float(i == which) for i in range(branches)]
      stack = (entering + [p * old for old in stack])[:size]
    norm = math.sqrt((1 - p * p) * D / 2)
    copies += [norm * index for index in stack]
  return np.array(copies + [0.0] * (D - len(copies)))


# With more levels than any tree has, one level, one branch; 24 = 2 · 12 dimensions
# or less: the last ones are 0.
@pytest.mark.parametrize(
  "branches, levels", [(4, 3), (2, 2), (1, 7), (3, 1), (5, 2), (24, 1), (1, 24)]
)
def test_path_against_loops(branches, levels):
  spec = TreePosition(branches=branches, levels=levels)
  logits = RNG.normal(size=D // (branches * levels))
  decays = 1 / (1 + np.exp(-logits))
  out = embedded(spec, {"logit_C": logits})
  expected = by_loops(
    lambda b, head, word: path_code(head, word, branches, levels, decays)
  )
  np.testing.assert_allclose(real(out), real(expected), atol=3e-6)
  np.testing.assert_array_equal(  # pads, EOS, and no tree
    np.asarray(out)[np.asarray(VIEW.word_BS) < 0],
    X[np.asarray(VIEW.word_BS) < 0],
  )
  np.testing.assert_array_equal(out[-1], X[-1])


def test_decays_begin_apart():
  spec = TreePosition(branches=2, levels=3)
  params = spec.make(AT).init(jax.random.key(0), X, FULL, method="embed")
  result = jax.nn.sigmoid(params["params"]["logit_C"])
  np.testing.assert_allclose(result, [0.2, 0.4, 0.6, 0.8], atol=1e-6)


def test_laplacian_against_loops():
  spec = TreePosition(kind="laplacian", eigenvectors=5)
  projection = RNG.normal(size=(5, D))
  out = embedded(spec, {"projection_ED": projection})

  def code(b, head, word):
    (vector_WE,) = eigenvectors([np.array(head)])
    return sum(float(vector_WE[word, e]) * projection[e] for e in range(5))

  expected = by_loops(code)
  np.testing.assert_allclose(real(out), real(expected), atol=2e-6)
  np.testing.assert_array_equal(out[-1], X[-1])
  np.testing.assert_array_equal(out[3, 0], X[3, 0])  # one word: none


def test_signs_are_of_an_eigenvector_of_a_sentence_and_of_training():
  spec = TreePosition(kind="laplacian", eigenvectors=4)
  params = {"projection_ED": np.eye(4, D)}  # each has a dimension of its own
  train = dataclasses.replace(FULL, train=True)
  still = np.asarray(embedded(spec, params) - X)
  seen = set()
  for key in range(8):
    out = np.asarray(embedded(spec, params, train, key=key) - X)
    for b in (0, 1, 2):
      signs = []
      for e in range(4):
        same, turned = (
          np.allclose(out[b, :, e], sign * still[b, :, e], atol=1e-6)
          for sign in (1, -1)
        )
        assert same != turned
        signs.append(same)
      seen.add((b, *signs))
  assert len(seen) > 15  # of 24 draws, of 48 there are
  same = dataclasses.replace(spec, **spec.noise_free_options)
  np.testing.assert_array_equal(
    embedded(same, params, train), embedded(same, params)
  )
  assert TreePosition().noise_free_options == {}


def test_depth_against_loops():
  out = embedded(TreePosition(kind="depth"), {})

  def code(b, head, word):
    depth = len(graph.chain(head, word)) - 1
    rates = [10_000 ** (-i / (D // 2 - 1)) for i in range(D // 2)]
    sines, cosines = (
      [f(depth * rate) for rate in rates] for f in (math.sin, math.cos)
    )
    return np.array(sines + cosines)[::-1]

  np.testing.assert_allclose(real(out), real(by_loops(code)), atol=2e-6)
  np.testing.assert_array_equal(out[-1], X[-1])


@pytest.mark.parametrize("logit", [-100.0, -30.0, 17.0, 30.0, 100.0])
def test_decays_near_0_and_1_have_finite_gradients(logit):
  spec = TreePosition(branches=2, levels=3)

  def loss(logit_C):
    return jnp.sum(embedded(spec, {"logit_C": logit_C}) ** 2)

  value, gradient = jax.value_and_grad(loss)(jnp.full(4, logit))
  assert np.isfinite(value) and np.isfinite(np.asarray(gradient)).all()


@pytest.mark.parametrize("kind", ["path", "laplacian", "depth"])
def test_what_is_published_is_the_cosine_of_two_vectors(kind):
  spec = TreePosition(kind=kind, branches=2, levels=3, eigenvectors=3)
  part = spec.make(AT)
  params = part.init(jax.random.key(1), X, FULL, method="embed")
  out, state = part.apply(params, X, FULL, method="embed", mutable=[COLLECTION])
  (result,) = Maps.of(state).find(kind="alike_BQM", part="it", layer=-1)
  code = np.asarray(out - X, np.float64)
  for b, q, m, *_ in graph.pairs():
    one, other = code[b, q], code[b, m]
    sizes = np.linalg.norm(one) * np.linalg.norm(other)
    cosine = one @ other / sizes if sizes > 1e-5 else 0.0
    assert abs(float(result.value[b, q, m]) - cosine) < 2e-5


@pytest.mark.parametrize(
  "options, said",
  [
    ({"levels": 5}, "levels=5: branches · levels = 20 dimensions"),
    ({"kind": "laplacian", "eigenvectors": 17}, "eigenvectors=17: a batch"),
    ({"kind": "depth", "levels": 3}, "levels=3 does nothing with kind='depth'"),
    (
      {"flip": False},
      "flip=False does nothing with kind='path'; leave it at True",
    ),
  ],
)
def test_rejects_invalid_options(options, said):
  with pytest.raises(InputError, match="tree_position"):
    check_part("encoder", "tree_position", options)
  with pytest.raises(InputError) as error:
    check_part("encoder", "tree_position", options)
  assert said in str(error.value)
