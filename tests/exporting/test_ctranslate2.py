"""CTranslate2 translates an exported model like the run."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxsyn import export, train
from jaxsyn.config import read_config
from jaxsyn.errors import InputError
from jaxsyn.exporting import ExportedModel
from jaxsyn.exporting.ctranslate2 import write
from jaxsyn.session import Session, workdir

ctranslate2 = pytest.importorskip("ctranslate2", reason="extra ctranslate2")
LINES = ["the small dog sees a cat .", "the cat sleeps .", "a house"]
POST_NORM = {
  "norm": "post",
  "positions": False,
  "activation": "gelu",
  "tie_embeddings": False,
  "tie_output": False,
  "decoder_layers": 2,
}


@pytest.fixture
def trained(tiny, made_once):
  """A function that trains a Transformer with changed options of the model."""

  def make(name, changes):
    config = tiny("transformer")
    for option, value in changes.items():
      model = config.model
      (model if option in model else model.transformer)[option] = value
    config.batch.shapes = 1
    config.train.update(steps=1, selection="log_likelihood")
    return made_once(name, lambda folder: train.run(config, folder))

  return make


@pytest.mark.parametrize("name, options", [("pre", {}), ("post", POST_NORM)])
def test_translates_and_scores_like_the_run(trained, tmp_path, name, options):
  run, out = trained(name, options), tmp_path / "out"
  export.run(run, out, "ctranslate2")
  translator = ctranslate2.Translator(
    str(out), compute_type="float32", intra_threads=1
  )
  session = Session(run, beam=1, max_length_factor=0.0, max_length_offset=30)
  source, target = session.sources.vocabularies
  theirs = translator.translate_batch(
    tokens_of(LINES, source),
    beam_size=1,
    max_decoding_length=29,
    length_penalty=0,
    suppress_sequences=[["<pad>"], ["<s>"]],
  )
  for (best,), other in zip(session(LINES), theirs, strict=True):
    assert other.hypotheses == [list(target.pieces(best.ids))]
  # Given translations are scored too: those of so short a training are trivial.
  inputs = ["la dog", "un cat es", "a"]
  scores = translator.score_batch(
    tokens_of(LINES, source), tokens_of(inputs, target)
  )
  for one, other in zip(session.force(LINES, inputs), scores, strict=True):
    np.testing.assert_allclose(other.log_probs, one.log_p, atol=1e-4)
  document = json.loads((out / "jaxsyn.json").read_text())
  assert document["decode"]["beam"] == 2 and document["system"] == "transformer"


def tokens_of(lines, vocabulary):
  return [list(vocabulary.pieces(vocabulary.ids(line))) for line in lines]


EXPORT = "import sys; from jaxsyn import export; export.run(*sys.argv[1:])"


def test_another_process_exports_the_same_bytes(trained, tmp_path, environment):
  run = trained("pre", {})
  export.run(run, tmp_path / "a", "ctranslate2")
  command = [sys.executable, "-c", EXPORT, run, tmp_path / "b", "ctranslate2"]
  subprocess.run(command, env=environment | {"PYTHONHASHSEED": "1"}, check=True)
  first, second = (
    {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
    for name in "ab"
  )
  assert len(first) >= 5 and first == second


def test_rejects_models_that_it_cannot_represent(runs, tiny, tmp_path):
  messages = {"pascal": "parent_scaled is active", "gru_global": "model.family"}
  for system, message in messages.items():
    with pytest.raises(InputError, match=message):
      export.run(runs[system], tmp_path / "out", "ctranslate2")
    assert not (tmp_path / "out").exists()
  run = workdir.create(tmp_path / "run", read_config(tiny("multitask")))
  tagged = ExportedModel(run, None)
  with pytest.raises(InputError, match="adds a tag to every source"):
    write(tagged, tmp_path / "out")
