"""Tests by hand, against sacreBLEU's command, and by simulation."""

import random

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest
from scipy import stats
from scored import scorer_of

from benchmarks.false_alarms import called_different
from jaxsyn.scoring import significance
from jaxsyn.scoring.significance import TESTS, Draws, difference

METRICS = ("bleu", "chrf", "ter")


def corpus(references=1):
  """References, and two systems that replace or drop some words."""
  draw = random.Random(3)
  words = [f"w{i}" for i in range(40)]

  def text(sentence, faults):
    """Replaces or drops words."""
    edited = [
      draw.choice(words + [""] * 20) if draw.random() < faults else word
      for word in sentence
    ]
    return " ".join(filter(None, edited))

  true = [draw.choices(words, k=draw.randrange(3, 15)) for _ in range(40)]
  lines = [[text(s, 0.1 * k) for s in true] for k in range(references)]
  return lines, [text(s, 0.3) for s in true], [text(s, 0.2) for s in true]


def compared(metric, references, one, other, *, samples=0, seed=12345, **more):
  scorer = scorer_of(metric, references)
  first, second = scorer.measure(one), scorer.measure(other)
  more = {"tests": TESTS, "draws": Draws(samples, seed)} | more
  return difference(("other", "one"), second, first, **more)


def exact(wins, losses, ties, **more):
  """Exact matches by the system only, by the baseline only, by both."""
  references = ["a"] * (wins + losses + ties)
  one = ["x"] * wins + ["a"] * (losses + ties)
  other = ["a"] * wins + ["x"] * losses + ["a"] * ties
  return compared("exact", [references], one, other, **more)


def p_values(result):
  return {outcome.name: outcome.p for outcome in result.tests}


def test_sign_test_excludes_ties_and_reads_the_direction():
  result = exact(wins=5, losses=0, ties=2)
  assert (result.better, result.worse, result.same) == (5, 0, 2)
  # Five of five on one side, or on the other: 2 / 2**5.
  assert p_values(result)["sign"] == pytest.approx(2 / 32)
  # 4 of 5: (1 + 5) of 32 on each side.
  assert p_values(exact(4, 1, 0))["sign"] == pytest.approx(12 / 32)
  assert p_values(exact(0, 0, 3))["sign"] == 1.0
  # A smaller TER is better.
  result = compared("ter", [["a b c d"]], ["a x c d"], ["a b c d"], samples=10)
  assert (result.value, result.better, result.worse) == (-25.0, 1, 0)


def test_randomisation_counts_swaps_with_as_large_a_difference():
  # Three sentences won: 2 of 8 swaps, all or no sentences, give 3 again.
  result = p_values(exact(3, 0, 4, samples=4000))["randomisation"]
  sd = (0.25 * 0.75 / 4000) ** 0.5
  assert abs(result - 0.25) < 4 * sd
  # One sentence won: every swap gives a difference of 1 again.
  assert p_values(exact(1, 0, 9))["randomisation"] == 1.0


def test_bootstrap_counts_resamples_far_from_their_mean():
  # Of two sentences one is won, 50 points. A resample has the won one 0, 1 or
  # 2 times, 0, 50 or 100 points, by 1/4, 1/2, 1/4: the mean is close to 50.
  # 0 and 100 are as far from 50 as 50 is from 0.
  resampled = np.array([[0.0] * 4, [0.0, 50.0, 50.0, 100.0]])
  assert exact(1, 0, 1).value == 50.0
  scorer = scorer_of("exact", [["a", "b"]])
  pair = scorer.measure(["x", "b"]), scorer.measure(["a", "b"])
  draws = Draws(4, 0)
  outcome = significance.paired_test("bootstrap", pair, draws, resampled)
  assert outcome.p == (2 + 1) / (4 + 1)
  # The draws themselves: each resample of two has 0, 50 or 100 points.
  sampled = significance.bootstrap(pair, Draws(2000, 1))
  differences = (sampled[1] - sampled[0]).tolist()
  counts = [differences.count(points) for points in (0.0, 50.0, 100.0)]
  assert sum(counts) == 2000
  assert stats.chisquare(counts, [500, 1000, 500]).pvalue > 1e-3


