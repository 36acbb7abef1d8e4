"""Units ⟨parent, siblings, children⟩ of source dependency, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.source_dependency import units

# The monkey eats a banana today; Good night. Two trees:
#   eats -> monkey -> The      Good -> night
#        -> banana -> a
#        -> today
THE, MONKEY, EATS, A, BANANA, TODAY, GOOD, NIGHT, NOBODY = range(9)
HEAD_W = [MONKEY, EATS, EATS, BANANA, EATS, EATS, GOOD, GOOD]
UNITS = {  # parent, siblings, children
  THE: [MONKEY],
  MONKEY: [EATS, BANANA, TODAY, THE],
  EATS: [MONKEY, BANANA, TODAY],  # a root: no parent, and Good no sibling
  A: [BANANA],
  BANANA: [EATS, MONKEY, TODAY, A],
  TODAY: [EATS, MONKEY, BANANA],
  GOOD: [NIGHT],
  NIGHT: [GOOD],
  NOBODY: [],
}


def view_of_words(word_S, head_W=HEAD_W, pads=0) -> SentenceFeatures:
  """A sentence whose subwords belong to these words; then EOS."""
  word_S = [*word_S, -1, *[-1] * pads]
  return SentenceFeatures(
    real_BS=jnp.array([[True] * (len(word_S) - pads) + [False] * pads]),
    word_BS=jnp.array([word_S]),
    head_BW=jnp.array([head_W]),
  )


def units_of(view, length):
  member_BWU, real_BWU = units(view, length)
  return {
    word: member_U[real_U].tolist()
    for word, (member_U, real_U) in enumerate(
      zip(np.asarray(member_BWU[0]), np.asarray(real_BWU[0]))
    )
  }


def test_units_of_two_trees():
  view = view_of_words([0, 0, 1, 2, 3, 4, 5, 6, 7])
  assert units_of(view, 10) == UNITS


@pytest.mark.parametrize("length", [1, 3])
def test_a_long_unit_loses_its_end(length):
  short = {word: unit[:length] for word, unit in UNITS.items()}
  assert units_of(view_of_words(range(8)), length) == short


def test_a_word_without_subwords_is_in_no_unit():
  # "banana" begins within the piece of "a".
  assert units_of(view_of_words([0, 1, 2, 3, 5, 6, 7]), 10) == UNITS | {
    MONKEY: [EATS, TODAY, THE],
    EATS: [MONKEY, TODAY],
    A: [],
    TODAY: [EATS, MONKEY],
  }


def test_heads_beyond_the_sentence_are_of_no_word():
  # Padded with 0, as if words 8 and 9 hung on "The".
  view = view_of_words(range(8), [*HEAD_W, 0, 0], pads=2)
  result = units_of(view, 10)
  assert {word: result[word] for word in range(8)} == {
    word: UNITS[word] for word in range(8)
  }
  assert result[10] == []  # nobody
