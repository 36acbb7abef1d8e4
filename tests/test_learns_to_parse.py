"""Systems that learn to parse, from training to translation without a parser."""

import json
import sys

import numpy as np
import pytest
from control_trees import encode
from models_under_test import plan_of
from toy_folders import data_of, opened, values
from without_parser import translated

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
from jaxsyn.session import Session, alignments

LINES = ["The duck arrived .", "", "Ducks ."]


def test_dbsa_learns_to_parse_and_translates_without_a_parser(
  tiny, environment, tmp_path
):
  config = tiny("dbsa")
  config.batch.shapes = 1
  config.model.transformer.encoder_layers = 1
  config.train.update(steps=30, evaluate_every=15, log_every=15, save_every=30)
  config.train.selection = "log_likelihood"
  config.optimiser.update(learning_rate=1e-2)
  config.optimiser.inverse_sqrt.update(warmup=5)
  run = tmp_path / "run"
  assert train.run(config, run).step == 30
  records = [
    json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()
  ]
  for kind in ("train", "validation"):
    first, last = (r for r in records if r["kind"] == kind)
    for name in ("source_heads", "target_heads"):
      raw, weighted = last[f"loss/{name}"], last[f"weighted/{name}"]
      assert weighted == pytest.approx(0.5 * raw)
      assert raw < first[f"loss/{name}"]
    parts = (last["loss/nll"], *(v for k, v in last.items() if "weighted" in k))
    assert last["loss"] == pytest.approx(sum(parts))
  # Sentences have 15 words: a random parent is right once in fifteen.
  assert last["uas/source"] > 0.2
  assert 0.0 < last["uas/target"] < last["uas/target_reachable"] <= 1.0
  text = "\n".join([*LINES, ""])
  assert len(translated(run, environment, text)) == len(LINES)


@pytest.mark.parametrize(
  ("system", "task"), [("multitask", "parse"), ("mixed_encoder", "source")]
)
def test_a_model_with_an_auxiliary_task_translates_without_a_parser(
  tiny, tmp_path, capsys, system, task
):
  config = tiny(system)
  config.batch.shapes = 1
  config.model.transformer.encoder_layers = 1
  config.train.update(steps=1, evaluate_every=1, selection="log_likelihood")
  run = tmp_path / "run"
  assert train.run(config, run).step == 1
  assert "600 examples in addition to 600 tr" in capsys.readouterr().out
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
  ids = session.sources.example(LINES[0])["source_id"].tolist()
  assert ids == {"parse": tagged, "source": plain}[task]
  # Word alignments skip the tags.
  tags = int(task == "parse")
  words_of_S = [0] * tags + [1] * len(plain[:-1]) + [0] * (tags + 1)
  (member,) = session.members
  assert alignments._columns(member, LINES[0]).sum(1).tolist() == words_of_S
  texts = [best[0].text for best in session(LINES)]
  assert texts[0] and texts[2] and not texts[1]

  # A model that only predicts brackets, which are not part of the text.
  table = np.array(session.params[0]["target_table"]["embedding"])
  table[: vocabulary.size] = 0.0
  session.params[0]["target_table"]["embedding"] = table
  (best,) = session(LINES[:1])[0]
  assert max(best.ids) >= vocabulary.size and np.isfinite(best.score)
  words = [i for i in best.ids if i < vocabulary.size]
  assert best.text == vocabulary.decode(words)


@pytest.mark.parametrize(
  "gold, features",
  [("off", set()), ("training", set()), ("always", {"source_head"})],
)
def test_gold_parents_in_translation_need_a_parser(
  tiny, prepared, gold, features
):
  config = tiny("sisa")
  config.parts.encoder.sisa.gold = gold
  plan = resolve(read_config(config), manifests.read(prepared))
  assert plan.translation_features == features


def test_names_a_parser_that_is_not_installed(prepared, monkeypatch):
  monkeypatch.setitem(sys.modules, "ufal", None)
  with pytest.raises(InputError, match=r"UDPipe, which is not installed"):
    UDPipe(prepared / "parser.source.udpipe")


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
