"""Features of words, seen from subwords, and the selection of heads."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import SENTENCES, Sentence, features_of

from jaxsyn.syntax.features import gather_words
from jaxsyn.syntax.heads import put_heads, take_heads

FEATURES = features_of(SENTENCES)


def each_subword(array_BS):
  """(sentence, word of the subword, value) of all subwords that are not padding."""
  for b, sentence in enumerate(SENTENCES):
    for s, word in enumerate(sentence.word):
      yield sentence, word, int(array_BS[b, s])


def test_depth_and_relation_of_subwords():
  for sentence, word, depth in each_subword(FEATURES.depth_BS):
    assert depth == (-1 if word < 0 else len(sentence.path(word)) - 1)
  for sentence, word, relation in each_subword(FEATURES.relation_BS):
    assert relation == (0 if word < 0 else sentence.relation[word])
  chain = Sentence((*range(9), -1), (0, *range(8)))
  assert features_of([chain]).depth_BS[0, :9].tolist() == list(range(9))


def test_parents_without_subwords_are_skipped():
  for sentence, word, parent in each_subword(FEATURES.parent_word_BS):
    if word < 0 or not sentence.parsed:
      assert parent == -1
    else:
      assert parent == (sentence.ancestors(word) or [word])[0]
  is_parent = np.asarray(FEATURES.is_parent_BWX)
  for b, sentence in enumerate(SENTENCES):
    expected = {
      (w, sentence.ancestors(w)[0])
      for w in set(sentence.word) - {-1}
      if sentence.ancestors(w)
    }
    assert set(zip(*np.nonzero(is_parent[b]))) == expected


def test_last_subwords_of_words():
  last = np.asarray(FEATURES.is_last_of_word_BS)
  assert last[0].nonzero()[0].tolist() == [0, 1, 3, 4, 5, 7]
  no_eos = FEATURES.replace(word_BS=jnp.array([[0, 0, 1]]))
  assert no_eos.is_last_of_word_BS.tolist() == [[False, True, True]]


def test_tree_distance_of_subwords():
  distance = np.asarray(FEATURES.tree_distance_BSS)
  for b, sentence in enumerate(SENTENCES):
    for q, m in np.ndindex(distance.shape[1:]):
      inside = max(q, m) < len(sentence.word)
      words = (sentence.word[q], sentence.word[m]) if inside else (-1, -1)
      edges = sentence.word_edges(*words)
      assert distance[b, q, m] == (255 if edges is None else edges)


def test_rejects_features_of_different_sizes():
  with pytest.raises(ValueError, match="axis S: word_BS has 7"):
    FEATURES.replace(word_BS=FEATURES.word_BS[:, :7]).check()


def test_selects_heads_and_gathers_words():
  x_BQHK = jnp.arange(24.0).reshape(1, 2, 4, 3)
  for heads in ((2,), (3, 0), (0, 1, 2, 3)):
    selected_BQHK = take_heads(heads, x_BQHK)
    np.testing.assert_array_equal(selected_BQHK, x_BQHK[:, :, np.array(heads)])
    expected = x_BQHK.at[:, :, np.array(heads)].set(-selected_BQHK)
    result = put_heads(heads, -selected_BQHK, x_BQHK, axis=2)
    np.testing.assert_array_equal(result, expected)
  value_BW = jnp.array([[7, 5, 9]], jnp.uint8)
  index_BS = jnp.array([[2, -1, 0, 2]])
  gathered = gather_words(value_BW, index_BS)
  np.testing.assert_array_equal(gathered, [[9, 0, 7, 9]])
  gathered = gather_words(value_BW > 6, index_BS)
  np.testing.assert_array_equal(gathered, [[True, False, True, True]])
