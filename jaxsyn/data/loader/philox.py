"""Counter-based random numbers, which depend only on a key and a counter.

The random numbers of a word do not depend on numbers generated before, and they
are equal on all machines and in all versions. NumPy's own Philox generates one
stream at a time; this function takes many counters at once.

Source: Philox4x32-10 of Salmon et al. 2011, "Parallel Random Numbers: As Easy
as 1, 2, 3", as in their library Random123 (the test has its known answers).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85  # added to the keys after each round
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(
  key: tuple[int, int], counters: Sequence[np.ndarray | int]
) -> list[np.ndarray]:
  """Returns four random 32-bit numbers per counter (generator Philox4x32-10).

  Args:
    key: Two 32-bit numbers.
    counters: Four 32-bit words of the counters: integers, or arrays of equal
      sizes.

  Returns: four arrays of that size, uint64 below 2³².
  """
  c0, c1, c2, c3 = np.broadcast_arrays(
    *(np.asarray(word).astype(np.uint64) for word in counters)
  )
  for i in range(_ROUNDS):
    k0, k1 = (
      np.uint64((word + i * step) & 0xFFFFFFFF)
      for word, step in zip(key, _WEYL)
    )
    first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
    c0, c2 = (second >> _HALF) ^ c1 ^ k0, (first >> _HALF) ^ c3 ^ k1
    c1, c3 = second & _LOW, first & _LOW
  return [c0, c1, c2, c3]
