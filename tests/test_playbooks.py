"""Follows the guides in docs/extending and tests their examples.

The file of an example is run as a module, its spec is added to the registry and
its function to the systems; then a tiny model is trained with it for an update.
"""

import functools
import importlib
import re
import sys
import types

import documents
import jax
import numpy as np
import pytest
from models_under_test import (
  JOINT,
  batch_of,
  logits,
  parameters,
  sentence,
  without_modifiers,
)
from tables_under_test import Tables, random_params, request_of, run_search
from window_cases import SITE

from jaxsyn import syntax
from jaxsyn.config import read_config
from jaxsyn.configs import base, recurrent_systems, systems
from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.loader.tasks import TASKS
from jaxsyn.data.schema import PAD
from jaxsyn.data.sentence import conllu
from jaxsyn.decode.strategies import STRATEGIES
from jaxsyn.errors import InputError
from jaxsyn.models.architectures import ARCHITECTURES
from jaxsyn.models.contract import sentence_features
from jaxsyn.plan import resolve
from jaxsyn.scoring.metrics import METRICS
from jaxsyn.scoring.scorers import References
from jaxsyn.syntax.maps import Address, Maps, Published
from jaxsyn.training.losses import LOSSES
from jaxsyn.training.optimizers import OPTIMIZERS
from jaxsyn.training.schedules import SCHEDULES
from jaxsyn.training.step import first_state, train_step

TABLES = {
  "MODIFIERS": syntax.MODIFIERS,
  "WINDOWS": syntax.WINDOWS,
  "ARCHITECTURES": ARCHITECTURES,
  "LOSSES": LOSSES,
  "OPTIMIZERS": OPTIMIZERS,
  "SCHEDULES": SCHEDULES,
  "METRICS": METRICS,
  "STRATEGIES": STRATEGIES,
  "TASKS": TASKS,
  "ANNOTATIONS": ANNOTATIONS,
}
FILES = [
  (block.file, block.code)
  for path in (documents.README, *documents.EXTENDING)
  for block in documents.blocks(path)
  if block.file.startswith("jaxsyn/")
]
TEXT = "\n".join(path.read_text() for path in documents.EXTENDING)
# Name -> class and registry of each example.
LINES = {
  name: (cls, table)
  for name, cls, table in re.findall(
    r'`"(\w+)": (\w+)`\s(?:in|to)\s`(\w+)`', TEXT
  )
}
FUNCTIONS = {
  name: block.code
  for path in documents.EXTENDING
  for block in documents.blocks(path)
  for name in re.findall(r"^def (\w+)\(config\):", block.code)
}
# Changes of a config that select a component without a system.
SELECT = {
  "coverage": lambda c: c.losses.update(coverage=LOSSES.section("coverage")),
  "lion": lambda c: c.optimiser.update(name="lion"),
  "repeat": lambda c: c.data.second.update(task="repeat"),
  "cosine": lambda c: c.optimiser.update(schedule="cosine"),
  "longer": lambda c: c.decode.update(search="longer"),
}
BATCH = batch_of([sentence(4, 6, 1), sentence(6, 5, 2)], extra=2)


@pytest.fixture
def follow(monkeypatch):
  """A function: names of examples, options -> plan that uses them."""

  def added(name):
    cls, table = LINES[name]
    ((file, code),) = [f for f in FILES if f"class {cls}(" in f[1]]
    module = types.ModuleType(name)
    if (documents.ROOT / file).exists():  # the code is added to this file
      present = file.removesuffix(".py").replace("/", ".")
      vars(module).update(vars(importlib.import_module(present)))
    monkeypatch.setitem(sys.modules, name, module)
    exec(code, vars(module))
    monkeypatch.setitem(TABLES[table], name, getattr(module, cls))

  def followed(*names, **options):
    for name in names:
      added(name)
    config = base.get_config()
    config.model.update(width=8)
    config.model.transformer.update(
      encoder_layers=1, decoder_layers=1, feed_forward=8, heads=2, dropout=0.0
    )
    config.model.gru.hidden = 4
    for function, code in FUNCTIONS.items():
      if function.removeprefix("gru_") in names:
        scope = {"MODIFIERS": syntax.MODIFIERS, "_gru": recurrent_systems._gru}
        exec(code, scope)
        monkeypatch.setitem(systems.SYSTEMS, function, scope[function])
        systems.apply(config, function)
    for name in names:
      SELECT.get(name, lambda _: None)(config)
    config.update_from_flattened_dict(options)
    return resolve(read_config(config), JOINT)

  return followed


def test_every_registry_has_a_guide():
  assert {table for _, table in LINES.values()} == set(TABLES)
  assert len(FILES) == len(LINES)


def test_added_components_are_trained(follow):
  plan = follow("tree_damped", "coverage", "lion", "cosine")
  start = jax.jit(functools.partial(first_state, plan.recipe, seed=0))
  step = jax.jit(functools.partial(train_step, recipe=plan.recipe))
  before = start(BATCH)
  after, metrics = step(before, BATCH)
  assert set(metrics["terms"]) == {"nll", "coverage"}
  for total, count in metrics["terms"].values():
    assert np.isfinite(total) and count > 0
  # Lion's updates are signs: the peak rate, or 0.
  rate = plan.config.optimiser.learning_rate
  for x, y in zip(*map(jax.tree.leaves, (before.params, after.params))):
    moved = np.abs(np.asarray(y) - np.asarray(x))
    assert np.all((moved == 0) | np.isclose(moved, rate, rtol=1e-3))


