"""The letters and their check."""

import numpy as np
import pytest

from jaxsyn.shapes import agree


def test_arrays_of_one_size_agree():
  agree(score_BHQM=np.zeros((2, 4, 3, 5)), allowed_B1QM=np.zeros((2, 1, 3, 5)))


def test_nothing_is_asked_of_an_absent_array():
  agree(id_BS=np.zeros((2, 3)), weighting_BSS=None)


@pytest.mark.parametrize(
  "arrays, message",
  [
    (
      {"a_BS": np.zeros((2, 3)), "b_BS": np.zeros((2, 4))},
      "axis S: b_BS has 4",
    ),
    ({"a_BSS": np.zeros((2, 3, 4))}, "axis S: a_BSS has 4, but a_BSS has 3"),
    ({"a_BS": np.zeros(2)}, "a_BS must have axes BS"),
    ({"a_B1": np.zeros((2, 2))}, "axis 1: a_B1 has 2, but the letter 1 has 1"),
    ({"a_BX": np.zeros((2, 2))}, "X"),
  ],
)
def test_what_disagrees_is_named(arrays, message):
  with pytest.raises(ValueError, match=message):
    agree(**arrays)
