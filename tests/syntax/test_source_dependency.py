"""Source dependency: units by hand, the convolution by loops."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SITE, Sentence, features_of, normal, random_params
from models_under_test import (
  batch_of,
  sentence,
)
from numpy.testing import assert_allclose, assert_array_equal
from paper_references import unit, unit_vector

from jaxsyn.models.contract import sentence_features
from jaxsyn.syntax import source_dependency
from jaxsyn.syntax.source_dependency import SourceDependency, units

# "The monkey eats a banana today; Good night." Two trees:
#   eats -> monkey -> The      Good -> night
#        -> banana -> a
#        -> today
THE, MONKEY, EATS, A, BANANA, TODAY, GOOD, NIGHT, NO_WORD = range(9)
HEAD = (MONKEY, EATS, EATS, BANANA, EATS, EATS, GOOD, GOOD)
UNITS = {  # parent, siblings, children
  THE: [MONKEY],
  MONKEY: [EATS, BANANA, TODAY, THE],
  EATS: [MONKEY, BANANA, TODAY],  # a root: no parent, and Good is no sibling
  A: [BANANA],
  BANANA: [EATS, MONKEY, TODAY, A],
  TODAY: [EATS, MONKEY, BANANA],
  GOOD: [NIGHT],
  NIGHT: [GOOD],
  NO_WORD: [],
}
WITHOUT_BANANA = {  # if it has no subwords
  MONKEY: [EATS, TODAY, THE],
  EATS: [MONKEY, TODAY],
  A: [],
  TODAY: [EATS, MONKEY],
}


@pytest.mark.parametrize(
  "words, length, expected",
  [
    ([0, 0, 1, 2, 3, 4, 5, 6, 7], 10, UNITS),
    (range(8), 1, {word: members[:1] for word, members in UNITS.items()}),
    (range(8), 3, {word: members[:3] for word, members in UNITS.items()}),
    ([0, 1, 2, 3, 5, 6, 7], 10, UNITS | WITHOUT_BANANA),
  ],
)
def test_units_by_hand(words, length, expected):
  features = features_of([Sentence((*words, -1), HEAD)])
  member_BWU, real_BWU = units(features, length)
  members = [
    member_U[real_U].tolist()
    for member_U, real_U in zip(np.asarray(member_BWU[0]), real_BWU[0])
  ]
  assert dict(enumerate([*members[:8], members[-1]])) == expected  # no padding


PAIRS = [sentence(9, 2, 3), sentence(4, 2, 4), sentence(1, 2, 5)]
BATCH = batch_of([*PAIRS, sentence(0, 2, 6)], extra=2)
FEATURES = sentence_features(BATCH, "source").replace(parsed_B=None)
WIDTH = 6
X = normal(*FEATURES.real_BS.shape, WIDTH)
SMALL = dataclasses.replace(SITE, width=WIDTH, heads=2, layer=-1)
SPEC = SourceDependency(size=4)


@functools.partial(jax.jit, static_argnames="module")
def apply(module, params, x_BSD, features):
  return module.apply({"params": params}, x_BSD, features, method="embed")


def embed(features=FEATURES, x_BSD=X):
  """Embeddings after the modifier, and its random parameters."""
  params = random_params(SPEC, "embed", x_BSD, features, site=SMALL)
  out = apply(SPEC.make(SMALL), params, jnp.asarray(x_BSD), features)
  return np.asarray(out), params


@pytest.fixture
def clear_caches():
  """Compiles with other constants than in other tests."""
  jax.clear_caches()
  yield
  jax.clear_caches()


@pytest.mark.usefixtures("clear_caches")
@pytest.mark.parametrize("kernel, length", [(3, 10), (5, 3)])
def test_vectors_equal_loops(monkeypatch, kernel, length):
  monkeypatch.setattr(source_dependency, "LENGTH", length)
  monkeypatch.setattr(source_dependency, "KERNEL", kernel)
  out, params = embed()
  assert_array_equal(out[..., :2], X[..., :2])
  for b, word_S in enumerate(np.asarray(FEATURES.word_BS)):
    words = sorted({*word_S.tolist()} - {-1})
    x_WD = {w: X[b, word_S == w].mean(0) for w in words}
    for s, word in enumerate(word_S):
      members = unit(FEATURES.head_BW[b].tolist(), words, word, length)
      expected = unit_vector(params["surroundings"], members, x_WD)
      assert_allclose(out[b, s, 2:], expected, atol=1e-5)


def test_each_parameter_gets_a_gradient():
  _, params = embed()
  weight, module = normal(*X.shape), SPEC.make(SMALL)

  def loss(params, x_BSD):
    return jnp.sum(weight * apply(module, params, x_BSD, FEATURES))

  by_params, by_x = jax.grad(loss, (0, 1))(params, jnp.asarray(X))
  for leaf in jax.tree.leaves(by_params):
    assert np.isfinite(leaf).all() and np.abs(leaf).min() > 0
  padding_BS = ~np.asarray(FEATURES.real_BS)
  assert np.isfinite(by_x).all()
  assert not by_x[padding_BS][:, 2:].any()  # replaced, and in no unit
