"""Source dependency: units by hand, the convolution by loops, and the window."""

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
  logits,
  parameters,
  plan_of,
  sentence,
)
from numpy.testing import assert_allclose, assert_array_equal
from paper_references import unit, unit_vector

from jaxsyn.models.contract import sentence_features
from jaxsyn.plan import resolve
from jaxsyn.syntax import source_dependency
from jaxsyn.syntax.source_dependency import (
  SourceDependency,
  Surroundings,
  units,
)
from jaxsyn.syntax.windows.source_dependency import SourceDependencyWindow

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


def embed(params, x_BSD=X):
  apply = functools.partial(SPEC.make(SMALL).apply, method="embed")
  return jax.jit(apply)({"params": params}, jnp.asarray(x_BSD), FEATURES)


@pytest.mark.parametrize("kernel, length", [(3, 10), (5, 3)])
def test_vectors_equal_loops(monkeypatch, kernel, length):
  monkeypatch.setattr(source_dependency, "LENGTH", length)
  monkeypatch.setattr(source_dependency, "KERNEL", kernel)
  params = random_params(SPEC, "embed", X, FEATURES, site=SMALL)
  out = np.asarray(embed(params))
  assert_array_equal(out[..., :2], X[..., :2])
  for b, word_S in enumerate(np.asarray(FEATURES.word_BS)):
    words = sorted({*word_S.tolist()} - {-1})
    x_WD = {w: X[b, word_S == w].mean(0) for w in words}
    for s, word in enumerate(word_S):
      members = unit(FEATURES.head_BW[b].tolist(), words, word, length)
      expected = unit_vector(params["surroundings"], members, x_WD)
      assert_allclose(out[b, s, 2:], expected, atol=1e-5)


def test_each_parameter_gets_a_gradient():
  params = random_params(SPEC, "embed", X, FEATURES, site=SMALL)
  weight = normal(*X.shape)

  def loss(params, x_BSD):
    return jnp.sum(weight * embed(params, x_BSD))

  by_params, by_x = jax.jit(jax.grad(loss, (0, 1)))(params, jnp.asarray(X))
  for leaf in jax.tree.leaves(by_params):
    assert np.isfinite(leaf).all() and np.abs(leaf).min() > 0
  padding_BS = ~np.asarray(FEATURES.real_BS)
  assert np.isfinite(by_x).all()
  assert not by_x[padding_BS][:, 2:].any()  # replaced, and in no unit


DOUBLE = plan_of("gru_double_sdr")
BASELINE = plan_of("gru_global")


def test_annotations_of_the_window_encode_the_vectors_of_relatives():
  batch = batch_of([sentence(5, 6, 1), sentence(1, 4, 2), sentence(6, 5, 3)])
  params, features = (
    parameters(DOUBLE, batch),
    sentence_features(batch, "source"),
  )

  @functools.partial(jax.jit, static_argnames="model")
  def encode(model, id_BS):
    inputs = id_BS, features
    encoded = model.apply({"params": params}, *inputs, method="encode")
    return encoded.annotations

  values = params["decoder_0"]["cross"]["source_dependency"]["surroundings"]
  id_BS, model = batch["source_id_BS"], DOUBLE.recipe.model
  bound = model.bind({"params": params})
  x_BSD = bound.source_table(id_BS)
  v_BSP = Surroundings(6).apply({"params": values}, x_BSD, features)
  first, second = encode(model, id_BS)
  assert_allclose(second, bound.encoder[1](v_BSP, features), atol=1e-5)
  (plain,) = encode(BASELINE.recipe.model, id_BS)
  assert_array_equal(first, plain)
  # The second sentence has one word, whose unit is empty.
  is_first_BS = jnp.arange(id_BS.shape[1]) == 0
  others = encode(model, jnp.where(is_first_BS, 23 - id_BS, id_BS))
  assert not np.allclose(first[1], others[0][1], atol=1e-3)
  assert_array_equal(second[1], others[1][1])
  assert not np.allclose(second[0], others[1][0], atol=1e-3)


def test_the_window_falls_back_to_global_attention_without_a_tree():
  batch = batch_of([sentence(5, 6, 1), sentence(1, 4, 2), sentence(6, 5, 3)])
  windows = (("source_dependency", SourceDependencyWindow(size=6)),)
  family = dataclasses.replace(DOUBLE.spec.architecture, windows=windows)
  model = dataclasses.replace(DOUBLE.config.model, family=family)
  single = resolve(dataclasses.replace(DOUBLE.config, model=model), JOINT)
  params = parameters(single, batch)
  batch["source_parsed_B"] = jnp.array([1, 0, 0], jnp.uint8)
  out, was = (logits(plan, params, batch) for plan in (single, BASELINE))
  assert_allclose(out[1:], was[1:], atol=1e-5)
  assert not np.allclose(out[0], was[0], atol=1e-3)
