"""CTranslate2 translates an exported model like the run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jaxsyn import export, train
from jaxsyn.errors import InputError
from jaxsyn.session import Session

ctranslate2 = pytest.importorskip("ctranslate2", reason="extra ctranslate2")
LINES = ["the small dog sees a cat .", "the cat sleeps .", "a house"]

MODELS = {
  "pre": {},
  "post, two tables, an output, no positions": dict(
    norm="post",
    positions=False,
    activation="gelu",
    tie_embeddings=False,
    tie_output=False,
    decoder_layers=2,
  ),
}


def trained(tiny, folder, system="transformer", **changes):
  config = tiny(system)
  for name, value in changes.items():
    model = config.model
    (model if name in model else model.transformer)[name] = value
  config.batch.shapes = 1
  config.train.update(
    steps=20, evaluate_every=20, save_every=20, selection="log_likelihood"
  )
  train.run(config, folder)
  return folder


@pytest.mark.parametrize("name", MODELS)
def test_translates_and_scores_like_the_run(tiny, tmp_path, name):
  run = trained(tiny, tmp_path / "run", **MODELS[name])
  out = tmp_path / "out"
  export.run(run, out, "ctranslate2")
  translator = ctranslate2.Translator(
    str(out), compute_type="float32", intra_threads=1
  )
  session = Session(run, beam=1, max_length_factor=0.0, max_length_offset=30)
  ours = [best for (best,) in session(LINES)]
  source, target = session.sources.vocabularies
  pieces = source.pieces(range(source.size))
  tokens = [[pieces[i] for i in source.ids(line)] for line in LINES]
  theirs = translator.translate_batch(
    tokens,
    beam_size=1,
    max_decoding_length=29,
    return_scores=True,
    length_penalty=0,
    suppress_sequences=[["<pad>"], ["<s>"]],
  )
  ids = {piece: i for i, piece in enumerate(target.pieces(range(target.size)))}
  for item, other in zip(ours, theirs):
    (tokens,) = other.hypotheses
    assert tuple(ids[token] for token in tokens) == item.ids
  # Given translations are scored too: those of a model of 20 steps are trivial.
  inputs = ["la dog", "un cat es", "a"]
  message = translator.score_batch(
    tokens_of(LINES, source), tokens_of(inputs, target)
  )
  for item, other in zip(session.force(LINES, inputs), message, strict=True):
    np.testing.assert_allclose(other.log_probs, item.log_p, atol=1e-4)
  document = json.loads((out / "jaxsyn.json").read_text())
  assert document["decode"]["beam"] == 2 and document["system"] == "transformer"


def tokens_of(lines, vocabulary):
  pieces = vocabulary.pieces(range(vocabulary.size))
  return [[pieces[i] for i in vocabulary.ids(line)] for line in lines]


def test_rejects_models_that_it_cannot_represent(runs, tiny, tmp_path):
  tagged = trained(tiny, tmp_path / "run", "multitask")
  for run, message in (
    (
      runs["pascal"],
      r"config\.parts\.encoder\.parent_scaled is active",
    ),
    (runs["gru_global"], r"config\.model\.family"),
    (tagged, r"adds a tag to every source"),
  ):
    with pytest.raises(InputError, match=message):
      export.run(run, tmp_path / "out", "ctranslate2")
    assert not (tmp_path / "out").exists()
