"""Scores of attention: all modifiers by loops, and special cases by hand."""

import dataclasses
import math

import cases
import control_trees
import jax
import jax.numpy as jnp
import numpy as np
import paper_references as papers
import pytest
from cases import (
  FEATURES,
  HEADS,
  KEY,
  QUERY,
  SCORE,
  B,
  K,
  S,
  Sentence,
  heads_of,
  normal,
  rescore,
)
from models_under_test import batch_of, parameters, plan_of
from models_under_test import sentence as pair_of
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.syntax import SentenceFeatures, tree_bias
from jaxsyn.syntax.dasa import Dasa
from jaxsyn.syntax.dbsa import Dbsa
from jaxsyn.syntax.dependency_relative import DependencyRelative
from jaxsyn.syntax.given_weighting import GivenWeighting
from jaxsyn.syntax.linear_bias import LinearBias
from jaxsyn.syntax.localness import Localness
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.syntax.parent_scaled import ParentScaled
from jaxsyn.syntax.relative import Relative
from jaxsyn.syntax.sisa import Sisa
from jaxsyn.syntax.tree_bias import TreeBias
from jaxsyn.syntax.tree_scaled import TreeScaled

WEIGHT, MIXED = jax.nn.softmax(normal(B, HEADS, S, S)), normal(B, S, HEADS, K)
WITH_KEYS = FEATURES.replace(query_BQHK=QUERY, key_BMHK=KEY)
ALL = None


def rows(cls, reference, *options):
  """Entries of the table: options of modifier and reference, and the heads."""
  return [(cls, reference, *one) for one in options]


TABLE = [
  *rows(
    ParentScaled,
    papers.Parent,
    ({"sigma": 1.5}, (0, 1)),
    ({"apply": "add", "normalise": "peak1"}, ALL),
    ({"apply": "add_log", "sigma": 1.5}, (0, 1)),
    ({"weighting": "parent_only"}, (2, 0)),
    ({"weighting": "parent_only", "apply": "add"}, (2, 0)),
    ({"weighting": "parent_only", "apply": "add_log"}, (2, 0)),
  ),
  *rows(
    TreeScaled,
    papers.Tree,
    ({}, (1,)),
    ({"sigma": 2.5, "normalise": "peak1"}, ALL),
    ({"apply": "add", "sigma": 2.5}, (1,)),
    ({"apply": "add_log", "sigma": 2.5}, (1,)),
  ),
  *rows(
    Dasa,
    papers.Dasa,
    ({"normalise": "longest", "apply": "multiply", "strength": 0.7}, ALL),
    ({"normalise": "inverse", "apply": "multiply", "strength": 0.7}, (2,)),
    ({"normalise": "rows", "apply": "add", "strength": 0.7}, ALL),
  ),
  *rows(
    TreeBias,
    papers.Path,
    ({"kind": "distance", "edges": False, "clip": 2, "max_edges": 3}, ALL),
    ({"kind": "distance", "edges": True, "clip": 8, "max_edges": 9}, (2, 0)),
    ({"kind": "steps", "edges": True, "clip": 2, "max_edges": 3}, ALL),
    ({"kind": "steps", "edges": False, "clip": 8, "max_edges": 9}, (2, 0)),
  ),
  *rows(
    Localness,
    papers.Localness,
    ({"window": "fixed", "width": 3.0}, ALL),
    ({"window": "layer"}, (1,)),
    ({"window": "query"}, (2, 0)),
  ),
  # Few labels and many are computed in different ways.
  *rows(
    Relative,
    papers.Related,
    ({"clip": 2}, ALL),
    ({"clip": 5}, (2, 0)),
    ({"clip": 2, "keys": False}, ALL),
    ({"clip": 2, "values": False}, ALL),
  ),
  *rows(
    DependencyRelative,
    papers.TreeRelated,
    ({"label": "depth", "clip": 1}, ALL),
    ({"label": "depth", "clip": 4}, ALL),
    ({"label": "distance", "clip": 1}, (1,)),
    ({"label": "distance", "clip": 4}, ALL),
  ),
  (Sisa, papers.Sisa, {}, (2, 0)),
  (Dbsa, papers.Dbsa, {}, (1,)),
]