def test_interval_is_the_middle_of_the_resampled_differences():
  assert significance.interval_of(np.arange(201.0)) == (5.0, 195.0)
  result = exact(30, 10, 60)
  # Of 100 sentences 20 more: sd of a sentence sqrt(0.4 - 0.04) = 0.6, of the
  # mean 6 points; 1.96 sd on each side.
  assert result.value == pytest.approx(20.0)
  assert result.low == pytest.approx(20 - 11.76, abs=1.5)
  assert result.high == pytest.approx(20 + 11.76, abs=1.5)
  without = exact(30, 10, 60, interval=False)
  assert without.low is None and without.tests == result.tests


@pytest.mark.parametrize("metric", [*METRICS, "ribes", "exact"])
def test_a_system_does_not_differ_from_itself(metric):
  references, one, _ = corpus()
  result = compared(metric, references, one, one, samples=50)
  assert result.value == result.low == result.high == 0.0
  assert set(p_values(result).values()) == {1.0}
  # According to sacreBLEU it does.
  theirs = {o.name: o.sacrebleu_p for o in result.tests}
  p = None if metric in ("ribes", "exact") else 1 / 51
  assert theirs == {"bootstrap": p, "randomisation": p, "sign": None}


@pytest.mark.parametrize(
  ("name", "kind", "samples", "references"),
  [("bootstrap", "bs", 100, 2), ("randomisation", "ar", 200, 1)],
)
def test_scores_p_values_and_signatures_equal_sacrebleu(
  name, kind, samples, references, monkeypatch
):
  lines, one, other = corpus(references)
  expected = [
    sacrebleu.sentence_bleu(line, list(right)).score
    for line, *right in zip(one, *lines)
  ]
  sentence_B = scorer_of("bleu", lines).measure(one).sentence_B
  np.testing.assert_allclose(sentence_B, expected, atol=1e-9)
  monkeypatch.setenv("SACREBLEU_SEED", "7")
  classes = (sacrebleu.BLEU, sacrebleu.CHRF, sacrebleu.TER)
  metrics = {m: cls(references=lines) for m, cls in zip(METRICS, classes)}
  systems = [("one", one), ("other", other)]
  signatures, scores = PairedTest(systems, metrics, None, kind, samples)()
  for metric in METRICS:
    result = compared(
      metric, lines, one, other, tests=(name,), samples=samples, seed=7
    )
    (outcome,) = result.tests
    (key,) = [k for k in scores if k.startswith(result.metric)]
    assert outcome.sacrebleu_p == scores[key][1].p_value
    assert outcome.signature == str(signatures[key])
    assert result.value == scores[key][1].score - scores[key][0].score


def test_shuffles_in_blocks_equal_one_draw():
  size = 999  # a million coins at once: 992 rows, then the rest
  parts = list(significance._coins(1001, size, 5))
  assert len(parts) == 2
  expected = np.random.default_rng(5).integers(2, size=(1001, size), dtype=bool)
  np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_five_percent_of_equal_systems_and_most_others_differ():
  trials = 100
  # 99.9 % of fair tests fall between these counts.
  low, high = stats.binom.ppf([0.0005, 0.9995], trials, 0.05)
  result = called_different("bleu", trials, sentences=60, samples=100)
  for name in TESTS:
    assert low <= result[name] <= high, (name, result)
  assert result["randomisation_sacrebleu"] == result["randomisation"]
  # sacreBLEU's bootstrap is nearly a one-sided test: about 11 %.
  assert result["bootstrap_sacrebleu"] > 1.5 * result["bootstrap"]
  # Large differences are found.
  result = called_different("bleu", 20, sentences=60, samples=200, planted=0.6)
  assert all(count >= 15 for count in result.values()), result
