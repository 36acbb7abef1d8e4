"""What CTranslate2 makes of an exported model is what the run makes."""

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
  "post, two tables, an output": dict(
    norm="post",
    activation="gelu",
    tie_embeddings=False,
    tie_output=False,
    decoder_layers=2,
  ),
  "no positions": dict(positions=False),
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
def test_it_translates_and_scores_as_the_run(tiny, tmp_path, name):
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
  # Of what is given too, since a model of 20 steps finds little itself.
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


@pytest.mark.parametrize(
  ("system", "message"),
  [
    ("pascal", r"config\.parts\.encoder\.parent_scaled acts in translation"),
    ("gru_global", r"config\.model\.family"),
    ("multitask", r"a tag around every source"),
  ],
)
def test_what_it_cannot_hold_is_refused_by_name(
  tiny, tmp_path, system, message
):
  config = tiny(system)
  config.batch.shapes = 1
  config.train.update(
    steps=1, evaluate_every=9, save_every=1, selection="log_likelihood"
  )
  train.run(config, tmp_path / "run")
  with pytest.raises(InputError, match=message):
    export.run(tmp_path / "run", tmp_path / "out", "ctranslate2")
  assert not (tmp_path / "out").exists()