# Tolerances of scores that are computed from queries and keys, in float32.
TOLERANCES = {
  Localness: {"rtol": 2e-5, "atol": 2e-5},
  Sisa: {"rtol": 1e-7, "atol": 2e-5},
  Dbsa: {"rtol": 1e-7, "atol": 2e-5},
  Relative: {"rtol": 1e-7, "atol": 1e-5},
  DependencyRelative: {"rtol": 1e-7, "atol": 1e-5},
}


def params_of(spec):
  if spec.is_shared:
    site = dataclasses.replace(cases.SITE, layer=-1)
    return cases.random_params(
      spec, "make_shared_features", WITH_KEYS, site=site
    )
  return cases.random_params(spec, "rescore", SCORE, WITH_KEYS)


@pytest.mark.parametrize("cls, reference, options, heads", TABLE)
def test_scores_and_values_equal_loops(
  monkeypatch, cls, reference, options, heads
):
  reference, options = reference(**options), dict(options)
  if cls is TreeBias:
    monkeypatch.setattr(tree_bias, "MAX_EDGES", options.pop("max_edges"))
  spec = cls(**options, heads=heads)
  params = params_of(spec)
  expected = np.array(MIXED, np.float64)

  def head_of(b, sentence, i, h):
    size = len(sentence.word)
    q, k = QUERY[b, :size, h] * math.sqrt(K), KEY[b, :size, h]
    q, k, score = (x.astype(float) for x in (q, k, SCORE[b, h, :size, :size]))
    return papers.Head(sentence, score, q, k, params, i)

  def score_of(score, sentence, i, q, m):
    b = cases.SENTENCES.index(sentence)
    return reference.score(head_of(b, sentence, i, heads_of(spec)[i]), q, m)

  score = rescore(spec, params=params)
  no_tree = not reference.reads_tree
  assert_allclose(
    cases.real_pairs(score),
    cases.expected_scores(spec, score_of, no_tree=no_tree),
    **TOLERANCES.get(cls, {"rtol": 2e-6, "atol": 1e-6}),
  )
  if type(reference).value is papers.Plain.value:
    return
  for b, sentence in enumerate(cases.SENTENCES):
    if reference.reads_tree and not sentence.parsed:
      continue
    for i, h in enumerate(heads_of(spec)):
      head = head_of(b, sentence, i, h)
      for q, m in np.ndindex(len(sentence.word), S):  # padding has labels too
        expected[b, q, h] += WEIGHT[b, h, q, m] * reference.value(head, q, m)
  mixed = cases.run(spec, "mix", MIXED, WEIGHT, FEATURES, params=params)
  assert_allclose(
    *(cases.real_subwords(x.reshape(B, S, -1)) for x in (mixed, expected)),
    atol=1e-5,
  )


# "The monkey eats a banana", one subword per word, and EOS.
MONKEY = Sentence((0, 1, 2, 3, 4, -1), (1, 2, 2, 4, 2))
WORDS, EOS = 5, 5
PHI = [0.398942, 0.241971, 0.053991, 0.004432, 0.000134]  # standard normal


def rescored(spec, sentence=MONKEY, *, count=1, key=0, **more):
  """Scores of copies of a sentence, without padding, and the scores before."""
  features = cases.features_of([sentence] * count, **more)
  B, S = features.real_BS.shape
  score = np.random.default_rng(0).normal(size=(B, 2, S, S)).astype(np.float32)
  out = np.asarray(rescore(spec, score, features, key=key))
  size = len(sentence.word)
  return out[..., :size, :size], score[..., :size, :size]


