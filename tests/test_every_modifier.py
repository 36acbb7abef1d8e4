"""Properties of all systems and all modifiers of the table."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  BATCH,
  JOINT,
  PAIRS,
  batch_of,
  combined_systems,
  logits,
  modifiers_of,
  parameters,
  parts_of,
  placement,
  plan_of,
  real,
  shape_of,
  without_modifiers,
)
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.arrays.shapes import split
from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.data import schema
from jaxsyn.data.schema import FEATURES
from jaxsyn.plan import resolve
from jaxsyn.syntax import MODIFIERS

# A second shape, of one short sentence, with more room for words than for subwords.
SHORT = PAIRS[:5]
ALONE = dataclasses.replace(shape_of(SHORT), rows=1)


def one_for_each_part() -> list[str]:
  """One system for each modifier in each of its places, and for each window.

  A modifier whose options decide which features it reads has one for each.
  """
  names = {}
  for name in SYSTEMS:
    for stack, part, spec in parts_of(plan_of(name)):
      place = stack, part, getattr(spec, "at", "")
      names.setdefault((*place, spec.required_features), name)
  return sorted({*names.values()})


# The first window of "gru_syntax" reads trees.
MODELS = [*combined_systems(), "gru_syntax"]


@pytest.fixture(scope="module", params=MODELS, ids=MODELS)
def model(request):
  plan = plan_of(request.param)
  return plan, parameters(plan, BATCH)


def required(plan, batch):
  """The batch without the features that a plan does not declare."""
  names = schema.features_for(JOINT, plan.features)
  return {
    name: array
    for name, array in batch.items()
    if split(name)[0] in names or split(name)[0] not in FEATURES
  }


def test_each_modifier_is_in_a_system():
  used = {name for s in SYSTEMS for name in modifiers_of(plan_of(s))}
  assert used == set(MODIFIERS)


def test_a_sentence_alone_equals_the_sentence_in_a_batch(model):
  plan, params = model
  assert ALONE.source < ALONE.source_words  # and the other way round in BATCH
  assert BATCH["source_id_BS"].shape[1] > BATCH["source_head_BW"].shape[1]
  together = logits(plan, params, BATCH)
  for row, pair in enumerate(SHORT):
    alone = logits(plan, params, required(plan, batch_of([pair], shape=ALONE)))
    assert_allclose(real(pair, together, row), real(pair, alone, 0), atol=2e-5)
  assert np.isfinite(together).all()


def test_padding_does_not_affect_real_words(model):
  plan, params = model
  is_pad_BS = BATCH["source_id_BS"] == 0
  is_pad_BSS = is_pad_BS[:, :, None] | is_pad_BS[:, None, :]
  dirty = dict(BATCH)
  for name, is_pad, value in (
    ("source_parent_mid_BS", is_pad_BS, 1.5),
    ("source_word_BS", is_pad_BS, 0),
    ("source_weighting_BSS", is_pad_BSS, 9.0),
  ):
    dirty[name] = jnp.where(is_pad, value, BATCH[name])
  clean, other = logits(plan, params, BATCH), logits(plan, params, dirty)
  for row, pair in enumerate(PAIRS):
    assert_array_equal(real(pair, clean, row), real(pair, other, row))


def changed_features(plan, batch):
  """For each feature that a plan reads: the batch with another first row."""
  for feature in plan.translation_features:
    name = f"{feature}_B{FEATURES[feature].axes}"
    row = batch[name][0]
    if name == "source_head_BW":  # another tree: the last word is the root
      new = jnp.full_like(row, batch["source_word_BS"][0].max())
    elif name.endswith("_BW"):  # one other label: modifiers may compare labels
      new = jnp.full_like(row, row[0] + 1)
    else:
      new = row + 1
    yield batch | {name: batch[name].at[0].set(new)}


def test_a_sentence_depends_on_its_own_tree_only(model):
  plan, params = model
  order = jnp.array([2, 0, 5, 1, 4, 3])
  moved = {name: array[order] for name, array in BATCH.items()}
  was = logits(plan, params, BATCH)
  assert_allclose(logits(plan, params, moved), was[order], atol=2e-5)
  for changed in changed_features(plan, BATCH):
    assert_array_equal(logits(plan, params, changed)[1:], was[1:])


def test_the_decoder_is_causal(model):
  plan, params = model
  was, name = logits(plan, params, BATCH), "target_id_BT"
  for t in (1, 3):
    later = (BATCH[name][:, t:] + 5) % 16 + 4
    changed = BATCH | {name: BATCH[name].at[:, t:].set(later)}
    out = logits(plan, params, changed)
    assert_array_equal(out[:, : t + 1], was[:, : t + 1])
    assert not np.array_equal(out[:, t + 1 :], was[:, t + 1 :])


def test_training_noise_is_off_in_evaluation(model):
  outs = [logits(*model, BATCH, key) for key in (0, 1)]
  assert_array_equal(*outs)


def test_a_sentence_without_a_tree_equals_the_baseline(model):
  plan, params = model
  if not plan.translation_features:
    pytest.skip("it reads no tree")
  plain = without_modifiers(plan, without_trees=True)
  batch = BATCH | {"source_parsed_B": jnp.array([1, 0, 1, 1, 1, 1], jnp.uint8)}
  out, was = (logits(p, params, batch) for p in (plan, plain))
  assert_allclose(out[1], was[1], atol=1e-5)
  # The sentence of sixty words, because five may all be near in the tree.
  assert not np.allclose(out[5], was[5], atol=1e-4)


@pytest.mark.parametrize("system", one_for_each_part())
def test_systems_differ_from_the_baseline_and_read_what_they_declare(system):
  plan = plan_of(system)
  params, batch = parameters(plan, BATCH), required(plan, BATCH)
  out = logits(plan, params, batch)
  plain = without_modifiers(plan)
  is_same = np.allclose(out, logits(plain, params, BATCH), atol=1e-4)
  assert is_same == (plan.spec == plain.spec)
  for changed in changed_features(plan, batch):
    new = logits(plan, params, changed)
    assert not np.allclose(real(PAIRS[0], new, 0), real(PAIRS[0], out, 0))


DISABLED = [
  *(
    (name, stack, cls.disabled_options)
    for name, cls in MODIFIERS.items()
    for stack in cls.stacks
  ),
  ("dasa", "encoder", {"heads": ()}),
  ("dasa", "encoder", {"layers": ()}),
  ("graph_block", "encoder", {"at": "beside", "layers": ()}),
  ("graph_block", "encoder", {"at": "beside", "depth": 0}),
  ("neighbour_heads", "encoder", {"layers": (), "gate": "input"}),
]


@pytest.mark.parametrize("name, stack, options", DISABLED)
def test_disabled_modifiers_equal_the_baseline_bit_for_bit(
  name, stack, options
):
  assert options, f"set `disabled_options` of {name}"
  plain = plan_of("transformer")
  parts = placement(**{stack: {name: options}})
  disabled = resolve(dataclasses.replace(plain.config, parts=parts), JOINT)
  # It is the same model, and needs no parser.
  assert (disabled.spec, disabled.features) == (plain.spec, plain.features)
  assert disabled.recipe.model == plain.recipe.model


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_are_active_and_differ_in_model_or_training(name):
  plan = plan_of(name)
  assert plan.spec.modifiers == plan.config.parts  # all are active
  baseline = without_modifiers(plan).config.system

  def key(plan):
    config = plan.config
    return plan.spec, config.losses, config.data, config.optimiser

  assert (key(plan) == key(plan_of(baseline))) == (name == baseline)
