"""Relative positions on a tree: the paper's example, loops, each option."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, sentence

from jaxsyn.data.sentence import tree as trees
from jaxsyn.models.contract import sentence_features
from jaxsyn.syntax import AttentionSite, SentenceFeatures
from jaxsyn.syntax.dependency_relative import (
  DependencyRelative,
  depth_BQM,
)

H, K = 2, 3
WHERE = AttentionSite("encoder", 0, heads=H, width=H * K, dtype="float32")
# "My father bought a red car .": each word's parent.
EXAMPLE = np.array([1, 2, 2, 5, 5, 2, 2])

PAIRS = [sentence(5, 3, 1), sentence(3, 3, 2)]


def view_with(batch):
  view = sentence_features(batch, "source")
  position = jnp.arange(view.real_BS.shape[1])
  return view.replace(position_Q=position, position_M=position)


VIEW = view_with(batch_of(PAIRS, extra=1))
B, S = VIEW.real_BS.shape
RNG = np.random.default_rng(0)


def numbers(*shape):
  return RNG.normal(size=shape).astype(np.float32)


SCORE, WEIGHT = (
  numbers(B, H, S, S),
  np.asarray(jax.nn.softmax(numbers(B, H, S, S))),
)
QUERY, KEY, MIXED = (numbers(B, S, H, K) for _ in range(3))


def tables(labels=6):
  return {"key_LK": numbers(labels, K), "value_LK": numbers(labels, K)}


def stages(spec, params, view=VIEW, q=QUERY, weight=WEIGHT):
  """The scores and the mixed values after the part."""
  module = spec.make(WHERE)
  score = module.apply(
    {"params": params}, SCORE, q, KEY, view, method="rescore"
  )
  return score, module.apply(
    {"params": params}, MIXED, weight, view, method="mix"
  )


def labels_of(spec, view=VIEW):
  variables = {"params": tables(spec.labels)}
  return np.asarray(spec.make(WHERE).apply(variables, view, method="label_BQM"))


def example():
  """The paper's sentence, its third word of two subwords, EOS, a pad."""
  word_BS = jnp.array([[0, 1, 2, 2, 3, 4, 5, 6, -1, -1]])
  position = jnp.arange(10)
  return SentenceFeatures(
    real_BS=jnp.arange(10)[None] < 9,
    word_BS=word_BS,
    head_BW=jnp.asarray(EXAMPLE)[None],
    tree_distance_BWW=jnp.asarray(trees.tree_distance(EXAMPLE))[None],
    parsed_B=jnp.ones(1),
    position_Q=position,
    position_M=position,
  )


def test_my_father_bought_a_red_car():
  view = example()
  # Depths 2 1 0 2 2 1 1; "bought" has two subwords, each of depth 0.
  assert view.depth_BS[0].tolist() == [2, 1, 0, 0, 2, 2, 1, 1, -1, -1]
  rows = np.asarray(depth_BQM(view))[0]
  keep = [0, 1, 2, 4, 5, 6, 7]
  # Table 1, rows "My", "father", "bought".
  assert rows[0, keep].tolist() == [0, -1, -2, 0, 0, -1, -1]
  assert rows[1, keep].tolist() == [1, 0, -1, 1, 1, 0, 0]
  for bought in (2, 3):
    assert rows[bought, keep].tolist() == [2, 1, 0, 2, 2, 1, 1]
  # With l = 2 nothing is clipped: labels are 2 more. EOS and the pad
  # have label 5 with everything.
  label = labels_of(DependencyRelative(), view)[0]
  assert label[2].tolist() == [4, 3, 2, 2, 4, 4, 3, 3, 5, 5]
  assert (label[8:] == 5).all() and (label[:, 8:] == 5).all()
  # With l = 1 two edges count as one.
  label = labels_of(DependencyRelative(clip=1), view)[0]
  assert label[2].tolist() == [2, 2, 1, 1, 2, 2, 2, 2, 3, 3]
  assert label[0].tolist() == [1, 0, 0, 0, 1, 1, 0, 0, 3, 3]


def test_words_of_two_trees_are_far():
  # Two roots: distance 255 is clipped like any other, in order.
  head = np.array([0, 1])
  position = jnp.arange(2)
  view = SentenceFeatures(
    real_BS=jnp.ones((1, 2), bool),
    word_BS=position[None],
    head_BW=jnp.asarray(head)[None],
    tree_distance_BWW=jnp.asarray(trees.tree_distance(head))[None],
    position_Q=position,
    position_M=position,
  )
  label = labels_of(DependencyRelative(label="distance", clip=3), view)[0]
  assert label.tolist() == [[3, 6], [0, 3]]
  label = labels_of(DependencyRelative(clip=3), view)[0]
  assert label.tolist() == [[3, 3], [3, 3]]  # both are roots


def depth(head, word):
  return 0 if head[word] == word else 1 + depth(head, head[word])


def loops(spec, params, view=VIEW):
  """score + q · b^K and mixed + Σ weight · b^V, pair by pair."""
  score, mix = np.array(SCORE), np.array(MIXED)
  for b, pair in enumerate(PAIRS):
    if not view.parsed_B[b]:
      continue
    word, head = pair["source_word_BS"], pair["source_head_BW"]
    path = pair["source_tree_distance_BWW"]
    for h, i, j in np.ndindex(H, S, S):
      row = 2 * spec.clip + 1
      if max(i, j) < len(word) and word[i] >= 0 and word[j] >= 0:
        if spec.label == "depth":
          far = depth(head, word[j]) - depth(head, word[i])
        else:
          far = int(path[word[i], word[j]]) * (1 if j > i else -1)
        row = max(-spec.clip, min(spec.clip, far)) + spec.clip
      score[b, h, i, j] += np.dot(QUERY[b, i, h], params["key_LK"][row])
      mix[b, i, h] += WEIGHT[b, h, i, j] * np.asarray(params["value_LK"][row])
  return score, mix


@pytest.mark.parametrize("label", ["depth", "distance"])
@pytest.mark.parametrize("clip", [1, 2, 4])
def test_against_loops(label, clip):
  spec, params = (
    DependencyRelative(label=label, clip=clip),
    tables(2 * clip + 2),
  )
  for out, wanted in zip(stages(spec, params), loops(spec, params)):
    np.testing.assert_allclose(out, wanted, atol=1e-5)
