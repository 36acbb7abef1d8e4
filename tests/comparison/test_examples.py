"""The sentences that are shown, and what is shown of them."""

import pytest

from jaxsyn.comparison import examples
from jaxsyn.scoring.metrics import scorer_of

SOURCES = ["s one", "s two", "s three"]
REFERENCES = ["a red bird", "the old house", "no more"]
# Line 1: equal. Line 2: seed 1 alone differs. Line 3: both seeds differ.
SAID = {
  "base": {0: ["a red bird", "the old house", "no more"]},
  "other": {0: ["a red bird", "the old house", "xx"]},
}
SAID["base"][1] = ["a red bird", "the old house", "no more"]
SAID["other"][1] = ["a red bird", "the odd mouse", "yy"]


def chosen(*metrics):
  scorers = [scorer_of(name, [REFERENCES]) for name in metrics]
  scored = {
    system: {
      seed: [scorer.measure(lines) for scorer in scorers]
      for seed, lines in runs.items()
    }
    for system, runs in SAID.items()
  }
  return examples.choose(SOURCES, REFERENCES, scored=scored, translations=SAID)


def test_the_furthest_apart_come_first_and_equal_ones_not_at_all():
  metric, result = chosen("bleu", "chrf")
  assert metric == "chrF"
  assert [example.line for example in result] == [3, 2]
  assert result[0].source == "s three" and result[0].reference == "no more"


def test_the_seed_that_differs_is_shown_with_its_own_scores():
  _, (_, second) = chosen("chrf")
  assert second.seed == 1
  assert second.translations == {
    "base": "the old house",
    "other": "the odd mouse",
  }
  single = scorer_of("chrf", [["the old house"]])
  expected = single.measure(["the odd mouse"]).value
  assert second.scores["base"] == pytest.approx(100)
  assert second.scores["other"] == pytest.approx(expected)


def test_without_chrf_it_is_the_first_metric():
  assert chosen("exact", "bleu")[0] == "exact"
