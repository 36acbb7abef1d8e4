"""Validation of a real run: the metric that selects, batches and devices."""

import dataclasses
import functools
import itertools
import json
import math
import re

import jax
import numpy as np
import pytest
from scored import score

from jaxsyn import train
from jaxsyn.config import read_config, with_defaults
from jaxsyn.configs import base
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.translator import Translator
from jaxsyn.errors import InputError
from jaxsyn.models.contract import forward
from jaxsyn.plan import resolve
from jaxsyn.scoring import selection
from jaxsyn.scoring.metrics import METRICS
from jaxsyn.session import Session
from jaxsyn.training.mesh import Layout
from jaxsyn.training.step import first_params
from jaxsyn.validation import Validator

# These tests come last in the file, since the fixture lasts.
SEVERAL_DEVICES = pytest.mark.usefixtures("eight_devices")


def small(tiny, **changes):
  config = tiny("transformer")
  config.model.update(width=16)
  config.model.transformer.update(encoder_layers=1, feed_forward=16)
  config.train.update(changes)
  return config


@pytest.mark.parametrize(
  "options, warned",
  [
    ({}, True),  # 80 batches of 4 updates each
    ({"accumulate": 1}, False),
    ({"schedule": "constant"}, False),
    ({"inverse_sqrt.warmup": 19}, False),
  ],
)
def test_warns_of_a_warmup_that_lasts_until_the_end(options, warned):
  config = base.get_config()
  config.train.steps, config.optimiser.accumulate = 80, 4
  config.optimiser.inverse_sqrt.warmup = 20
  config.optimiser.update_from_flattened_dict(options)
  warning = train._warmup_warning(with_defaults(read_config(config)))
  assert bool(warning) == warned, warning


def test_selects_the_best_checkpoint_by_the_metric(tiny, tmp_path, capsys):
  folder = tmp_path / "run"
  request = {"selection": "chrf", "steps": 20, "evaluate_every": 10}
  request["validation_sentences"] = 8
  outcome = train.run(small(tiny, **request), folder)
  output = capsys.readouterr().out
  assert "the best checkpoint is selected by chrF" in output
  assert re.search(r"20 steps: \d\.\d epochs of 600 examples, unless", output)
  assert "warm-up takes 400 updates and the run has 20, so" in output
  lines = (folder / "log.jsonl").read_text().splitlines()
  seen = [r for r in map(json.loads, lines) if r["kind"] == "validation"]
  assert [r["step"] for r in seen] == [10, 20]
  best = max(seen, key=lambda r: (r["chrf"], r["log_likelihood"]))
  assert outcome.progress.best_step == best["step"]
  assert outcome.progress.best_score == best["chrf"] == seen[-1]["best_chrf"]
  for record in seen:
    assert "bleu" not in record
    expected = math.exp(-record["log_likelihood"])
    assert record["perplexity"] == pytest.approx(expected)

  session = Session(folder, beam=1)
  assert session.chosen == (
    f"the best checkpoint by validation chrF: {best['chrf']:.2f} at step "
    f"{best['step']}"
  )
  dataset = Dataset(session.run.config.data.directory)
  source, meant = (
    dataset.text("validation", side)[:8] for side in ("source", "target")
  )
  output = [result[0].text for result in session(source)]
  assert score(output, [meant], "chrf").value == pytest.approx(best["chrf"])
  assert session.run.config.train.tokenizer == "13a"  # of the language qaa

  # The options of validation cannot change in a resumed run.
  for name, value in (("selection", "bleu"), ("validation_beam", 2)):
    with pytest.raises(InputError, match=f"{name} was .* and is now {value!r}"):
      train.run(small(tiny, **request | {"steps": 40, name: value}), folder)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_can_select(tiny, metric):
  config = read_config(small(tiny, selection=metric))
  train = with_defaults(config).train
  select = selection.Selector(train, ["a b c d e", "f g h i j"])
  right, half = select(["a b c d e", "f g h i j"]), select(["a b c d e", "x y"])
  better = METRICS[metric].larger_is_better
  assert (right.values[metric] > half.values[metric]) == better
  assert right.compared > half.compared


