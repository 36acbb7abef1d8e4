"""Parsing as an auxiliary task, from training to translation."""

import json

import numpy as np
import pytest
from control_trees import encode
from models_under_test import plan_of
from toy_folders import data_of, opened, values

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.data import schema
from jaxsyn.data.sentence import linearise
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.session import Session
from jaxsyn.training.mesh import Layout
from jaxsyn.validation import Validator

LINES = ["The duck arrived .", "", "Ducks ."]


@pytest.mark.parametrize(
  ("system", "task"), [("multitask", "parse"), ("mixed_encoder", "source")]
)
def test_a_model_trained_to_parse_translates_without_a_parser(
  tiny, tmp_path, capsys, system, task
):
  config = tiny(system)
  config.batch.shapes = 1
  config.model.transformer.encoder_layers = 1
  config.train.update(steps=2, evaluate_every=2, validation_sentences=2)
  run = tmp_path / "run"
  assert train.run(config, run).step == 2
  assert "600 examples in addition to 600 tr" in capsys.readouterr().out
  options = json.loads((run / "config.json").read_text())["data"]["second"]
  assert options == {"task": task, "brackets": "dependency", "weight": 1.0}
  config.data.second.weight = 0.5
  with pytest.raises(InputError, match=r"second\.weight was 1\.0 and is now"):
    train.run(config, run)

  (run / "parser.source.udpipe").unlink()
  session = Session(run, beam=1)
  assert session.sources.tree == "none"
  assert not session.plan.translation_features
  vocabulary = session.run.vocabulary("target")
  plain = [*vocabulary.encode(LINES[0]).id, schema.EOS]
  tag = vocabulary.size + linearise.TRANSLATE
  tagged = [tag, *plain[:-1], tag, schema.EOS]
  ids = session.example(LINES[0])["source_id"].tolist()
  assert ids == {"parse": tagged, "source": plain}[task]
  texts = [best[0].text for best in session(LINES)]
  assert texts[0] and texts[2] and not texts[1]

  # A model that only predicts brackets, which are not part of the text.
  table = np.array(session.params["target_table"]["embedding"])
  table[: vocabulary.size] = 0.0
  session.params["target_table"]["embedding"] = table
  (best,) = session(LINES[:1])[0]
  assert max(best.ids) >= vocabulary.size and np.isfinite(best.score)
  words = [i for i in best.ids if i < vocabulary.size]
  assert best.text == vocabulary.decode(words)


def test_validation_shapes_include_tags(tiny, prepared):
  config = read_config(tiny("multitask"))
  plan = resolve(config, manifests.read(prepared))
  split = Dataset(prepared).split("validation")
  validator = Validator(plan, Layout("jit", config.train.mesh), split)
  length = split.lengths.source + 2
  for planned in validator._loader.batch_sampler.in_order():
    assert length[planned.ids].max() <= planned.shape.source


def test_translation_and_validation_have_the_same_features(prepared):
  plan = plan_of("pascal+dependency_relative+multitask")
  split = Dataset(prepared).split("validation")
  manifest = split.dataset.manifest
  loader = opened(
    split, plan.features, data=data_of(task="parse"), training=False
  )
  names = [name for name in loader.features if name.startswith("source")]
  assert {"source_parent_mid", "source_head"} <= set(names)
  vocabulary = Vocabulary(prepared / "vocabulary.model")
  parser = UDPipe(prepared / "parser.source.udpipe")
  tag = vocabulary.size + linearise.TRANSLATE
  for i, line in enumerate(split.dataset.text("validation", "source")):
    example = encode(
      parser(line),
      None,
      vocabularies=(vocabulary, vocabulary),
      **schema.encoding(manifest),
      tag=tag,
    )
    assert example["source_id"][[0, -2]].tolist() == [tag, tag]
    for name in names:
      stored = values(loader.all_examples, name, i)
      np.testing.assert_array_equal(stored, np.ravel(example[name]))
