"""Exact match by hand; sacreBLEU's metrics against sacreBLEU."""

import json
import subprocess
import sys

import pytest
from scored import score

from jaxsyn import score as command
from jaxsyn.config import Train
from jaxsyn.errors import InputError
from jaxsyn.options import fields_of
from jaxsyn.scoring import selection
from jaxsyn.scoring.metrics import METRICS, heading, scorer_of
from jaxsyn.scoring.settings import Settings

HYPOTHESES = ["a b c d e", "f g", "h i j k"]
REFERENCES = ["a b c d e", "f h", "h i j k l"]


def test_exact_match_by_hand():
  one_of_three = score(HYPOTHESES, [REFERENCES], "exact").value
  assert one_of_three == pytest.approx(100 / 3)
  # The second sentence equals another reference.
  three_references = [REFERENCES, ["", "f g", "F G"]]
  assert score(HYPOTHESES, three_references, "exact").value == (
    pytest.approx(200 / 3)
  )
  assert score([], [[]], "exact").value == 0.0


def test_lowercase_ignores_case():
  hypotheses = ["A b C d e", "Eine Straße"]
  references = ["a B c d E", "eine STRASSE"]
  for metric in ("bleu", "chrf", "exact"):
    cased, lower = (
      score(hypotheses, [references], metric, lowercase=x) for x in (0, 1)
    )
    assert cased.value < lower.value
    assert "case:mixed" in cased.signature and "case:lc" in lower.signature
  # Lower case only, as in sacreBLEU: "ß" is not "ss", so one of two is right.
  assert lower.value == 50.0
  # sacreBLEU's TER always ignores case, according to its signature.
  plain, lower = (
    score(hypotheses, [references], "ter", lowercase=x) for x in (0, 1)
  )
  assert plain == lower and plain.signature.startswith("nrefs:1|case:lc|")
  assert score(hypotheses[:1], [references[:1]], "ter").value == 0.0


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_equal_those_of_sacrebleus_command(tmp_path, lowercase):
  hypotheses = ["The OLD dog sleeps .", "A man Runs fast today ,", "he Saw It"]
  references = ["The old dog sleeps.", "a man ran fast today,", "He saw it all"]
  files = tmp_path / "reference", tmp_path / "hypothesis"
  for file, lines in zip(files, (references, hypotheses)):
    file.write_text("".join(f"{line}\n" for line in lines))
  options = ["-lc", "--chrf-lowercase"] if lowercase else []
  printed = subprocess.run(
    [
      *(sys.executable, "-m", "sacrebleu", files[0], "-i", files[1], *options),
      *("-m", "bleu", "chrf", "ter", "-f", "json", "-w", "9", "--force"),
    ],
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  expected = [
    (each["score"], each["signature"]) for each in json.loads(printed)
  ]
  settings = Settings(("bleu", "chrf", "ter"), lowercase=lowercase)
  (result,) = command.run(files[:1], files[1:], settings).scores.values()
  assert [(round(s.value, 9), s.signature) for s in result] == expected
  assert ("|case:lc|" in expected[0][1]) == lowercase


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
