"""Exact match by hand; sacreBLEU's metrics against sacreBLEU."""

import pytest
import sacrebleu
from scored import score, scorer_of

from jaxsyn.config import Train
from jaxsyn.errors import InputError
from jaxsyn.options import fields_of
from jaxsyn.scoring import selection
from jaxsyn.scoring.metrics import METRICS, heading

HYPOTHESES = ["a b c d e", "f g", "h i j k"]
REFERENCES = ["a b c d e", "f h", "h i j k l"]


@pytest.mark.parametrize(
  ("hypotheses", "references", "lowercase", "expected"),
  [
    (HYPOTHESES, [REFERENCES], False, 100 / 3),
    # The second sentence equals another reference.
    (HYPOTHESES, [REFERENCES, ["", "f g", "F G"]], False, 200 / 3),
    ([], [[]], False, 0.0),
    # As in sacreBLEU, lower case only: "ß" is not "ss".
    (["A b", "Eine Straße"], [["a B", "eine STRASSE"]], False, 0.0),
    (["A b", "Eine Straße"], [["a B", "eine STRASSE"]], True, 50.0),
  ],
)
def test_exact_match_by_hand(hypotheses, references, lowercase, expected):
  result = score(hypotheses, references, "exact", lowercase=lowercase)
  assert result.value == pytest.approx(expected)
  assert f"case:{'lc' if lowercase else 'mixed'}" in result.signature


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_and_signatures_equal_sacrebleu(lowercase):
  hypotheses = ["The OLD dog sleeps .", "A man Runs fast today ,", "he Saw It"]
  references = ["The old dog sleeps.", "a man ran fast today,", "He saw it all"]
  for name, metric in (
    ("bleu", sacrebleu.BLEU(lowercase=lowercase)),
    ("chrf", sacrebleu.CHRF(lowercase=lowercase)),
    ("ter", sacrebleu.TER()),  # always ignores case
  ):
    expected = metric.corpus_score(hypotheses, [references]).score
    result = score(hypotheses, [references], name, lowercase=lowercase)
    assert result.value == expected
    assert result.signature == str(metric.get_signature())
    assert ("|case:lc|" in result.signature) == (lowercase or name == "ter")


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_declares_its_direction(name):
  metric = METRICS[name]
  best = scorer_of(name, [REFERENCES]).measure(REFERENCES)
  worse = score(HYPOTHESES, [REFERENCES], name)
  larger = metric.larger_is_better
  assert (best.value > worse.value) == larger
  assert heading(worse.metric).endswith("↓") != larger
  assert best.value == pytest.approx(100.0 if larger else 0.0)
  ranking_score = metric().ranking_score(best.statistic_BI.sum(axis=0))
  assert ranking_score == pytest.approx(best.value)
  assert ("tok:" in worse.signature) >= metric.of_words


def test_selection_is_a_metric_or_the_likelihood():
  _, kind = fields_of(Train)["selection"]
  (names,) = kind.__metadata__
  assert set(names.registry) == {*METRICS, selection.LIKELIHOOD}
  assert all(selection.name_of(choice) for choice in names.registry)


def test_rejects_invalid_input():
  with pytest.raises(InputError, match="3 hypotheses but 2 references"):
    score(HYPOTHESES, [REFERENCES[:2]])
  with pytest.raises(InputError, match="references of 3, 2 sentences"):
    score(HYPOTHESES, [REFERENCES, REFERENCES[:2]])
  with pytest.raises(InputError, match="Did you mean 'bleu'"):
    score(HYPOTHESES, [REFERENCES], "blue")
