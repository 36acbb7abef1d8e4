"""Exact match by hand; sacreBLEU's own scores against sacreBLEU."""

import json
import subprocess
import sys

import pytest
import sacrebleu
from scored import score

from jaxsyn import score as command
from jaxsyn.config import Train
from jaxsyn.errors import InputError
from jaxsyn.options import fields_of
from jaxsyn.scoring import selection
from jaxsyn.scoring.metrics import METRICS, heading
from jaxsyn.scoring.scorers import References
from jaxsyn.scoring.settings import Settings

SAID = ["a b c d e", "f g", "h i j k"]
MEANT = ["a b c d e", "f h", "h i j k l"]


def test_exact_match_counts_sentences_to_the_letter():
  assert score(SAID, [MEANT], "exact").value == pytest.approx(100 / 3)
  # Two more references: the second sentence is one of them.
  assert score(SAID, [MEANT, ["", "f g", "F G"]], "exact").value == (
    pytest.approx(200 / 3)
  )
  assert score([], [[]], "exact").value == 0.0


def test_bleu_is_sacrebleus_with_its_signature():
  bleu = sacrebleu.BLEU(tokenize="13a")
  scores = score(SAID, [MEANT])
  assert scores.value == bleu.corpus_score(SAID, [MEANT]).score
  assert scores.signature == str(bleu.get_signature())
  assert "tok:13a" in scores.signature


def test_case_is_ignored_where_asked():
  messages, meant = ["A b C d e", "Eine Straße"], ["a B c d E", "eine STRASSE"]
  for metric in ("bleu", "chrf", "exact"):
    cased, lower = (
      score(messages, [meant], metric, lowercase=x) for x in (0, 1)
    )
    assert cased.value < lower.value
    assert "case:mixed" in cased.signature and "case:lc" in lower.signature
  # Lower case alone, as in sacreBLEU: "ß" is no "ss", so one of two is right.
  assert lower.value == 50.0
  assert (
    score(messages[:1], [meant[:1]], "exact", lowercase=True).value == 100.0
  )
  # sacreBLEU's TER ignores case by itself, and says so.
  plain, lower = (score(messages, [meant], "ter", lowercase=x) for x in (0, 1))
  assert plain == lower and plain.signature.startswith("nrefs:1|case:lc|")
  assert score(messages[:1], [meant[:1]], "ter").value == 0.0


def test_scores_are_those_of_sacrebleus_own_command(tmp_path):
  messages = ["The OLD dog sleeps .", "A man Runs fast today ,", "he Saw It"]
  meant = ["The old dog sleeps.", "a man ran fast today,", "He saw it all"]
  files = tmp_path / "reference", tmp_path / "hypothesis"
  for file, lines in zip(files, (meant, messages)):
    file.write_text("".join(f"{line}\n" for line in lines))
  options = ["-lc", "--chrf-lowercase"]
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
    (theirs["score"], theirs["signature"]) for theirs in json.loads(printed)
  ]
  settings = Settings(("bleu", "chrf", "ter"), lowercase=True)
  results = command.run(files[:1], files[1:], settings)
  (result,) = results.scores.values()
  assert [(round(s.value, 9), s.signature) for s in result] == expected
  assert all("|case:lc|" in signature for _, signature in expected)


def test_the_command_line_passes_the_case_on(tmp_path):
  file = tmp_path / "lines"
  file.write_text("A b\n")
  other = tmp_path / "others"
  other.write_text("a B\n")
  done = subprocess.run(
    [
      *(sys.executable, "-m", "jaxsyn.score", "--metrics", "exact", "--json"),
      *("--reference", file, "--hypothesis", other, "--lowercase"),
    ],
    capture_output=True,
    text=True,
    check=True,
  )
  assert json.loads(done.stdout)["scores"][str(other)][0]["value"] == 100.0


def test_lists_of_different_length_are_refused():
  with pytest.raises(InputError, match="3 hypotheses but 2 references"):
    score(SAID, [MEANT[:2]])
  with pytest.raises(InputError, match="references of 3, 2 sentences"):
    score(SAID, [MEANT, MEANT[:2]])


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_says_which_way_is_better(name):
  """And its heads of tables; smoothing is left out of what ranks."""
  best, worse = score(MEANT, [MEANT], name), score(SAID, [MEANT], name)
  larger = METRICS[name].larger_is_better
  assert (best.value > worse.value) == larger
  assert heading(best.metric).endswith("↓") != larger
  assert best.value == pytest.approx(100.0 if larger else 0.0)
  inputs = References([MEANT])
  ranking = METRICS[name]().ranking(inputs)
  assert ranking.measure(MEANT).value == pytest.approx(best.value)
  assert ("tok:" in best.signature) >= METRICS[name].of_words


def test_selection_is_a_metric_or_the_likelihood():
  _, kind = fields_of(Train)["selection"]
  (names,) = kind.__metadata__
  assert set(names.registry) == {*METRICS, selection.LIKELIHOOD}
  assert all(selection.name_of(choice) for choice in names.registry)


def test_an_unknown_metric_is_named():
  with pytest.raises(InputError, match="Did you mean 'bleu'"):
    score(SAID, [MEANT], "blue")