def test_modifier_reads_the_tree_where_there_is_one(follow):
  plan = follow("tree_damped")
  assert plan.features == {"source_tree_distance"}
  params = parameters(plan, BATCH)
  unparsed = BATCH | {"source_parsed_B": BATCH["source_parsed_B"].at[0].set(0)}
  damped, plain = (logits(plan, params, b) for b in (BATCH, unparsed))
  assert not np.allclose(damped[0], plain[0], atol=1e-5)
  np.testing.assert_array_equal(damped[1], plain[1])
  baseline = logits(without_modifiers(plan), params, BATCH)
  np.testing.assert_array_equal(plain[0], baseline[0])


def test_window_is_near_the_last_position(follow):
  spec = dict(follow("near").config.model.family.windows)["near"]
  window, view = spec.make(SITE), sentence_features(BATCH, "source")
  rows, size = view.real_BS.shape
  score_BNS = np.random.default_rng(0).normal(size=(rows, 1, size))
  past_BN = np.array([[0.0], [7.2], *([[0.0]] * (rows - 2))])
  weight_BNS, where_BN = window.apply({}, score_BNS, None, (), past_BN, view)
  seen_BNS = np.abs(np.arange(size) - past_BN[..., None]) <= spec.reach
  real_BNS = np.asarray(view.real_BS)[:, None]
  np.testing.assert_array_equal((weight_BNS > 0)[:2], (seen_BNS & real_BNS)[:2])
  np.testing.assert_allclose(weight_BNS.sum(-1), 1, rtol=1e-5)
  np.testing.assert_allclose(
    where_BN, (weight_BNS * np.arange(size)).sum(-1), rtol=1e-5
  )


def test_architecture_ignores_padding_and_rejects_modifiers(follow):
  plan = follow("convolution")
  params = parameters(plan, BATCH)
  single = batch_of([sentence(4, 6, 1)])
  np.testing.assert_allclose(
    logits(plan, params, BATCH)[0, :6],
    logits(plan, params, single)[0],
    atol=1e-5,
  )
  config = base.get_config()
  config.model.family = "convolution"
  # It inherits the sizes of the dataset.
  assert config.model.convolution.dropout == config.model.transformer.dropout
  config.parts.encoder.parent_scaled = syntax.MODIFIERS.section("parent_scaled")
  with pytest.raises(InputError, match="parent_scaled is a modifier, which"):
    resolve(read_config(config), JOINT)


def test_loss_is_zero_if_each_source_subword_is_covered_once(follow):
  loss = dict(follow("coverage").recipe.losses)["coverage"]
  batch = {name: np.asarray(array[:2]) for name, array in BATCH.items()}
  real_BT = batch["target_id_BT"] != PAD
  real_BS = batch["source_id_BS"] != PAD
  # Each target subword gives each real source subword 1 / T, so 1 in all.
  shape = (2, 1, real_BT.shape[1], real_BS.shape[1])
  once_BHTS = np.broadcast_to(1 / real_BT.sum(1)[:, None, None, None], shape)
  for share, expected in ((1.0, 0.0), (0.5, 0.25)):
    address = Address("cross", 0, "", "weight_BHQM")
    maps = Maps((Published(address, share * once_BHTS),))
    total, count = loss(None, maps, batch)
    assert count == real_BS.sum()
    np.testing.assert_allclose(total / count, expected, atol=1e-6)


def test_schedule_ends_at_zero(follow):
  plan = follow("cosine", **{"optimiser.cosine.updates": 100})
  rate = plan.config.optimiser.schedule.make(2.0, 16)
  rates = [rate(0), rate(50), rate(200)]
  np.testing.assert_allclose(rates, [2, 1, 0], atol=1e-6)


def test_metric_counts_words(follow):
  follow("overlap")
  # {a b} and {b c} share one word of three; the nearest reference is taken.
  references = References([["a b", "x"], ["q", "y"]])
  measured = METRICS["overlap"]().scorer(references).measure(["b c", "y"])
  np.testing.assert_allclose(measured.value, 100 * (1 / 3 + 1) / 2)


def test_auxiliary_task_has_the_source_as_its_target(follow):
  plan = follow("repeat")
  task = plan.config.data.second.task
  assert plan.tag is not None
  example = {
    "source_id": np.array([7, 8, 3]),
    "source_word": np.array([0, 1, -1]),
    "source_head": np.array([1, 1]),
    "target_id": np.array([9, 3]),
  }
  made = task.make(example, np.zeros(0), None, {"source": 20, "target": 20})
  np.testing.assert_array_equal(made["target_id"], [7, 8, 3])
  tag, *words, again, _ = made["source_id"]
  assert words == [7, 8] and tag == again >= 20 and tag != plan.tag


def test_annotation_reads_a_column(follow):
  follow("number")
  rows = [
    "1\tdogs\tdog\tNOUN\t_\tCase=Nom|Number=Plur\t2\tnsubj\t_\t_",
    "2\tbark\t_\tVERB\t_\t_\t0\troot\t_\t_",
  ]
  (block,) = conllu.blocks_of_text("\n".join(rows) + "\n\n", "a test")
  parse = conllu.attach([block], "dogs bark")
  np.testing.assert_array_equal(ANNOTATIONS["number"]().array(parse), [2, 0])


def test_decoding_strategy_has_a_minimum_length(follow):
  decode = follow("longer", **{"decode.longer.minimum": 4}).config.decode
  id_BS = np.array([[7, 5, 3], [9, 3, 0]])
  params, batch = random_params(12, 9.0), {"source_id_BS": id_BS}
  result = run_search(
    Tables(12), params, batch, request_of([9, 3]), decode=decode, length=9
  )
  # EOS is likely at once; the second has room for two before it.
  sizes = np.count_nonzero(np.asarray(result.token_BNT), axis=-1)
  assert sizes.min(1).tolist() == [5, 3]
