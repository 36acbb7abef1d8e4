"""Exact match by hand; sacreBLEU's own scores against sacreBLEU."""

import pytest
import sacrebleu

from jaxsyn.errors import InputError
from jaxsyn.scoring.metrics import score

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
  found = score(SAID, [MEANT])
  assert found.value == bleu.corpus_score(SAID, [MEANT]).score
  assert found.signature == str(bleu.get_signature())
  assert "tok:13a" in found.signature


def test_lists_of_different_length_are_refused():
  with pytest.raises(InputError, match="3 hypotheses but 2 references"):
    score(SAID, [MEANT[:2]])


def test_an_unknown_metric_is_named():
  with pytest.raises(InputError, match="Did you mean 'bleu'"):
    score(SAID, [MEANT], "blue")
