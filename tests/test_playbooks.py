"""CONTRIBUTING's playbooks, followed: each example works as its page says.

The file of a playbook is run as a module, its line put into the table, its
function among the systems; then a tiny model is trained for an update with it.
"""

import dataclasses
import functools
import re
import sys
import types

import documents
import jax
import numpy as np
import pytest
from models_under_test import JOINT, batch_of, logits, sentence

from configs import base, recurrent_systems, systems
from jaxsyn import syntax
from jaxsyn.config import read_config
from jaxsyn.errors import InputError
from jaxsyn.models.families import FAMILIES
from jaxsyn.plan import resolve
from jaxsyn.training.losses import LOSSES
from jaxsyn.training.optimiser import RULES
from jaxsyn.training.schedules import SCHEDULES
from jaxsyn.training.step import first_state, train_step

pytestmark = pytest.mark.usefixtures("quick_compile")

TABLES = {
  "PARTS": syntax.PARTS,
  "WINDOWS": syntax.WINDOWS,
  "FAMILIES": FAMILIES,
  "LOSSES": LOSSES,
  "RULES": RULES,
  "SCHEDULES": SCHEDULES,
}
FILES = {
  block.file: block.code
  for path in (documents.README, documents.CONTRIBUTING)
  for block in documents.blocks(path)
  if block.file.startswith("jaxsyn/")
}
TEXT = documents.CONTRIBUTING.read_text()
# Name, class and table of each playbook, as it says them.
LINES = {
  name: (cls, table)
  for name, cls, table in re.findall(
    r'`"(\w+)": (\w+)`\s(?:in|to)\s`(\w+)`', TEXT
  )
}
FUNCTIONS = {
  name: block.code
  for block in documents.blocks(documents.CONTRIBUTING)
  for name in re.findall(r"^def (\w+)\(config\):", block.code)
}
# How a config asks for what has no system of its own.
ASKED = {
  "certainty": lambda c: c.losses.update(
    certainty=LOSSES.section("certainty", weight=0.5)
  ),
  "lion": lambda c: c.optimiser.update(name="lion"),
  "cosine": lambda c: c.optimiser.update(schedule="cosine"),
}
BATCH = batch_of([sentence(4, 6, 1), sentence(6, 5, 2)], extra=2)


@pytest.fixture
def follow(monkeypatch):
  """A function (name) that follows a playbook and returns its plan."""

  def followed(name, **options):
    cls, table = LINES[name]
    (code,) = [c for c in FILES.values() if f"class {cls}(" in c]
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(code, vars(module))
    monkeypatch.setitem(TABLES[table]._specs, name, getattr(module, cls))
    config = base.get_config()
    config.model.update(width=16)
    config.model.transformer.update(
      encoder_layers=2, decoder_layers=1, feed_forward=16, heads=2, dropout=0.0
    )
    config.model.gru.hidden = 12
    for function, code in FUNCTIONS.items():
      if function.removeprefix("gru_") == name:
        names = {"PARTS": syntax.PARTS, "_gru": recurrent_systems._gru}
        exec(code, names)
        monkeypatch.setitem(systems.SYSTEMS, function, names[function])
        systems.apply(config, function)
    ASKED.get(name, lambda _: None)(config)
    config.update_from_flattened_dict(options)
    return resolve(read_config(config), JOINT)

  return followed


def trained(plan):
  """The state after an update, and its metrics."""
  start = jax.jit(functools.partial(first_state, plan.recipe, seed=0))
  step = jax.jit(functools.partial(train_step, recipe=plan.recipe))
  return step(start(BATCH), BATCH)


def test_every_table_has_its_playbook_and_every_file_is_in_one():
  assert {table for _, table in LINES.values()} == set(TABLES)
  assert len(FILES) == len(LINES)


@pytest.mark.parametrize("name", LINES)
def test_what_is_added_is_trained(name, follow):
  state, metrics = trained(follow(name))
  for total, count in metrics["terms"].values():
    assert np.isfinite(total) and count > 0
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.params))


def test_the_part_reads_the_tree_where_there_is_one(follow):
  plan = follow("tree_damped")
  assert plan.needs == {"source_tree_distance"}
  params = trained(plan)[0].params
  unparsed = BATCH | {"source_parsed_B": BATCH["source_parsed_B"].at[0].set(0)}
  # No edge counts; the same as no tree.
  flat = follow("tree_damped", **{"parts.encoder.tree_damped.scale": 1e6})
  damped, plain, none = (
    logits(p, params, b)
    for p, b in ((plan, BATCH), (plan, unparsed), (flat, BATCH))
  )
  assert not np.allclose(damped[0], plain[0], atol=1e-3)
  np.testing.assert_array_equal(damped[1], plain[1])
  np.testing.assert_allclose(plain[0], none[0], atol=1e-4)


def test_the_family_leaves_pads_out_and_refuses_what_it_cannot_have(follow):
  plan = follow("convolution")
  params = trained(plan)[0].params
  alone = batch_of([sentence(4, 6, 1)])
  np.testing.assert_allclose(
    logits(plan, params, BATCH)[0, :6],
    logits(plan, params, alone)[0],
    atol=1e-5,
  )
  config = base.get_config()
  config.model.family = "convolution"
  config.parts.encoder.parent_scaled = syntax.PARTS.section("parent_scaled")
  with pytest.raises(InputError, match="parent_scaled changes attention"):
    resolve(read_config(config), JOINT)


def test_the_objective_is_minus_the_entropy(follow):
  loss = follow("certainty").recipe.losses["certainty"]
  even = np.zeros((2, BATCH["target_id_BT"].shape[1], 20), np.float32)
  total, count = loss(even, {}, BATCH)
  np.testing.assert_allclose(total / count, -np.log(20), rtol=1e-5)


def test_the_schedule_ends_at_zero(follow):
  plan = follow("cosine", **{"optimiser.cosine.updates": 100})
  rate = plan.config.optimiser.schedule.make(2.0, 16)
  np.testing.assert_allclose(
    [rate(0), rate(50), rate(200)], [2, 1, 0], atol=1e-6
  )


def test_the_rule_is_another(follow):
  lion, adam = follow("lion"), follow("cosine")
  assert dataclasses.asdict(lion.config.optimiser.name)["beta2"] == 0.99
  states = [trained(plan)[0].params for plan in (lion, adam)]
  a, b = (jax.tree.leaves(state)[0] for state in states)
  assert not np.array_equal(a, b)
