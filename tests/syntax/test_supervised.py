"""Parsing heads: targets by loops, published maps, gold parents."""

import dataclasses

import cases
import jax
import numpy as np
import pytest
from cases import FEATURES, HEADS, SENTENCES, Sentence
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.syntax.dbsa import Dbsa
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.syntax.sisa import Sisa
from jaxsyn.syntax.supervised import chain_BS, first_of_parent_BS

# a@@ b | c@@ d | e, EOS, padding; the second word is the root.
EXAMPLE = cases.features_of([Sentence((0, 0, 1, 1, 2, -1), (1, 1, 1))])
S = EXAMPLE.real_BS.shape[1]
CHAIN = [1, 2, 3, 3, 2, -1, -1, -1]
SITES = {
  stack: dataclasses.replace(cases.SITE, stack=stack)
  for stack in ("encoder", "decoder")
}


def test_targets_equal_loops():
  first, chain = first_of_parent_BS(FEATURES), chain_BS(FEATURES)
  for b, sentence in enumerate(SENTENCES):
    for i in range(first.shape[1]):
      word = sentence.word[i] if i < len(sentence.word) else -1
      if word < 0 or not sentence.parsed:
        assert first[b, i] == chain[b, i] == -1
        continue
      ancestors = sentence.ancestors(word)
      target = sentence.subwords((ancestors or [word])[0])[0]
      assert first[b, i] == target
      if sentence.word[i + 1] == word:
        assert chain[b, i] == i + 1
      else:
        assert chain[b, i] == (target if ancestors else i)
  assert chain_BS(EXAMPLE).tolist() == [CHAIN]


def after(spec, stack, features):
  """Scores after the modifier and its maps, for the same random numbers."""
  rng = np.random.default_rng(0)
  score, q, k = (
    rng.normal(size=shape).astype(np.float32)
    for shape in ((1, HEADS, S, S), *[(1, S, HEADS, cases.K)] * 2)
  )
  features = features.replace(query_BQHK=q, key_BMHK=k)
  site = SITES[stack]
  params = cases.random_params(spec, "rescore", score, features, site=site)
  out, state = spec.make(site).apply(
    {"params": params}, score, features, method="rescore", mutable=[COLLECTION]
  )
  assert ("bias_HK" in params) == getattr(spec, "bias", True)
  maps = {p.address.kind: p.value for p in Maps.of(state).published}
  return np.asarray(out), maps


@pytest.mark.parametrize(
  "stack, full_context",
  [("encoder", False), ("decoder", False), ("decoder", True)],
)
def test_publishes_the_mean_weight_of_the_heads(stack, full_context):
  features = EXAMPLE.replace(full_context=full_context)
  out, maps = after(Dbsa(heads=(0, 2), bias=False), stack, features)
  visible = np.broadcast_to(features.real_BS[:, None, None], out.shape).copy()
  if stack == "decoder" and not full_context:
    visible &= np.tril(np.ones((S, S), bool))
  weight = np.asarray(jax.nn.softmax(np.where(visible, out, -np.inf), axis=-1))
  log_parse = maps["log_parse_BQM"]
  expected = weight[:, [0, 2]].mean(1)
  assert_allclose(np.exp(log_parse), expected, atol=1e-6)
  assert np.array_equal(np.isneginf(log_parse), ~visible[:, 0])
  assert maps["parent_BQ"].tolist() == [CHAIN]


def test_rows_of_the_next_state_are_published_by_subword():
  """With rows="input", row t + 1 and column h + 1 belong to subwords t and h."""
  out, maps = after(Dbsa(rows="input"), "decoder", EXAMPLE)
  visible = np.tril(np.ones((S, S), bool)) & np.asarray(EXAMPLE.real_BS)[0]
  weight = jax.nn.softmax(np.where(visible, out[0, 0], -np.inf), -1)
  parse = np.exp(maps["log_parse_BQM"][0])
  assert_allclose(parse[:5, :5], weight[1:6, 1:6], atol=1e-6)
  assert not parse[5:].any() and not parse[:, 5:].any()
  assert maps["parent_BQ"].tolist() == [CHAIN]


@pytest.mark.parametrize(
  "spec, stack, columns",
  [
    (Sisa(gold="always"), "encoder", {0: 2, 1: 2, 2: 2, 3: 2, 4: 2}),
    (Dbsa(gold="training"), "encoder", {0: 1, 1: 2, 2: 3, 3: 3, 4: 2}),
    # In a decoder, only targets on the left are visible.
    (Dbsa(gold="training"), "decoder", {3: 3, 4: 2}),
    # One row and one column later.
    (Dbsa(gold="training", rows="input"), "decoder", {4: 4, 5: 3}),
  ],
)
def test_gold_parents_get_all_the_weight(spec, stack, columns):
  out, maps = after(spec, stack, EXAMPLE.replace(train=True))
  predicted = dataclasses.replace(spec, gold="off")
  expected, published = after(predicted, stack, EXAMPLE)
  weight = np.asarray(jax.nn.softmax(out[0, 0], -1))
  for row in range(S):
    if row in columns:
      assert weight[row].tolist() == np.eye(S)[columns[row]].tolist()
    else:
      assert_array_equal(out[0, :, row], expected[0, :, row])
  assert_array_equal(  # the loss supervises the predicted scores
    maps["log_parse_BQM"], published["log_parse_BQM"]
  )
  evaluated, _ = after(spec, stack, EXAMPLE)
  is_oracle = spec.gold == "always"
  assert_array_equal(evaluated, out if is_oracle else expected)
  no_tree = EXAMPLE.replace(head_BW=None, train=True)
  assert_array_equal(after(spec, stack, no_tree)[0], expected)
