"""Sampled segmentations: frequencies compared with all possible ones."""

import collections
import itertools
import math
import random

import pytest

from jaxsyn.data.sentence.segmentation import by_lattice, by_merges

DRAWS = 4000
# Of three merges "ab" comes first, then "bc", then "abc".
MERGES = {"a": -9.0, "b": -8.0, "c": -7.0, "ab": -1.0, "bc": -2.0, "abc": -3.0}
PIECES = {"a": -1.0, "b": -1.5, "ab": -1.2, "ba": -2.0, "aba": -4.0}


def parts(text, ends):
  assert ends[-1] == len(text)
  return " ".join(text[i:j] for i, j in zip([0, *ends], ends))


def check_frequencies(segment, text, scores, alpha, expected):
  """Compares relative frequencies, to five standard deviations of a half."""
  counts = collections.Counter(
    parts(text, segment(text, scores, alpha, random.Random(seed)))
    for seed in range(DRAWS)
  )
  assert {*counts} <= {*expected}
  for segmentation, share in expected.items():
    error = abs(counts[segmentation] / DRAWS - share)
    assert error < 5 * math.sqrt(0.25 / DRAWS), segmentation


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_merges_are_dropped_again_at_each_step(p):
  """Algorithm 1: two merges are possible in "a b c", then one in the rest."""
  first, second = 1 - p, p * (1 - p)
  expected = {
    "abc": (first + second) * (1 - p),
    "ab c": first * p,
    "a bc": second * p,
    "a b c": p * p,
  }
  check_frequencies(by_merges, "abc", MERGES, p, expected)
  # Two independent merges; the first may be dropped and then made.
  expected = {
    "ab xy": (first + second) * (1 - p),
    "ab x y": first * p,
    "a b xy": second * p,
    "a b x y": p * p,
  }
  check_frequencies(by_merges, "abxy", {"ab": -1.0, "xy": -2.0}, p, expected)


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_segmentations_have_their_probability(alpha):
  text, weights = "abab", {}
  for cuts in itertools.product([0, 1], repeat=3):
    ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [4]
    segmentation = parts(text, ends)
    if all(part in PIECES for part in segmentation.split()):
      score = sum(PIECES[part] for part in segmentation.split())
      weights[segmentation] = math.exp(alpha * score)
  assert len(weights) == 6
  expected = {k: w / sum(weights.values()) for k, w in weights.items()}
  check_frequencies(by_lattice, text, PIECES, alpha, expected)


@pytest.mark.parametrize(
  "segment, text, scores, alpha, ends",
  [
    # Merges with higher scores come first, then the leftmost.
    (by_merges, "abc", MERGES, 0.0, [3]),
    (by_merges, "abc", {"ab": -4.0, "bc": -2.0}, 0.0, [1, 3]),
    (by_merges, "aaa", {"aa": -1.0}, 0.0, [2, 3]),
    (by_merges, "", MERGES, 0.5, []),
    # No merge crosses a blank: ▁a bc ▁a bc.
    (by_merges, "▁abc▁abc", {**MERGES, "▁a": -0.5}, 0.0, [2, 4, 6, 8]),
    # An unknown character is one subword.
    (by_lattice, "axxb", PIECES, 1.0, [1, 2, 3, 4]),
    (by_lattice, "abab", PIECES, 1e3, [2, 4]),
    (by_lattice, "", PIECES, 1.0, []),
  ],
)
def test_segmentations_without_a_choice(segment, text, scores, alpha, ends):
  assert segment(text, scores, alpha, random.Random(0)) == ends
