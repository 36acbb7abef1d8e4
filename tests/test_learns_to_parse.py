"""A system that learns to parse, from training to translation without a parser."""

import json
import sys

import pytest
from without_parser import translated

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve


def test_dbsa_learns_to_parse_and_translates_without_a_parser(
  tiny, environment, tmp_path
):
  config = tiny("dbsa")
  config.batch.shapes = 1
  config.model.transformer.encoder_layers = 1
  config.train.update(steps=30, evaluate_every=15, log_every=15, save_every=30)
  config.optimiser.update(learning_rate=1e-2)
  config.optimiser.inverse_sqrt.update(warmup=5)
  config.train.validation_sentences = 1
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
  assert (
    len(translated(run, environment, "The duck arrived .\n\nDucks .\n")) == 3
  )


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
