"""A weighting matrix of the caller, in training and translation."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from jaxsyn import train
from jaxsyn.errors import InputError
from jaxsyn.session import Session


def losses(workdir):
  entries = map(json.loads, (workdir / "log.jsonl").read_text().splitlines())
  return [(e["step"], e.get("loss", e.get("perplexity"))) for e in entries]


def matrix(value):
  def transform(batch):
    shape = (*batch["source_id_BS"].shape, batch["source_id_BS"].shape[1])
    return {**batch, "source_weighting_BSS": np.full(shape, value)}

  return transform


def wrong_shape(batch):
  return {**batch, "source_weighting_BSS": np.ones((1, 2, 2))}


def test_a_matrix_of_ones_equals_the_baseline_and_others_do_not(tiny, tmp_path):
  for system, transform in (
    ("transformer", None),
    ("given_weighting", matrix(1.0)),
  ):
    config = tiny(system)
    config.batch.shapes = 1
    config.model.transformer.encoder_layers = 1
    config.train.update(steps=2, evaluate_every=2, selection="log_likelihood")
    train.run(config, tmp_path / system, transform)
  # XLA may fuse the same arithmetic differently.
  assert_allclose(
    losses(tmp_path / "given_weighting"),
    losses(tmp_path / "transformer"),
    rtol=1e-6,
  )

  def scores(system, transform):
    session = Session(tmp_path / system, batch_transform=transform)
    lines = ["The duck arrived .", "Ducks ."]
    return [best[0].score for best in session(lines)]

  plain = scores("transformer", None)
  ones, nines = (scores("given_weighting", matrix(x)) for x in (1.0, 9.0))
  assert_allclose(ones, plain, rtol=1e-5)
  assert not np.allclose(nines, plain, rtol=1e-4)
  with pytest.raises(InputError, match="source_weighting_BSS of shape"):
    train.run(config, tmp_path / "bad", wrong_shape)