def test_warns_of_options_of_preparation_without_effect(tiny, prepared):
  config = small(tiny)
  config.prepare.vocabulary.size = 77
  overrides = {"prepare.vocabulary.size": 77, "prepare.shard_mib": 256.0}
  warning = train.unused_prepare_options(
    read_config(config), manifests.read(prepared), overrides
  )
  assert warning.count("config.prepare.") == 1
  assert "vocabulary.size has no effect here" in warning
  assert "was prepared with 300. Prepare it again." in warning


@SEVERAL_DEVICES
def test_uneven_batches_equal_single_sentences(tiny, prepared):
  config = small(tiny, selection="log_likelihood")
  config.batch.tokens = 600  # a few sentences a batch
  config = read_config(config)
  plan = resolve(config, manifests.read(prepared))
  split = Dataset(prepared).split("train")
  validator = Validator(plan, Layout("jit", config.train.mesh), split)
  batches = validator._loader.batch_sampler.in_order()
  sizes = [len(planned.ids) for planned in batches]
  assert sum(sizes) == 600 and len(set(sizes)) > 1
  assert len({planned.shape for planned in batches}) > 1

  examples = list(Dataset(prepared).split("train"))
  # One shape for all; the padding comes after the sentence.
  batches = [
    {
      name: np.pad(example[feature], (0, 80 - len(example[feature])))[None]
      for name, feature in (
        ("source_id_BS", "source_id"),
        ("target_id_BT", "target_id"),
      )
    }
    for example in examples
  ]
  params = first_params(plan.recipe, batches[0], jax.random.key(3))
  logits_of = jax.jit(
    functools.partial(plan.recipe.model.apply, train=False, method=forward)
  )
  log_p, count = 0.0, 0
  for example, batch in zip(examples, batches):
    target_id_T = example["target_id"]
    (logits_TV,) = np.asarray(logits_of({"params": params}, batch), np.float64)
    logits_TV = logits_TV[: len(target_id_T)]
    log_p -= np.log(np.exp(logits_TV).sum(axis=1)).sum()
    log_p += logits_TV[np.arange(len(target_id_T)), target_id_T].sum()
    count += len(target_id_T)

  result = validator(params)
  values = result.values
  assert values["log_likelihood"] == pytest.approx(log_p / count, rel=1e-5)
  assert result.rank == [values["log_likelihood"]]
  assert not {"bleu", "tokenizer"} & set(values)


@SEVERAL_DEVICES
def test_translations_do_not_depend_on_devices(tiny, prepared):
  config = small(tiny, selection="chrf", validation_sentences=16)
  config.train.mesh.fsdp = 8
  config.decode.sentences = 8
  config.decode.update(max_length_factor=0.2, max_length_offset=2)
  config = read_config(config)
  plan = resolve(config, manifests.read(prepared))
  layout = Layout("jit", config.train.mesh)
  vocabulary = Vocabulary(prepared / "vocabulary.model")
  validator = Validator(plan, layout, Dataset(prepared).split("validation"))
  batch = validator._loader.empty()[0]
  params = first_params(plan.recipe, batch, jax.random.key(3))
  split = jax.device_put(params, layout.shardings(params))
  before = sum(x.nbytes for x in jax.live_arrays())
  result = validator(split)
  # No device keeps a copy of all parameters.
  saved = sum(x.nbytes for x in jax.live_arrays()) - before
  assert saved < sum(x.nbytes for x in jax.tree.leaves(params)) / 2

  records = itertools.islice(Dataset(prepared).split("validation"), 16)
  examples = [(record,) for record in records]
  jobs = validator._translator._jobs(examples)
  assert len({job.device for job in jobs} - {None}) > 1
  decode = dataclasses.replace(config.decode, beam=1, nbest=1)
  translate = Translator(Ensemble((plan.recipe.model,)), vocabulary, decode)
  expected = [best.text for (best,) in translate([params], examples)]
  assert len(set(expected)) > 4
  assert [sample.translation for sample in result.samples] == expected[:4]
  references = Dataset(prepared).text("validation", "target")[:16]
  assert result.values["chrf"] == pytest.approx(
    score(expected, [references], "chrf").value
  )
