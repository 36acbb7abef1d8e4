"""A head that learns gold alignments is trained and scored."""

import json

import pytest

from jaxsyn import train
from jaxsyn.data.sentence.alignments import parse_links, pharaoh
from jaxsyn.scoring import alignments
from jaxsyn.session import Session, forcing
from jaxsyn.session.alignments import Aligner
from jaxsyn.training.guided_alignment import MEAN

STEPS = 100


def lines_of(path):
  return path.read_text().splitlines()


def links_of(session, sources, hypotheses, layer=None):
  aligner = Aligner(session, layer)
  forced = forcing.run(session, sources, hypotheses, aligner=aligner)
  return [one.links for one in forced]


def test_the_loss_improves_alignments(tiny, runs, prepared, tmp_path):
  config = tiny("guided_alignment")
  config.model.transformer.update(
    encoder_layers=1, decoder_layers=2, dropout=0.0
  )
  config.losses.guided_alignment.weight = 5.0
  config.batch.update(tokens=600, shapes=1)
  config.optimiser.update(name="muon", learning_rate=1e-2)
  config.optimiser.inverse_sqrt.warmup = 20
  config.train.update(steps=STEPS, evaluate_every=STEPS, save_every=STEPS)
  config.train.selection = "log_likelihood"
  train.run(config, tmp_path / "guided")
  raw, rates = prepared.parent / "raw", []
  sources = lines_of(raw / "test.en")
  inputs = [*map(forcing.Hypothesis, range(24), lines_of(raw / "test.qaa"))]
  for index, run in enumerate((runs["pascal"], tmp_path / "guided")):
    session = Session(run)
    result = links_of(session, sources, inputs)
    path = tmp_path / str(index)
    path.write_text("".join(f"{pharaoh(links)}\n" for links in result))
    (rate,) = alignments.run(raw / "test.align", [path]).values()
    rates.append(rate.aer)
  assert rates[1] < rates[0] - 0.3, rates
  # The log has the loss, and validation the accuracy of the head.
  log = map(json.loads, lines_of(tmp_path / "guided" / "log.jsonl"))
  (last,) = (row for row in log if row["kind"] == "validation")
  weighted = last["weighted/guided_alignment"]
  assert weighted == pytest.approx(5 * last["loss/guided_alignment"])
  assert last["loss"] == pytest.approx(weighted + last["loss/nll"])
  assert last["links"] > 0.4
  # The default is the trained head, not the mean of its layer.
  assert Aligner(session).heads == [(0, 0)]
  assert Aligner(session, -2).heads == [(0, MEAN)]
  assert links_of(session, sources, inputs, layer=-2) != result
  # As the command writes them.
  aligner = Aligner(session)
  (one,) = forcing.run(session, sources, inputs[:1], aligner=aligner)
  line = one.as_text().split("\t")
  assert parse_links(line[4], "x", possible=False)[1] == result[0]
  assert json.loads(one.as_json())["alignments"] == line[4]
