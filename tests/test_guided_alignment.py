"""A head that learns gold alignments is trained and scored."""

import json

import pytest

from jaxsyn import train
from jaxsyn.configs import quickstart
from jaxsyn.data.sentence.alignments import parse_links, pharaoh
from jaxsyn.scoring import alignments
from jaxsyn.session import Session, forcing
from jaxsyn.session.alignments import Aligner
from jaxsyn.training.guided_alignment import MEAN

STEPS = 150
SYSTEMS = ("transformer", "guided_alignment")


@pytest.fixture(scope="module")
def guided(made_once, prepared):
  """Runs that differ only in the loss."""

  def make(folder):
    for system in SYSTEMS:
      config = quickstart.get_config(system)
      config.data.directory, config.model.width = str(prepared), 32
      config.model.transformer.update(
        encoder_layers=1, decoder_layers=2, feed_forward=32, dropout=0.0
      )
      if system == "guided_alignment":
        config.losses.guided_alignment.weight = 5.0
      config.batch.update(tokens=600, shapes=1)
      config.optimiser.update(name="muon", learning_rate=1e-2)
      config.optimiser.inverse_sqrt.warmup = 20
      config.train.update(steps=STEPS, evaluate_every=STEPS, save_every=STEPS)
      config.train.update(minutes=0.0, selection="log_likelihood")
      train.run(config, folder / system)

  return made_once("guided", make)


def lines_of(path):
  return path.read_text().splitlines()


def links_of(session, sources, hypotheses, layer=None):
  aligner = Aligner(session, layer)
  forced = forcing.run(session, sources, hypotheses, aligner=aligner)
  return [one.links for one in forced]


def test_the_loss_improves_alignments(guided, prepared, tmp_path):
  raw, rates = prepared.parent / "raw", {}
  sources = lines_of(raw / "test.en")
  inputs = [*map(forcing.Hypothesis, range(24), lines_of(raw / "test.qaa"))]
  for system in SYSTEMS:
    session = Session(guided / system)
    result = links_of(session, sources, inputs)
    path = tmp_path / system
    path.write_text("".join(f"{pharaoh(links)}\n" for links in result))
    (rates[system],) = alignments.run(raw / "test.align", [path]).values()
  assert rates["guided_alignment"].aer < rates["transformer"].aer - 0.3, rates
  # The log has the loss, and validation the accuracy of the head.
  log = [json.loads(x) for x in lines_of(guided / SYSTEMS[1] / "log.jsonl")]
  last = next(row for row in reversed(log) if "links" in row)
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
