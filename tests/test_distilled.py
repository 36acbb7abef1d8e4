"""Distillation from a teacher that reads trees to a student that does not."""

import copy
import dataclasses
import functools
import json
import operator
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

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.models import contract
from jaxsyn.models.contract import forward, states
from jaxsyn.options import ROOT
from jaxsyn.plan import check_trees, resolve
from jaxsyn.session import Session, teacher, workdir
from jaxsyn.storage import checksums, files
from jaxsyn.syntax.maps import COLLECTION, Address, Maps
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


def attention_of(model, params, layer):
  """Returns the attention weights of an encoder layer (BHQM)."""
  variables, collections = {"params": params}, [COLLECTION]
  _, state = model.apply(
    variables, BATCH, train=False, method=states, mutable=collections
  )
  maps = Maps.of(state)
  address = Address("encoder", layer, "", "weight_BHQM")
  return maps.at(address)


def test_batches_contain_the_attention_of_the_teacher(tiny, runs):
  config = tiny("distilled")
  config.losses.distillation.update(
    teacher=str(runs["pascal"]), teacher_heads=(2, 0), heads=(1, 3)
  )
  ours = taught(config).chain(None)(dict(BATCH))[TEACHER_ATTENTION]
  session = Session(runs["pascal"])
  theirs = attention_of(session.plan.recipe.model, session.params[0], layer=0)
  np.testing.assert_allclose(ours, theirs[:, (2, 0)], atol=1e-6)
  assert taught(config).features == {"source_parent_mid"}
  # It depends on the tree: for another tree, and for a sentence without tree.
  other = {**BATCH, "source_parent_mid_BS": BATCH["source_parent_mid_BS"] * 0}
  moved = abs(taught(config)(other)[TEACHER_ATTENTION] - ours).max((1, 2, 3))
  assert moved[0] > 1e-4 and moved[2] == 0
  assert teachers(tiny("pascal")) == ()


@pytest.mark.parametrize(
  "attention, layer, index", [("einsum", 1, 1), ("fused", -2, 0)]
)
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
  weights = [attention_of(model, params, layer) for layer in (0, 1)]
  assert abs(weights[0] - weights[1])[:, (2, 0)].max() > 0.1
  np.testing.assert_allclose(inputs, weights[index][:, (2, 0)], atol=1e-6)


def test_attention_loss_against_loops():
  config = config_of("distilled", heads=4, width=16)
  loss = dataclasses.replace(
    dict(config.losses)["distillation"], layer=-1, heads=(3, 1)
  )
  losses = dict(config.losses) | {"distillation": loss}
  config = dataclasses.replace(config, losses=tuple(losses.items()))
  plan = resolve(config, JOINT)
  params = parameters(plan, BATCH)
  _, maps = outputs(plan.recipe, params, BATCH, train=False)
  expected = plan.recipe.losses["distillation"]
  sum_B, count_B = expected.of_rows(None, maps["distillation"], BATCH)
  address = Address("encoder", 1, "", "weight_BHQM")
  weight, right = np.float64(maps["distillation"].at(address)), 0
  for b, ids in enumerate(BATCH["source_id_BS"]):
    real = int((ids > 0).sum())
    wanted = 0.0
    for i, head in enumerate((3, 1)):
      for q in range(real):
        row = BATCH[TEACHER_ATTENTION][b, i, q]
        wanted -= row[:real] @ np.log(weight[b, head, q, :real])
        right += row.argmax() == weight[b, head, q].argmax()
    np.testing.assert_allclose(sum_B[b], wanted, rtol=1e-5)
    assert count_B[b] == 2 * real
  measured = expected.measure(maps["distillation"], BATCH)
  assert measured == {"taught": (right, count_B.sum())}


