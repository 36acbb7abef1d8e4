"""Features of words, seen from subwords, in cases that no modifier shows."""

import jax.numpy as jnp
import pytest
from cases import FEATURES, Sentence, features_of

from jaxsyn.syntax.features import gather_words


def test_depths_and_parents_in_unusual_trees():
  chain = Sentence((*range(9), -1), (0, *range(8)))
  assert features_of([chain]).depth_BS[0, :9].tolist() == list(range(9))
  # The root has no subwords, so that its child counts as a root.
  no_root = features_of([Sentence((1, 2, -1), (0, 0, 1))])
  assert no_root.parent_word_BS[0, :3].tolist() == [1, 1, -1]
  # Parents without subwords are skipped, and no tree has no parents.
  assert FEATURES.parent_word_BS[2, :6].tolist() == [0, 0, 2, 2, 0, -1]
  assert FEATURES.parent_word_BS[5].tolist() == [-1] * len(FEATURES.word_BS[5])


def test_last_subwords_of_words():
  last = FEATURES.is_last_of_word_BS
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


def test_gathers_words():
  value_BW, index_BS = jnp.array([[7, 5, 9]]), jnp.array([[2, -1, 0, 2]])
  assert gather_words(value_BW, index_BS).tolist() == [[9, 0, 7, 9]]
  gathered = gather_words(value_BW > 6, index_BS)
  assert gathered.tolist() == [[True, False, True, True]]
