"""chrF of all pairs is sacreBLEU's; of samples the one most like all is first."""

import numpy as np
import pytest
from sacrebleu.metrics import CHRF

from jaxsyn.decode.translator import Translation
from jaxsyn.scoring import pairwise
from jaxsyn.session.risk import by_risk

TEXTS = [
  "Der Hund läuft über die Straße .",
  "Ein Hund läuft auf der Straße .",
  "Die Katze schläft .",
  "",
  "a",
  "ab",
  " a  b ",
  "aaaaaaaaaa",
  "aaaa",
  "犬が走る",
  "犬が走った。",
  "⁇ ⁇ 🦆",
]


def test_all_pairs_are_as_sacrebleu_has_them():
  metric = CHRF()
  expected = [
    [metric.sentence_score(one, [other]).score for other in TEXTS]
    for one in TEXTS
  ]
  np.testing.assert_allclose(pairwise.chrf(TEXTS), expected, atol=1e-9)
  assert np.ptp(expected) == 100


def sample(text, index):
  return Translation(text, score=-1.0, log_p=-float(index), ids=(index,))


def test_the_sample_that_is_most_like_all_is_first():
  texts = [TEXTS[i] for i in (2, 0, 1, 1, 9, 3)]
  result = by_risk([sample(text, n) for n, text in enumerate(texts)])
  metric = CHRF()
  utility = {
    text: np.mean([metric.sentence_score(text, [t]).score for t in texts])
    for text in texts
  }
  assert [one.text for one in result] == sorted(
    utility, key=lambda text: -utility[text]
  )
  for one in result:
    assert one.score == pytest.approx(utility[one.text], abs=1e-9)
    assert one.log_p == -texts.index(one.text)  # the first of its text
  assert result[0].text == TEXTS[1]
  assert by_risk([]) == []