def test_given_weights_are_multiplied():
  matrix_BSS, matrix_BHSS = normal(B, S, S), normal(B, 3, S, S)
  features = FEATURES.replace(weighting_BSS=matrix_BSS)
  out = np.asarray(rescore(GivenWeighting(heads=(1,)), features=features))
  assert_array_equal(out[:, ::2], SCORE[:, ::2])
  assert_array_equal(out[:, 1], SCORE[:, 1] * matrix_BSS)
  features = FEATURES.replace(weighting_BHSS=matrix_BHSS)
  out = rescore(GivenWeighting(heads=ALL), features=features)
  assert_array_equal(out, SCORE * matrix_BHSS)
  assert_array_equal(rescore(GivenWeighting(heads=ALL)), SCORE)


def test_weights_of_pascal_by_hand():
  out, score = rescored(ParentScaled(heads=(0,)))
  parents = [1, 2, 2, 4, 2]
  expected = [[PHI[abs(m - p)] for m in range(WORDS)] for p in parents]
  words = np.s_[0, 0, :WORDS, :WORDS]
  assert_allclose(out[words], expected * score[words], atol=1e-5)
  assert_array_equal(out[0, 1:], score[0, 1:])
  # A parent of two subwords, middle 3.5: φ(.5) at 3 and 4, φ(1.5) at 2 and 5.
  middle = np.full((1, 8), 3.5)
  out, score = rescored(ParentScaled(heads=(0,)), parent_mid_BS=middle)
  expected = [0.12952, 0.35207, 0.35207, 0.12952]
  assert_allclose(out[0, 0, 0, 2:], expected * score[0, 0, 0, 2:], atol=1e-5)


def test_weights_of_deps_san_by_hand():
  out, score = rescored(TreeScaled())
  # Row of "eats": φ(2), φ(1), φ(0), φ(2), φ(1), far. Row of EOS: φ(0) at itself.
  expected = np.array([*(PHI[d] for d in (2, 1, 0, 2, 1)), 0])
  assert_allclose(out[0, 1, 2], expected * score[0, 1, 2], atol=2e-5)
  expected = np.array([0] * 5 + [PHI[0]])
  assert_allclose(out[0, 1, EOS], expected * score[0, 1, EOS], atol=2e-5)


@pytest.mark.parametrize("weighting", ["gaussian", "parent_only"])
def test_ignoring_samples_each_sentence_head_and_query(weighting):
  score = np.ones((8, 2, 64, 16), np.float32)
  features = SentenceFeatures(
    real_BS=np.ones((8, 16), bool), parent_mid_BS=np.ones((8, 64))
  )

  def ignoring(rate, train):
    spec = ParentScaled(heads=ALL, weighting=weighting, ignore=rate)
    return np.asarray(rescore(spec, score, features.replace(train=train)))

  plain, out = ignoring(0.0, True), ignoring(0.3, True)
  is_ignored_BHQ = (out == 1).all(-1)
  assert_array_equal(out[~is_ignored_BHQ], plain[~is_ignored_BHQ])
  # 1,024 samples with probability 0.3: five standard deviations are 0.072.
  assert abs(is_ignored_BHQ.mean() - 0.3) < 0.072
  assert not np.array_equal(is_ignored_BHQ[:, 0], is_ignored_BHQ[:, 1])
  assert not np.array_equal(is_ignored_BHQ[0], is_ignored_BHQ[1])
  assert_array_equal(ignoring(0.3, False), plain)
  assert (ignoring(1.0, True) == 1).all()


@pytest.mark.parametrize("apply", ["multiply", "add", "add_log"])
def test_gradients_of_far_pairs_are_finite(apply):
  spec = TreeScaled(apply=apply, sigma=0.01)
  loss = jax.jit(lambda score: jnp.sum(jax.nn.softmax(rescore(spec, score))))
  assert np.isfinite(jax.grad(loss)(jnp.ones_like(SCORE))).all()


