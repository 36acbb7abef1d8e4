"""Tests frequencies of sampled subwords against all possible ones."""

import collections
import itertools
import math
import random

import pytest

from jaxsyn.data.sentence.segmentation import by_lattice, by_merges

DRAWS = 4000
# Five deviations of a share of one half.
NEAR = 5 * math.sqrt(0.25 / DRAWS)


def shares(cut, normal, scores, alpha):
  by_name = collections.Counter()
  for seed in range(DRAWS):
    ends = cut(normal, scores, alpha, random.Random(seed))
    assert ends[-1] == len(normal)
    parts = (normal[i:j] for i, j in zip([0, *ends], ends))
    by_name[" ".join(parts)] += 1 / DRAWS
  return by_name


def near(found, expected):
  assert {*found} <= {*expected}
  for parts, share in expected.items():
    assert abs(found[parts] - share) < NEAR, parts


# Of three merges "ab" comes first, then "bc", then "abc".
MERGES = {"a": -9.0, "b": -8.0, "c": -7.0, "ab": -1.0, "bc": -2.0, "abc": -3.0}


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_merges_are_dropped_again_at_each_step(p):
  """Algorithm 1: two may be made of a b c, then one of what is left."""
  first, second, none = 1 - p, p * (1 - p), p * p
  expected = {
    "abc": (first + second) * (1 - p),
    "ab c": first * p,
    "a bc": second * p,
    "a b c": none,
  }
  near(shares(by_merges, "abc", MERGES, p), expected)


def test_higher_scored_merges_come_first_then_leftmost():
  rng = random.Random(0)
  assert by_merges("abc", MERGES, 0.0, rng) == [3]
  lower = {**MERGES, "ab": -4.0} | {"abc": -9.0}
  del lower["abc"]
  assert by_merges("abc", lower, 0.0, rng) == [1, 3]
  assert by_merges("aaa", {"a": -2.0, "aa": -1.0}, 0.0, rng) == [2, 3]
  assert by_merges("", MERGES, 0.5, rng) == []


def test_merges_do_not_cross_blanks():
  scores = {**MERGES, "▁a": -0.5}
  result = by_merges("▁abc▁abc", scores, 0.0, random.Random(0))
  assert result == [2, 4, 6, 8]  # ▁a bc ▁a bc


PIECES = {"a": -1.0, "b": -1.5, "ab": -1.2, "ba": -2.0, "aba": -4.0}


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_segmentations_have_their_probability(alpha):
  """Against all of them, one by one."""
  normal = "abab"
  weights = {}
  for cuts in itertools.product([0, 1], repeat=3):
    ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [4]
    parts = [normal[i:j] for i, j in zip([0, *ends], ends)]
    if all(part in PIECES for part in parts):
      score = sum(PIECES[part] for part in parts)
      weights[" ".join(parts)] = math.exp(alpha * score)
  assert len(weights) == 6
  total = sum(weights.values())
  expected = {parts: weight / total for parts, weight in weights.items()}
  near(shares(by_lattice, normal, PIECES, alpha), expected)


def test_unknown_character_is_one_subword():
  assert by_lattice("axxb", PIECES, 1.0, random.Random(0)) == [1, 2, 3, 4]
  assert by_lattice("abab", PIECES, 1e3, random.Random(0)) == [2, 4]
  assert by_lattice("", PIECES, 1.0, random.Random(0)) == []
