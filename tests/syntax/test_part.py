"""Facts of words, seen from subwords."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsyn.data.sentence import tree as trees
from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.heads import of_heads, onto_heads
from jaxsyn.syntax.modifier import gather_words

# "The monkey eats a banana": heads of The, monkey, eats, a, banana. The word
# monkey has two subwords; EOS and one pad follow.
HEAD_W = np.array([1, 2, 2, 4, 2])
WORD_S = np.array([0, 1, 1, 2, 3, 4, -1, -1])


@pytest.fixture
def view():
  return SentenceFeatures(
    real_BS=jnp.array([[True] * 7 + [False]]),
    word_BS=jnp.array([WORD_S]),
    head_BW=jnp.array([HEAD_W]),
    relation_BW=jnp.array([[5, 6, 7, 5, 8]]),
    tree_distance_BWW=jnp.asarray(trees.tree_distance(HEAD_W))[None],
  )


def test_depth_counts_edges_to_the_root(view):
  assert view.depth_BS[0].tolist() == [2, 1, 1, 0, 2, 1, -1, -1]


def test_depth_of_a_long_chain():
  head_BW = jnp.array([[0, 0, 1, 2, 3, 4, 5, 6, 7]])  # each on the one before
  word_BS = jnp.arange(9)[None]
  view = SentenceFeatures(
    real_BS=word_BS >= 0, word_BS=word_BS, head_BW=head_BW
  )
  assert view.depth_BS[0].tolist() == list(range(9))


def test_relations_of_subwords(view):
  assert view.relation_BS[0].tolist() == [5, 6, 6, 7, 5, 8, 0, 0]


def test_distances_of_subwords(view):
  distance_SS = np.asarray(view.tree_distance_BSS[0])
  # Rows of the words: The, monkey (twice), eats.
  assert distance_SS[0].tolist() == [0, 1, 1, 2, 4, 3, 255, 255]
  assert distance_SS[1].tolist() == [1, 0, 0, 1, 3, 2, 255, 255]
  assert distance_SS[2].tolist() == distance_SS[1].tolist()
  assert distance_SS[3].tolist() == [2, 1, 1, 0, 2, 1, 255, 255]
  assert (distance_SS[6:] == 255).all()


def test_rejects_features_of_different_sizes(view):
  with pytest.raises(ValueError, match="axis S: word_BS has 7"):
    view.replace(word_BS=view.word_BS[:, :7]).check()


def test_selects_heads_and_gathers_words():
  x_BQHK = jnp.arange(24.0).reshape(1, 2, 4, 3)
  for heads in ((2,), (3, 0), (0, 1, 2, 3)):
    mine_BQHK = of_heads(heads, x_BQHK)
    np.testing.assert_array_equal(mine_BQHK, x_BQHK[:, :, np.array(heads)])
    wanted = x_BQHK.at[:, :, np.array(heads)].set(-mine_BQHK)
    got = onto_heads(heads, -mine_BQHK, x_BQHK, axis=2)
    np.testing.assert_array_equal(got, wanted)
  fact_BW = jnp.array([[7, 5, 9]], jnp.uint8)
  index_BS = jnp.array([[2, -1, 0, 2]])
  np.testing.assert_array_equal(gather_words(fact_BW, index_BS), [[9, 0, 7, 9]])
  np.testing.assert_array_equal(
    gather_words(fact_BW > 6, index_BS), [[True, False, True, True]]
  )
