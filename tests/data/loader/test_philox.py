"""Tests Philox random numbers against the published answers."""

import numpy as np

from jaxsyn.data.loader.philox import philox

# Counter, key and numbers: Random123, kat_vectors, philox4x32 10.
KNOWN = """
00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8
ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd
243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1
"""


def test_known_answers():
  for line in KNOWN.split("\n")[1:-1]:
    numbers = [int(word, 16) for word in line.split()]
    assert philox(tuple(numbers[4:6]), numbers[:4]) == numbers[6:]


def test_many_counters_equal_single_ones():
  count_I = np.array([0, 1, 7, 2**32 - 1])
  result = np.stack(philox((5, 6), (count_I, 2, 3, count_I[::-1])), axis=1)
  for numbers, first, last in zip(result, count_I, count_I[::-1]):
    assert philox((5, 6), (int(first), 2, 3, int(last))) == numbers.tolist()
