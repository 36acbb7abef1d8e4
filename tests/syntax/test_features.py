"""Features of words, seen from subwords, and the selection of heads."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import FEATURES, SENTENCES, Sentence, features_of
from numpy.testing import assert_array_equal

from jaxsyn.syntax.features import gather_words
from jaxsyn.syntax.heads import on_heads, put_heads, take_heads


def test_words_of_subwords_equal_loops():
  parent_BS = np.asarray(FEATURES.parent_word_BS)
  depth_BS, relation_BS = FEATURES.depth_BS, FEATURES.relation_BS
  for b, sentence in enumerate(SENTENCES):
    for s, word in enumerate(sentence.word):
      expected = (-1, 0, -1)
      if word >= 0:  # parents without subwords are skipped
        parent = (sentence.ancestors(word) or [word])[0]
        parent = parent if sentence.parsed else -1
        depth = len(sentence.path(word)) - 1
        expected = (depth, sentence.relation[word], parent)
      result = depth_BS[b, s], relation_BS[b, s], parent_BS[b, s]
      assert tuple(map(int, result)) == expected
    parents = {w: sentence.ancestors(w)[:1] for w in set(sentence.word) - {-1}}
    edges = {(word, one[0]) for word, one in parents.items() if one}
    is_parent_WX = np.asarray(FEATURES.is_parent_BWX[b])
    assert {*zip(*np.nonzero(is_parent_WX))} == edges
  chain = Sentence((*range(9), -1), (0, *range(8)))
  assert features_of([chain]).depth_BS[0, :9].tolist() == list(range(9))
  # The root has no subwords, so that its child counts as a root.
  no_root = features_of([Sentence((1, 2, -1), (0, 0, 1))])
  assert no_root.parent_word_BS[0, :3].tolist() == [1, 1, -1]


def test_tree_distance_of_subwords():
  distance = np.asarray(FEATURES.tree_distance_BSS)
  for b, sentence in enumerate(SENTENCES):
    for q, m in np.ndindex(distance.shape[1:]):
      inside = max(q, m) < len(sentence.word)
      words = (sentence.word[q], sentence.word[m]) if inside else (-1, -1)
      edges = sentence.word_edges(*words)
      assert distance[b, q, m] == (255 if edges is None else edges)


def test_last_subwords_of_words():
  last = np.asarray(FEATURES.is_last_of_word_BS)
  assert last[0].nonzero()[0].tolist() == [0, 1, 3, 4, 5, 7]
  no_eos = FEATURES.replace(word_BS=jnp.array([[0, 0, 1]]))
  assert no_eos.is_last_of_word_BS.tolist() == [[False, True, True]]


@pytest.mark.parametrize(
  ("name", "derived"),
  [
    ("head_BW", "parent_word_BS"),
    ("head_BW", "depth_BS"),
    ("relation_BW", "relation_BS"),
    ("tree_distance_BWW", "tree_distance_BSS"),
  ],
)
def test_missing_features_are_named(name, derived):
  with pytest.raises(ValueError, match=f"no {name}.*required_features"):
    getattr(FEATURES.replace(**{name: None}), derived)


def test_rejects_features_of_different_sizes():
  with pytest.raises(ValueError, match="axis S: word_BS has 7"):
    FEATURES.replace(word_BS=FEATURES.word_BS[:, :7]).check()


@pytest.mark.parametrize("heads", [(2,), (3, 0), (0, 1, 2, 3)])
def test_selects_heads(heads):
  x_BQHK = jnp.arange(24.0).reshape(1, 2, 4, 3)
  selected_BQHK = take_heads(heads, x_BQHK)
  assert_array_equal(selected_BQHK, x_BQHK[:, :, np.array(heads)])
  expected = x_BQHK.at[:, :, np.array(heads)].set(-selected_BQHK)
  result = put_heads(heads, -selected_BQHK, x_BQHK, axis=2)
  assert_array_equal(result, expected)
  result = on_heads(heads, -x_BQHK, x_BQHK, axis=2)
  assert_array_equal(result, expected)


def test_gathers_words():
  value_BW, index_BS = jnp.array([[7, 5, 9]]), jnp.array([[2, -1, 0, 2]])
  assert gather_words(value_BW, index_BS).tolist() == [[9, 0, 7, 9]]
  gathered = gather_words(value_BW > 6, index_BS)
  assert gathered.tolist() == [[True, False, True, True]]
