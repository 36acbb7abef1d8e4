"""Minimum Bayes risk, word alignments, and unknown words."""

import dataclasses

import numpy as np
import pytest
from models_under_test import JOINT, config_of
from sacrebleu.metrics import CHRF

from jaxsyn import translate
from jaxsyn.data.schema import UNK
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.inspection.inspector import attention_of
from jaxsyn.session import Session, alignments
from jaxsyn.session.alignments import Aligner
from jaxsyn.session.finishing import Finish, by_risk
from jaxsyn.training.guided_alignment import MEAN

LINES = ["the duck arrives .", "a cow sleeps .", "the farmer saw a cow ."]
SAMPLES = [
  "Die Katze schläft .",
  "Der Hund läuft über die Straße .",
  *["Ein Hund läuft auf der Straße ."] * 3,
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


@pytest.fixture(scope="module")
def session(runs):
  return Session(runs["pascal"])


def test_minimum_bayes_risk_prefers_the_most_typical_sample():
  samples = [
    Translation(text, score=-1.0, log_p=-float(n), ids=(n,))
    for n, text in enumerate(SAMPLES)
  ]
  result = by_risk(samples)
  metric = CHRF()
  utility = {
    text: np.mean([metric.sentence_score(text, [t]).score for t in SAMPLES])
    for text in SAMPLES
  }
  assert {one.text for one in result} == set(SAMPLES)
  assert len(result) == len(utility)
  for one in result:
    assert one.score == pytest.approx(utility[one.text], abs=1e-9)
    assert one.log_p == -SAMPLES.index(one.text)  # of the first equal sample
  assert (np.diff([one.score for one in result]) <= 0).all()
  assert result[0].text == SAMPLES[2]
  assert by_risk([]) == []


@pytest.mark.parametrize("system", ["pascal", "gru_global"])
def test_alignments_are_the_maxima_of_pooled_attention(runs, system):
  # A high temperature gives several words after so little training.
  options = {"search": "sample", "sample": {"temperature": 2.0}}
  session = Session(runs[system], **options)
  inspected = attention_of(session, LINES)
  finish = Finish(session, links=True)
  result = list(translate.run(session, LINES, finish=finish))
  for one, (best,) in zip(inspected, result, strict=True):
    assert one.translation == best.text
    maps = [m for m in one.attention if m.place == "cross"]
    weight_RC = np.concatenate([m.value_HQM for m in maps]).mean(0)
    words = len(best.text.split())
    assert words > 1
    expected = weight_RC[:words, :-1].argmax(1)  # without EOS
    assert best.links == tuple((int(i), j) for j, i in enumerate(expected))


def test_a_word_is_aligned_by_the_mean_of_its_subwords(session):
  text = "xyzzy"
  ids = session.sources.vocabularies[1].encode(text).id
  assert len(ids) > 1
  # The first subword has the largest weight, but not the others.
  weight_TW = np.array([[1.0, 0.2], *[[0.0, 0.9]] * len(ids)])
  one = Translation(text, score=-1.0, log_p=-1.0, ids=tuple(ids))
  aligned = Aligner(session)._align(weight_TW, one, "a cow")
  assert aligned.links == ((1, 0),)


def test_unknown_words_are_replaced_by_source_words(session):
  vocabulary = session.sources.vocabularies[1]
  (nbest,) = session(LINES[:1])
  ids = (UNK, *vocabulary.ids("kamu"), UNK)
  one = dataclasses.replace(nbest[0], ids=ids, text=vocabulary.decode(ids))
  examples = session.read(LINES[:1])
  (aligned,) = Aligner(session)(LINES[:1], examples, [one])
  assert len(aligned.unknown) == 2
  assert set(aligned.unknown) <= set(LINES[0].split())
  ((finished,),) = Finish(session, unknowns=True)(LINES[:1], examples, [[one]])
  expected = [aligned.unknown[0], "kamu", aligned.unknown[1]]
  assert "⁇" in one.text and finished.text.split() == expected


@pytest.mark.parametrize(
  ("system", "layer", "head"),
  [
    ("transformer", None, (1, MEAN)),  # the last but one
    ("transformer", -1, (2, MEAN)),
    ("transformer", 0, (0, MEAN)),
    ("guided_alignment", None, (1, 0)),
    ("guided_alignment", 2, (2, MEAN)),
  ],
)
def test_selects_the_layer_and_the_head(session, system, layer, head):
  (member,) = session.members
  config = config_of(system, decoder_layers=3)
  run = dataclasses.replace(member.run, config=config, manifest=JOINT)
  member = dataclasses.replace(member, run=run)
  assert alignments._head(member, layer) == head


def test_rejects_a_missing_layer(session):
  with pytest.raises(InputError, match=r"--alignment_layer=1: .* has 1 layers"):
    Aligner(session, 1)
