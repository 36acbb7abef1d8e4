"""A weighting matrix of the caller, in training and translation."""

import json

import numpy as np
import pytest

from jaxsyn import train
from jaxsyn.errors import InputError
from jaxsyn.session import Session


def losses(workdir):
  lines = (workdir / "log.jsonl").read_text().splitlines()
  return [
    (r["step"], r.get("loss", r.get("perplexity")))
    for r in map(json.loads, lines)
  ]


def matrix(value):
  def change(batch):
    shape = (*batch["source_id_BS"].shape, batch["source_id_BS"].shape[1])
    return {**batch, "source_weighting_BSS": np.full(shape, value)}

  return change


def test_a_matrix_of_ones_equals_the_baseline(tiny, tmp_path):
  def config(system):
    config = tiny(system)
    config.batch.shapes = 1
    config.model.transformer.encoder_layers = 1
    config.train.update(steps=2, evaluate_every=2, validation_sentences=2)
    return config

  train.run(config("transformer"), tmp_path / "plain")
  train.run(config("given_weighting"), tmp_path / "mine", matrix(1.0))
  # XLA may fuse the same arithmetic differently.
  np.testing.assert_allclose(
    losses(tmp_path / "mine"), losses(tmp_path / "plain"), rtol=1e-6
  )
  lines = ["The duck arrived .", "Ducks ."]

  def scores(folder, edit):
    session = Session(tmp_path / folder, batch_transform=edit)
    return [best[0].score for best in session(lines)]

  plain = scores("plain", None)
  np.testing.assert_allclose(scores("mine", matrix(1.0)), plain, rtol=1e-5)
  assert not np.allclose(scores("mine", matrix(9.0)), plain, rtol=1e-4)


def test_rejects_a_matrix_of_another_shape(tiny, tmp_path):
  def change(batch):
    return {**batch, "source_weighting_BSS": np.ones((1, 2, 2))}

  with pytest.raises(InputError, match="source_weighting_BSS of shape"):
    train.run(tiny("given_weighting"), tmp_path / "bad", change)
