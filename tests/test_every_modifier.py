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
  logits,
  modifiers_of,
  parameters,
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

# Several modifiers, also of the same heads.
COMBINED = [
  "pascal+relative",
  "pascal_ignoring+deps_san_additive",
  "deps_san+localness_query",
]


def distinct_systems() -> list[str]:
  """One system for each model; controls differ in trees, others in training."""
  names = {}
  for name in SYSTEMS:
    plan = plan_of(name)
    names.setdefault((plan.spec, frozenset(plan.translation_features)), name)
  return sorted(names.values())


@pytest.fixture(scope="module", params=[*distinct_systems(), *COMBINED])
def system(request):
  plan = plan_of(request.param)
  return plan, parameters(plan, BATCH)


def test_each_modifier_is_in_a_system():
  used = {name for s in SYSTEMS for name in modifiers_of(plan_of(s))}
  assert used == set(MODIFIERS)


def test_a_sentence_alone_equals_the_sentence_in_a_batch(system):
  """Alone it has only the features that the system declares."""
  plan, params = system
  assert ALONE.source < ALONE.source_words  # and the other way round in BATCH
  assert BATCH["source_id_BS"].shape[1] > BATCH["source_head_BW"].shape[1]
  required = schema.features_for(JOINT, plan.features)
  together = logits(plan, params, BATCH)
  for row, pair in enumerate(SHORT):
    alone = {
      name: array
      for name, array in batch_of([pair], shape=ALONE).items()
      if split(name)[0] in required or split(name)[0] not in FEATURES
    }
    assert_allclose(
      real(pair, together, row),
      real(pair, logits(plan, params, alone), 0),
      atol=2e-5,
    )
  assert np.isfinite(together).all()


def test_padding_does_not_affect_real_words(system):
  plan, params = system
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


def test_a_sentence_depends_on_its_own_tree_only(system):
  plan, params = system
  order = jnp.array([2, 0, 5, 1, 4, 3])
  moved = {name: array[order] for name, array in BATCH.items()}
  was = logits(plan, params, BATCH)
  assert_allclose(logits(plan, params, moved), was[order], atol=2e-5)
  for feature in plan.translation_features:
    name = f"{feature}_B{FEATURES[feature].axes}"
    if name == "source_head_BW":  # another tree: the last word is the root
      new = jnp.full_like(BATCH[name][0], BATCH["source_word_BS"][0].max())
    else:
      new = BATCH[name][0] + 1
    out = logits(plan, params, BATCH | {name: BATCH[name].at[0].set(new)})
    assert not np.allclose(real(PAIRS[0], out, 0), real(PAIRS[0], was, 0))
    assert_array_equal(out[1:], was[1:])


def test_the_decoder_is_causal(system):
  plan, params = system
  was, name = logits(plan, params, BATCH), "target_id_BT"
  for t in (1, 3):
    later = (BATCH[name][:, t:] + 5) % 16 + 4
    changed = BATCH | {name: BATCH[name].at[:, t:].set(later)}
    out = logits(plan, params, changed)
    assert_array_equal(out[:, : t + 1], was[:, : t + 1])
    assert not np.array_equal(out[:, t + 1 :], was[:, t + 1 :])


def test_training_noise_is_off_in_evaluation(system):
  outs = [logits(*system, BATCH, key) for key in (0, 1)]
  assert_array_equal(*outs)


def test_a_sentence_without_a_tree_equals_the_baseline(system):
  plan, params = system
  if not plan.translation_features:
    pytest.skip("it reads no tree")
  plain = without_modifiers(plan, without_trees=True)
  batch = BATCH | {"source_parsed_B": jnp.array([1, 0, 1, 1, 1, 1], jnp.uint8)}
  out, was = (logits(p, params, batch) for p in (plan, plain))
  assert_allclose(out[1], was[1], atol=1e-5)
  # The sentence of sixty words, because five may all be near in the tree.
  assert not np.allclose(out[5], was[5], atol=1e-4)


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


def test_systems_differ_from_the_baseline(system):
  plan, params = system
  assert plan.spec.modifiers == plan.config.parts  # all are active
  plain = without_modifiers(plan)
  outs = [logits(one, params, BATCH) for one in (plan, plain)]
  assert np.allclose(*outs, atol=1e-4) == (plan.spec == plain.spec)


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_with_the_model_of_the_baseline_differ_in_training(name):
  plan = plan_of(name)
  baseline = without_modifiers(plan).config.system
  plain = plan_of(baseline)

  def parts_of(plan):
    config = plan.config
    return plan.spec, config.losses, config.data, config.optimiser

  assert (parts_of(plan) == parts_of(plain)) == (name == baseline)