@pytest.mark.parametrize("fill", ["far", "one", "mask"])
def test_wink_drops_pairs_in_training_and_in_evaluation_if_enabled(fill):
  options = {"sigma": 4.0, "wink": 2, "fill": fill}
  out, score = rescored(TreeScaled(**options), train=True)
  plain, _ = rescored(TreeScaled(sigma=4.0))
  edges = [
    [MONKEY.word_edges(q, m) or 0 for m in MONKEY.word] for q in MONKEY.word
  ]
  expected = {"far": 0 * score, "one": score, "mask": 0 * score - 1e9}[fill]
  assert_array_equal(out, np.where(np.array(edges) > 2, expected, plain))
  assert_array_equal(rescored(TreeScaled(**options))[0], plain)
  always = TreeScaled(**options, wink_at_evaluation=True)
  assert_array_equal(rescored(always)[0], out)


@pytest.mark.parametrize(
  "noise, fill",
  [
    ({"wink": 1}, "one"),
    ({"random_sparse": 1.0}, "mask"),
    ({"random_sparse": 1.0}, "one"),
  ],
)
def test_pairs_without_a_path_are_never_dropped(noise, fill):
  forest = Sentence((0, 1, 2, 3, 4, -1), (0, 0, 2, 2, 3))
  spec = TreeScaled(**noise, fill=fill)
  trained, score = rescored(spec, forest, train=True)
  evaluated, _ = rescored(spec, forest)
  words = np.s_[..., :WORDS, :WORDS]
  assert not np.allclose(trained[words], evaluated[words])
  for out in (trained, evaluated):
    assert (out[:, :, :2, 2:] == 0).all() and (out[:, :, 2:5, :2] == 0).all()
    expected = [0] * 5 + [PHI[0] * score[0, 0, EOS, EOS]]
    assert_allclose(out[0, 0, EOS], expected, rtol=1e-5)


def test_random_sparse_samples_pairs_for_all_heads():
  tree = Sentence((*range(40), -1), tuple(control_trees.random(40, 0).tolist()))
  spec = TreeScaled(sigma=10.0, random_sparse=0.1)

  def dropped(key):
    out, _ = rescored(spec, tree, train=True, count=4, key=key)
    return out[..., :40, :40] == 0

  dropped_BHQM = dropped(0)
  # 6,400 samples with probability 0.1: five standard deviations are 0.019.
  assert abs(dropped_BHQM[:, 0].mean() - 0.1) < 0.019
  assert_array_equal(dropped_BHQM[:, 0], dropped_BHQM[:, 1])
  first, second, *_ = dropped_BHQM[:, 0]
  assert not np.array_equal(first, second)
  assert not np.array_equal(first, first.T)
  assert dropped_BHQM[:, 0, np.arange(40), np.arange(40)].any()
  assert not np.array_equal(dropped(1), dropped_BHQM)
  plain = rescored(TreeScaled(sigma=10.0), tree)[0]
  assert_array_equal(rescored(spec, tree)[0], plain)


@pytest.mark.parametrize("wink", [0, 1])
def test_dropped_pairs_have_distance_k(wink):
  """RS-Sparse comes before Wink-Sparse, so that the latter drops no more."""
  spec = TreeScaled(random_sparse=1.0, random_distance=2, wink=wink)
  out, score = rescored(spec, train=True)
  expected = score[..., :WORDS, :WORDS] * PHI[2]
  assert_allclose(out[..., :WORDS, :WORDS], expected, rtol=1e-4)


def test_saturated_distances_are_far_but_may_be_dropped():
  more = {"tree_distance_BWW": jnp.where(jnp.eye(6), 0, 254)[None]}
  out, _ = rescored(TreeScaled(sigma=1000.0), **more)
  assert (out[0, :, :WORDS, :WORDS][:, ~np.eye(WORDS, dtype=bool)] == 0).all()
  spec = TreeScaled(sigma=1000.0, random_sparse=1.0, random_distance=2)
  out, score = rescored(spec, train=True, **more)
  # φ(0.002) / 1000 = 0.000398941
  expected = score[..., :WORDS, :WORDS] * 0.000398941
  assert_allclose(out[..., :WORDS, :WORDS], expected, rtol=1e-4)