def test_batches_contain_the_predictions_of_the_teacher(tiny, runs):
  config = tiny("distilled_words")
  config.losses.word_distillation.update(teacher=str(runs["pascal"]), top=7)
  assert taught(config).features == {"source_parent_mid"}
  inputs = taught(config).chain(None)(dict(BATCH))
  session = Session(runs["pascal"])
  model = session.plan.recipe.model
  logits_BTV = np.asarray(
    model.apply(
      {"params": session.params[0]}, BATCH, train=False, method=forward
    ),
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


def test_word_loss_against_loops():
  """Some positions at a time."""
  plan = resolve(config_of("distilled_words", heads=4, width=16), JOINT)
  recipe = plan.recipe
  params = parameters(plan, BATCH)
  state_BTD, maps = outputs(recipe, params, BATCH, train=False)
  logits = Logits(recipe.model, params, state_BTD, max_size=100)
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


def test_learns_resumes_and_translates_without_trees_and_teacher(
  tiny, tmp_path, capsys
):
  # Its heads attend to the parent from the first step.
  config = tiny("pascal_additive")
  config.model.transformer.encoder_layers = 1
  config.batch.shapes = 1
  config.train.update(steps=2, evaluate_every=2, selection="log_likelihood")
  train.run(config, tmp_path / "teacher")
  config = tiny("distilled+distilled_words")
  for loss in ("distillation", "word_distillation"):
    config.losses[loss].update(teacher=str(tmp_path / "teacher"), weight=5.0)
  config.batch.shapes = 1
  config.model.transformer.update(dropout=0.0)
  config.train.update(steps=80, evaluate_every=40, save_every=80, log_every=40)
  # Figures and translations in validation need no teacher.
  config.train.update(validation_sentences=2)
  config.train.writers.pictures = 1
  config.optimiser.update(name="muon", learning_rate=1e-2)
  config.optimiser.inverse_sqrt.update(warmup=20)
  run = tmp_path / "run"
  assert train.run(config, run).step == 80
  first, last = rows_of(run, "validation")
  for name, fall in (("distillation", 0.1), ("word_distillation", 0.02)):
    assert last[f"loss/{name}"] < first[f"loss/{name}"] - fall
  assert last["taught"] > 0.2  # at random, one in 15
  message = f"teacher: {tmp_path / 'teacher'}, the best checkpoint"
  assert message in capsys.readouterr().out
  # A resumed run needs the same teacher.
  path = run / "teachers.json"
  record = checksums.verify_checksum(json.loads(path.read_text()))
  losses = ("distillation", "word_distillation")
  assert {*record} == {f"config.losses.{name}" for name in losses}
  assert {*record.values()} == {one.checksum for one in teachers(config)}
  train.run(config, run)
  record["config.losses.distillation"] = "0"
  files.write_json(path, checksums.add_checksum(record))
  with pytest.raises(InputError, match="learned from other parameters than"):
    train.run(config, run)
  path.write_text("{")
  with pytest.raises(InputError, match=r"teachers\.json is corrupt"):
    train.run(config, run)
  # Translation needs no teacher.
  shutil.rmtree(tmp_path / "teacher")
  session = Session(run, beam=1)
  assert session.plan.translation_features == frozenset()
  assert len(list(session(["The duck arrived .", ""]))) == 2


@pytest.mark.parametrize(
  "options, message",
  [
    ({"teacher": ""}, r"\.teacher='' names no run"),
    ({"teacher": "nowhere"}, "nowhere"),
    ({"teacher_layer": 3}, r"teacher_layer: 3 is not one of the 1 layers"),
    ({"teacher_heads": (0, 9)}, r"teacher_heads: 9 is not one of the 4 heads"),
    ({"heads": (0, 0)}, r"heads=\(0, 0\) must name heads, each once"),
    ({"heads": (0,)}, r"heads=\(0,\) must be as many as teacher_heads"),
  ],
)
def test_rejects_invalid_options(tiny, runs, options, message):
  config = tiny("distilled")
  config.losses.distillation.update({"teacher": str(runs["pascal"])} | options)
  with pytest.raises(InputError, match=message):
    taught(config)


@pytest.mark.parametrize(
  "learner, system, changed, message",
  [
    ("distilled", "pascal", "vocabulary source sha256", "of the source"),
    ("distilled_words", "pascal", "vocabulary target sha256", "of the target"),
    ("distilled", "pascal", "parser source sha256", "parser of the source"),
    ("distilled", "pascal", "relations source", "other relations"),
    ("distilled", "pascal", "tree", r"trained with config\.data\.tree="),
    ("distilled+multitask", "pascal", "", "symbols"),
    # The seed of the teacher is 0.
    (
      "distilled",
      "pascal_random_tree",
      "tree",
      r"trees of config\.seed=0",
    ),
    # A teacher that reads no trees does not depend on them.
    ("distilled_words", "gru_global", "parser source sha256", None),
    ("distilled_words", "gru_global", "relations source", None),
    ("distilled_words", "gru_global", "tree", None),
  ],
)
def test_rejects_a_teacher_of_other_data(
  tiny, tmp_path, learner, system, changed, message
):
  workdir.create(tmp_path / "teacher", read_config(tiny(system)))
  config = tiny(learner)
  loss = "word_" * (learner == "distilled_words") + "distillation"
  config.losses[loss].teacher = str(tmp_path / "teacher")
  config.seed = 1
  other = copy.deepcopy(manifests.read(config.data.directory))
  if changed == "tree":
    config.data.tree = "random"
  plan = resolve(read_config(config), other)
  if changed not in ("", "tree"):
    *path, last = changed.split()
    part = functools.reduce(operator.getitem, path, other)
    part[last] = "1" if last == "sha256" else ["other"]
  if message is None:
    teacher.check(plan, other)
    return
  with pytest.raises(InputError, match=message):
    teacher.check(plan, other)


def test_the_teacher_reads_sampled_trees(tiny, runs, tmp_path):
  config = tiny("distilled")
  config.data.tree = "sampled"
  config.batch.shapes = 1
  config.train.update(steps=1, evaluate_every=1, selection="log_likelihood")
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
