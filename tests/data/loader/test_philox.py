"""Tests Philox random numbers against the published answers."""

import numpy as np
import pytest

from jaxsyn.data.loader.philox import philox


@pytest.mark.parametrize(
  ("counter", "key", "expected"),
  [
    ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
      "243f6a88 85a308d3 13198a2e 03707344",
      "a4093822 299f31d0",
      "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
  ],
)
def test_known_answers(counter, key, expected):
  """Of Random123, kat_vectors, philox4x32 10."""
  counter, key, expected = (
    [int(word, 16) for word in words.split()]
    for words in (counter, key, expected)
  )
  assert [int(x) for x in philox(tuple(key), counter)] == expected


def test_many_counters_equal_single_ones():
  count_I = np.array([0, 1, 7, 2**32 - 1])
  result = philox((5, 6), (count_I, 2, 3, count_I[::-1]))
  for i, (first, last) in enumerate(zip(count_I, count_I[::-1])):
    single = philox((5, 6), (int(first), 2, 3, int(last)))
    assert [int(x) for x in single] == [int(x[i]) for x in result]