def test_all_layers_share_one_table():
  batch = batch_of([pair_of(3, 4, 226, bare=17)])
  params = parameters(plan_of("tree_bias_steps_edges"), batch)
  assert {*params["encoder_tree_bias"]} == {"bias_LH", "edge_ERH"}
  for layer in ("encoder_0", "encoder_1"):
    assert "tree_bias" not in params[layer]["attention"]


LONG = 150
# Last distance of each range, for the 16 ranges of one direction of T5's encoder
# and the 32 of its decoder: from the formula in double precision, by hand at the
# limits. Of 16, range 8 + i ends before 8 · 16^((i + 1) / 8) = 8 · 2^((i + 1) / 2).
ENCODER = [*range(8), 11, 15, 22, 31, 45, 63, 90]
DECODER = [
  *range(16), 18, 20, 23, 26, 30, 34, 39, 45, 51, 58, 66, 76, 86, 98, 112
]  # fmt: skip


@pytest.mark.parametrize(
  "stack, heads, limits",
  [("encoder", ALL, ENCODER), ("decoder", (2, 0), DECODER)],
)
def test_biases_of_ranges_equal_loops(stack, heads, limits):
  spec, score = LinearBias(heads=heads), normal(1, HEADS, LONG, LONG)
  table = normal(32, len(heads_of(spec)))
  site = dataclasses.replace(cases.SITE, stack=stack)

  def with_bias(score, position_Q):
    features = SentenceFeatures(
      real_BS=jnp.ones((1, LONG), bool),
      position_Q=position_Q,
      position_M=jnp.arange(LONG),
    )
    params = {"bias_LH": table}
    return rescore(spec, score, features, params=params, site=site)

  expected = np.array(score, np.float64)
  for q, m in np.ndindex(LONG, LONG):
    if stack == "decoder" and m > q:  # has no range
      continue
    label = sum(abs(m - q) > limit for limit in limits)
    for i, h in enumerate(heads_of(spec)):
      expected[0, h, q, m] += table[label + 16 * (m > q), i]
  complete = with_bias(score, jnp.arange(LONG))
  assert_allclose(complete, expected, atol=1e-6)
  for at in (0, 140):  # decoding steps
    row = with_bias(score[:, :, at : at + 1], jnp.array([at]))
    assert_array_equal(row[:, :, 0], complete[:, :, at])


@pytest.mark.parametrize(
  "spec", [Localness(heads=(1,)), Dasa(apply="add"), Relative()], ids=str
)
def test_biases_are_published(spec):
  params = {"params": params_of(spec)}
  result, state = spec.make(cases.SITE).apply(
    params, SCORE, WITH_KEYS, method="rescore", mutable=[COLLECTION]
  )
  (bias,) = Maps.of(state).find(modifier="it")
  assert bias.address.kind in ("bias_BHQM", "bias_BQM")
  value = bias.value if bias.value.ndim == 4 else bias.value[:, None]
  expected = np.broadcast_to(value, SCORE.shape)
  assert_allclose(expected, result - SCORE, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_narrowest_window_is_finite(dtype):
  spec, params = Localness(window="query"), params_of(Localness())
  # tanh(W q) = 1 and u_d is far below 0, so that D = 0.1; P is half the length.
  params["hidden_HKK"] = np.full_like(params["hidden_HKK"], 9.0)
  params["window_HK"] = np.full_like(params["window_HK"], -99.0)
  params["centre_HK"] = np.zeros_like(params["centre_HK"])
  q, k = jnp.ones(QUERY.shape, dtype), jnp.asarray(KEY, dtype)
  out = rescore(spec, 0 * SCORE, FEATURES, q, k, params=params)
  assert out.dtype == jnp.float32  # -1250 - 1/4 would be -1248 in bfloat16
  # P = 4.5 in the first sentence: -2 (0.5 / 0.1)² = -50 at 4 and 5.
  assert_allclose(out[0, :, :, 4:6], -50.0, rtol=1e-4)
  padding = FEATURES.replace(real_BS=jnp.zeros_like(FEATURES.real_BS))
  assert np.isfinite(rescore(spec, SCORE, padding, q, k, params=params)).all()
