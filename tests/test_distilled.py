"""Distillation from a teacher that reads trees to a student that does not."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from models_under_test import (
  JOINT,
  batch_of,
  config_of,
  parameters,
  plan_of,
  sentence,
)
from without_parser import translated

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.models import contract
from jaxsyn.models.contract import forward, states
from jaxsyn.options import ROOT
from jaxsyn.plan import check_trees, resolve
from jaxsyn.session import Session, teacher
from jaxsyn.storage import checksums, files
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.training.distillation import TEACHER_ATTENTION
from jaxsyn.training.distillation import TEACHER_IDS as ID
from jaxsyn.training.distillation import TEACHER_PROBS as P
from jaxsyn.training.logits import Logits
from jaxsyn.training.step import outputs, terms_of

# With more words than subwords, with a single word, and without words.
PAIRS = [sentence(5, 6, 1), sentence(3, 4, 226, bare=17), sentence(1, 3, 4)]
BATCH = {
  k: np.asarray(x) for k, x in batch_of([*PAIRS, sentence(0, 2, 5)]).items()
}
BATCH["source_parsed_B"] = np.array([1, 1, 0, 1], np.uint8)


def teachers(config):
  manifest = manifests.read(config.data.directory)
  return teacher.read(resolve(read_config(config), manifest), manifest)


def taught(config):
  (one,) = teachers(config)
  return one


def test_batches_contain_the_attention_of_the_teacher(tiny, runs):
  config = tiny("distilled")
  config.losses.distillation.update(
    teacher=str(runs["pascal"]), teacher_heads=(2, 0), heads=(1, 3)
  )
  ours = taught(config).chain(None)(dict(BATCH))[TEACHER_ATTENTION]
  session = Session(runs["pascal"])
  _, state = session.plan.recipe.model.apply(
    {"params": session.params}, BATCH, train=False, method=states,
    mutable=[COLLECTION],
  )  # fmt: skip
  (result,) = Maps.of(state).find(
    stack="encoder", modifier="", kind="weight_BHQM"
  )
  np.testing.assert_allclose(ours, result.value[:, (2, 0)], atol=1e-6)
  assert taught(config).features == {"source_parent_mid"}
  # It depends on the tree: for another tree, and for a sentence without tree.
  other = {**BATCH, "source_parent_mid_BS": BATCH["source_parent_mid_BS"] * 0}
  moved = abs(taught(config)(other)[TEACHER_ATTENTION] - ours).max((1, 2, 3))
  assert moved[0] > 1e-4 and moved[2] == 0
  assert teachers(tiny("pascal")) == ()


@pytest.mark.parametrize("attention", ["einsum", "fused"])
@pytest.mark.parametrize("layer, index", [(1, 1), (-2, 0)])
def test_the_teacher_layer_is_selected(attention, layer, index):
  plan = plan_of("pascal_additive", heads=4, attention=attention)
  params = parameters(plan, BATCH)
  loss = dataclasses.replace(
    dict(config_of("distilled").losses)["distillation"],
    teacher_layer=layer,
    teacher_heads=(2, 0),
  )
  model = contract.make(loss.required_maps_of_teacher(ROOT, plan.spec))
  inputs = loss.teacher_features(model, params, BATCH)[TEACHER_ATTENTION]
  model = plan_of("pascal_additive", heads=4).recipe.model
  _, state = model.apply(
    {"params": params}, BATCH, train=False, method=states, mutable=[COLLECTION]
  )
  weights = [
    Maps.of(state).find(
      stack="encoder", layer=one, modifier="", kind="weight_BHQM"
    )[0].value
    for one in (0, 1)
  ]  # fmt: skip
  assert abs(weights[0] - weights[1])[:, (2, 0)].max() > 0.1
  np.testing.assert_allclose(inputs, weights[index][:, (2, 0)], atol=1e-6)


def test_attention_loss_against_loops():
  config = config_of("distilled", heads=4, width=16)
  loss = dataclasses.replace(
    dict(config.losses)["distillation"], layer=-1, heads=(3, 1)
  )
  losses = dict(config.losses) | {"distillation": loss}
  plan = resolve(
    dataclasses.replace(config, losses=tuple(losses.items())),
    JOINT,
  )
  params = parameters(plan, BATCH)
  _, maps = outputs(plan.recipe, params, BATCH, train=False)
  expected = plan.recipe.losses["distillation"]
  sum_B, count_B = expected.of_rows(None, maps["distillation"], BATCH)
  (result,) = maps["distillation"].find(
    stack="encoder", layer=1, modifier="", kind="weight_BHQM"
  )
  weight, right = np.asarray(result.value, np.float64), 0
  for b, ids in enumerate(BATCH["source_id_BS"]):
    real = int((ids > 0).sum())
    wanted = 0.0
    for i, head in enumerate((3, 1)):
      for q in range(real):
        row = BATCH[TEACHER_ATTENTION][b, i, q]
        wanted -= sum(
          row[m] * np.log(weight[b, head, q, m]) for m in range(real)
        )
        right += row.argmax() == weight[b, head, q].argmax()
    np.testing.assert_allclose(sum_B[b], wanted, rtol=1e-5)
    assert count_B[b] == 2 * real
  ((hits, request),) = expected.measure(maps["distillation"], BATCH).values()
  assert (float(hits), float(request)) == (right, float(count_B.sum()))


def test_batches_contain_the_predictions_of_the_teacher(tiny, runs):
  config = tiny("distilled_words")
  config.losses.word_distillation.update(teacher=str(runs["pascal"]), top=7)
  assert taught(config).features == {"source_parent_mid"}
  inputs = taught(config).chain(None)(dict(BATCH))
  session = Session(runs["pascal"])
  model = session.plan.recipe.model
  logits_BTV = np.asarray(
    model.apply({"params": session.params}, BATCH, train=False, method=forward),
    np.float64,
  )
  B, T, _ = logits_BTV.shape
  assert inputs[ID].shape == inputs[P].shape == (B, T, 7)
  for b, t in np.ndindex(B, T):
    best = np.argsort(-logits_BTV[b, t], kind="stable")[:7]
    p = np.exp(logits_BTV[b, t, best] - logits_BTV[b, t, best[0]])
    np.testing.assert_allclose(inputs[P][b, t], p / p.sum(), atol=1e-5)
    chosen = logits_BTV[b, t, inputs[ID][b, t]]
    np.testing.assert_allclose(chosen, logits_BTV[b, t, best], atol=1e-5)
  # At most the vocabulary.
  config.losses.word_distillation.top = 1000
  assert taught(config)(dict(BATCH))[ID].shape[-1] == logits_BTV.shape[-1]


@pytest.mark.parametrize("held", [2**28, 100])
def test_word_loss_against_loops(held):
  plan = resolve(config_of("distilled_words", heads=4, width=16), JOINT)
  recipe = plan.recipe
  params = parameters(plan, BATCH)
  state_BTD, maps = outputs(recipe, params, BATCH, train=False)
  logits = Logits(recipe.model, params, state_BTD, held)
  sums, count = terms_of(recipe, logits, maps, BATCH)["word_distillation"]
  logits_BTV = np.asarray(logits.all_BTV(), np.float64)
  log_p_BTV = logits_BTV - np.log(np.exp(logits_BTV).sum(-1, keepdims=True))
  wanted = items = 0.0
  for b, t in np.argwhere(np.asarray(BATCH["target_id_BT"]) > 0):
    for v, q in zip(BATCH[ID][b, t], BATCH[P][b, t], strict=True):
      wanted -= q * log_p_BTV[b, t, v]
    items += 1
  np.testing.assert_allclose(sums, wanted, rtol=1e-5)
  assert count == items


def rows_of(folder, kind):
  rows = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
  return [row for row in rows if row["kind"] == kind]


@pytest.mark.parametrize(
  "name, fall", [("distillation", 0.1), ("word_distillation", 0.02)]
)
def test_learns_and_translates_without_a_parser_and_teacher(
  tiny, environment, tmp_path, capsys, name, fall
):
  # Its heads attend to the parent from the first step.
  config = tiny("pascal_additive")
  config.model.transformer.encoder_layers = 1
  config.batch.shapes = 1
  config.train.update(steps=2, evaluate_every=2, selection="log_likelihood")
  train.run(config, tmp_path / "teacher")
  systems = {
    "distillation": "distilled",
    "word_distillation": "distilled_words",
  }
  config = tiny(systems[name])
  config.losses[name].update(teacher=str(tmp_path / "teacher"), weight=5.0)
  config.batch.shapes = 1
  config.model.transformer.dropout = 0.0
  config.train.update(steps=80, evaluate_every=40, save_every=40, log_every=40)
  config.train.selection = "log_likelihood"
  config.optimiser.update(name="muon", learning_rate=1e-2)
  config.optimiser.inverse_sqrt.update(warmup=20)
  run = tmp_path / "run"
  assert train.run(config, run).step == 80
  first, last = rows_of(run, "validation")
  assert last[f"loss/{name}"] < first[f"loss/{name}"] - fall
  if name == "distillation":
    assert last["taught"] > 0.2  # at random, one in 15
  message = f"teacher: {tmp_path / 'teacher'}, the best checkpoint"
  assert message in capsys.readouterr().out
  shutil.rmtree(tmp_path / "teacher")
  lines = "The duck arrived .\n\nDucks .\n"
  assert len(translated(run, environment, lines)) == 3


@pytest.mark.parametrize(
  "options, message",
  [
    ({"teacher": ""}, r"losses\.distillation\.teacher='' names no run"),
    ({"teacher": "nowhere"}, "nowhere"),
    ({"teacher_layer": 3}, r"teacher_layer: 3 is not one of the 1 layers"),
    ({"teacher_heads": (0, 9)}, r"teacher_heads: 9 is not one of the 4 heads"),
    ({"heads": (0, 0)}, r"heads=\(0, 0\) must name heads, each once"),
    ({"heads": (0,)}, r"heads=\(0,\) must be as many as teacher_heads"),
    ({"layer": 2}, r"distillation\.layer: 2 is not one of the 2 layers"),
  ],
)
def test_rejects_invalid_options(tiny, runs, options, message):
  config = tiny("distilled")
  config.losses.distillation.update({"teacher": str(runs["pascal"])} | options)
  with pytest.raises(InputError, match=message):
    taught(config)


def test_rejects_a_teacher_of_other_trees_or_subwords(tiny, runs):
  config = tiny("distilled")
  config.losses.distillation.teacher = str(runs["pascal"])
  config.data.tree = "random"
  with pytest.raises(InputError, match=r"was trained with config\.data\.tree="):
    taught(config)
  config.data.tree = "parsed"
  manifest = manifests.read(config.data.directory)
  other = {**manifest, "vocabulary": {**manifest["vocabulary"]}}
  other["vocabulary"]["source"] = {
    **other["vocabulary"]["source"],
    "sha256": "1",
  }
  plan = resolve(read_config(config), manifest)
  with pytest.raises(InputError, match="has another vocabulary of the source"):
    teacher.read(plan, other)


def test_rejects_a_teacher_of_other_tags_or_targets(tiny, runs):
  config = tiny("distilled+multitask")
  config.losses.distillation.teacher = str(runs["pascal"])
  with pytest.raises(InputError, match="other symbols of tasks"):
    teachers(config)
  config = tiny("distilled_words")
  config.losses.word_distillation.teacher = str(runs["pascal"])
  manifest = manifests.read(config.data.directory)
  plan = resolve(read_config(config), manifest)
  target = {**manifest["vocabulary"]["target"], "sha256": "1"}
  vocabularies = {**manifest["vocabulary"], "target": target}
  with pytest.raises(InputError, match="another vocabulary of the target"):
    teacher.read(plan, {**manifest, "vocabulary": vocabularies})


def test_rejects_a_teacher_of_another_seed_or_parser(tiny, runs, tmp_path):
  teaching = tiny("pascal_random_tree")
  teaching.batch.shapes = 1
  teaching.train.update(steps=2, evaluate_every=2, selection="log_likelihood")
  teaching.seed = 1
  train.run(teaching, tmp_path / "teacher")
  config = tiny("distilled")
  config.losses.distillation.teacher = str(tmp_path / "teacher")
  config.data.tree, config.seed = "random", 1
  assert taught(config)
  config.seed = 2
  with pytest.raises(
    InputError, match=r"trees of config\.seed=1, and this run"
  ):
    taught(config)
  config.seed = 1
  manifest = manifests.read(config.data.directory)
  plan = resolve(read_config(config), manifest)
  parser = manifest["parser"]["source"] | {"sha256": "2"}
  with pytest.raises(InputError, match="has another parser of the source"):
    teacher.read(plan, {**manifest, "parser": {"source": parser}})
  # A teacher that reads no trees does not depend on them.
  config = tiny("distilled_words")
  config.losses.word_distillation.teacher = str(runs["gru_global"])
  plan = resolve(read_config(config), manifest)
  relations = manifest["relations"] | {"source": ["other"]}
  other = {"parser": {"source": parser}, "relations": relations}
  assert teacher.read(plan, {**manifest, **other})
  config.data.tree = "random"
  assert taught(config)


def test_a_resumed_run_needs_the_same_teacher(tiny, runs, tmp_path):
  """Figures and translations in validation need no teacher."""
  config = tiny("distilled")
  config.losses.distillation.teacher = str(runs["pascal"])
  config.batch.shapes = 1
  config.train.update(
    steps=2, evaluate_every=2, save_every=2, validation_sentences=2
  )
  config.train.writers.pictures = 1
  train.run(config, tmp_path / "run")
  before = json.loads((tmp_path / "run" / "teachers.json").read_text())
  (one,) = teachers(config)
  assert before["config.losses.distillation"] == one.checksum
  config.train.steps = 4
  train.run(config, tmp_path / "run")
  before["config.losses.distillation"] = "0"
  before.pop("crc32c")
  files.write_json(
    tmp_path / "run" / "teachers.json", checksums.add_checksum(before)
  )
  config.train.steps = 6
  with pytest.raises(InputError, match="learned from other parameters than"):
    train.run(config, tmp_path / "run")
  (tmp_path / "run" / "teachers.json").write_text("{")
  with pytest.raises(InputError, match=r"teachers\.json is corrupt"):
    train.run(config, tmp_path / "run")


def test_the_teacher_reads_sampled_trees(tiny, runs, tmp_path):
  config = tiny("distilled")
  config.data.tree = "sampled"
  config.batch.shapes = 1
  config.train.update(steps=2, evaluate_every=2, selection="log_likelihood")
  manifest = manifests.read(config.data.directory)
  plan = resolve(read_config(config), manifest)
  with pytest.raises(InputError, match="reads no tree"):
    check_trees([plan])
  config.losses.distillation.teacher = str(runs["pascal"])
  check_trees([resolve(read_config(config), manifest)])
  losses = []
  for rate in (0.0, 1.0):
    config.data.sampled.rate = rate
    train.run(config, tmp_path / str(rate))
    (row,) = rows_of(tmp_path / str(rate), "train")
    losses.append(row["loss/distillation"])
  assert losses[0] != losses[1]
