"""Source dependency: units by hand, the convolution by loops."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SITE, Sentence, features_of, normal, random_params
from models_under_test import (
  JOINT,
  batch_of,
  config_of,
  logits,
  parameters,
  placement,
  sentence,
)
from paper_references import unit, unit_vector

from jaxsyn.models.contract import sentence_features
from jaxsyn.plan import resolve
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


def units_of(words, length=10):
  """The units of all words, and that of "no word"."""
  features = features_of([Sentence((*words, -1), HEAD)])
  member_BWU, real_BWU = units(features, length)
  found = [
    member_U[real_U].tolist()
    for member_U, real_U in zip(np.asarray(member_BWU[0]), real_BWU[0])
  ]
  return dict(enumerate([*found[:8], found[-1]]))  # without padding


def test_units_by_hand():
  assert units_of([0, 0, 1, 2, 3, 4, 5, 6, 7]) == UNITS
  for length in (1, 3):
    truncated = {word: members[:length] for word, members in UNITS.items()}
    assert units_of(range(8), length) == truncated
  # "banana" has no subwords.
  assert units_of([0, 1, 2, 3, 5, 6, 7]) == UNITS | {
    MONKEY: [EATS, TODAY, THE],
    EATS: [MONKEY, TODAY],
    A: [],
    TODAY: [EATS, MONKEY],
  }


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
@pytest.mark.parametrize("kernel, length", [(1, 10), (3, 10), (3, 2), (5, 3)])
def test_vectors_equal_loops(monkeypatch, kernel, length):
  monkeypatch.setattr(source_dependency, "LENGTH", length)
  monkeypatch.setattr(source_dependency, "KERNEL", kernel)
  out, params = embed()
  np.testing.assert_array_equal(out[..., :2], X[..., :2])
  for b, word_S in enumerate(np.asarray(FEATURES.word_BS)):
    words = sorted({*word_S.tolist()} - {-1})
    x_WD = {w: X[b, word_S == w].mean(0) for w in words}
    for s, word in enumerate(word_S):
      members = unit(FEATURES.head_BW[b].tolist(), words, word, length)
      expected = unit_vector(params["surroundings"], members, x_WD)
      np.testing.assert_allclose(out[b, s, 2:], expected, atol=1e-5)


def test_replaced_dimensions_affect_the_vectors_of_relatives():
  # Word 1 is the parent of 0 and 2; 2 is the parent of 3.
  features = features_of([Sentence((0, 1, 2, 3), (1, 1, 1, 2))])
  x = normal(1, 6, WIDTH)
  moved = x.copy()
  moved[0, 2, 2:] += 1.0
  plain, out = embed(features, x)[0], embed(features, moved)[0]
  changed = [s for s in range(4) if not np.array_equal(plain[0, s], out[0, s])]
  assert changed == [0, 1, 3]  # a sibling, the parent, a child


def test_sentences_without_a_tree_keep_their_embeddings():
  features = FEATURES.replace(parsed_B=jnp.array([1, 0, 1, 1], jnp.uint8))
  out, _ = embed(features)
  np.testing.assert_array_equal(out[1], X[1])
  np.testing.assert_array_equal(out[0], embed()[0][0])


def test_each_parameter_gets_a_gradient():
  _, params = embed()
  weight, module = normal(*X.shape), SPEC.make(SMALL)

  def loss(params, x_BSD):
    return jnp.sum(weight * apply(module, params, x_BSD, FEATURES))

  by_params, by_x = jax.grad(loss, (0, 1))(params, jnp.asarray(X))
  for leaf in jax.tree.leaves(by_params):
    assert np.isfinite(leaf).all() and np.abs(leaf).min() > 0
  assert np.isfinite(by_x).all()
  padding_BS = ~np.asarray(FEATURES.real_BS)
  assert not by_x[padding_BS][:, 2:].any()  # replaced, and in no unit


def test_works_in_a_transformer():
  parts = placement(encoder={"source_dependency": {"size": 6}})
  config = dataclasses.replace(config_of("transformer"), parts=parts)
  plan = resolve(config, JOINT)
  params = parameters(plan, BATCH)
  was = logits(plan, params, BATCH)
  last = jnp.full_like(BATCH["source_head_BW"][0], 8)
  other = dict(BATCH, source_head_BW=BATCH["source_head_BW"].at[0].set(last))
  out = logits(plan, params, other)
  assert not np.allclose(out[0], was[0], atol=1e-3)
  np.testing.assert_array_equal(out[1:], was[1:])
