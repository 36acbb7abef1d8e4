"""Properties of all systems and all modifiers of the table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  JOINT,
  apply,
  batch_of,
  logits,
  modifiers_of,
  parameters,
  placement,
  plan_of,
  sentence,
  shape_of,
  without_modifiers,
)

from jaxsyn.arrays.shapes import split
from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.data import schema
from jaxsyn.data.schema import FEATURES
from jaxsyn.plan import resolve
from jaxsyn.syntax import MODIFIERS

# One sentence has far more words than subwords, one has one word, one has none but
# EOS, and one is longer than all others together.
PAIRS = [
  sentence(5, 6, 1),
  sentence(3, 4, 226, bare=17),  # its three words are neighbors in the tree
  sentence(7, 8, 3),
  sentence(1, 3, 4),
  sentence(0, 2, 5),
  sentence(60, 5, 6),
]
# Each program is compiled for two shapes: all pairs, and a short one alone, which
# has more room for words than for subwords.
BATCH = batch_of(PAIRS, extra=2)
SHORT = PAIRS[:5]
ALONE = dataclasses.replace(shape_of(SHORT), rows=1)

# Several modifiers, also of the same heads.
COMBINED = [
  "pascal+relative",
  "pascal_ignoring+deps_san_additive",
  "deps_san+localness_query",
]


def training_of(plan):
  return plan.config.losses, plan.config.data.second, plan.config.optimiser


def distinct_systems() -> list[str]:
  """One system for each model and training; controls differ in trees only."""
  names = {}
  for name in SYSTEMS:
    plan = plan_of(name)
    key = repr((plan.spec, plan.features, training_of(plan)))
    names.setdefault(key, name)
  return sorted(names.values())


@pytest.fixture(scope="module", params=[*distinct_systems(), *COMBINED])
def system(request):
  plan = plan_of(request.param)
  return plan, parameters(plan, BATCH)


def real(pair, out, row):
  """The logits of a sentence without padding."""
  return np.asarray(out[row, : len(pair["target_id_BT"])])


def test_each_modifier_is_in_a_system():
  used = {name for s in SYSTEMS for name in modifiers_of(plan_of(s))}
  assert used == set(MODIFIERS)


def test_declares_all_features_that_it_reads(system):
  plan, params = system
  required = schema.features_for(JOINT, plan.features)
  batch = {
    name: array
    for name, array in BATCH.items()
    if split(name)[0] in required or split(name)[0] not in FEATURES
  }
  jax.eval_shape(  # a feature that is missing in `required_features` is None
    lambda: apply(params, batch, jax.random.key(0), plan.recipe.model, False)
  )


def test_a_sentence_alone_equals_the_sentence_in_a_batch(system):
  plan, params = system
  assert ALONE.source < ALONE.source_words  # and the other way round in BATCH
  assert BATCH["source_id_BS"].shape[1] > BATCH["source_head_BW"].shape[1]
  together = logits(plan, params, BATCH)
  for row, pair in enumerate(SHORT):
    alone = logits(plan, params, batch_of([pair], shape=ALONE))
    np.testing.assert_allclose(
      real(pair, together, row), real(pair, alone, 0), atol=2e-5
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
    np.testing.assert_array_equal(
      real(pair, clean, row), real(pair, other, row)
    )


def test_a_sentence_depends_on_its_own_tree_only(system):
  plan, params = system
  order = jnp.array([2, 0, 5, 1, 4, 3])
  moved = {name: array[order] for name, array in BATCH.items()}
  was = logits(plan, params, BATCH)
  np.testing.assert_allclose(logits(plan, params, moved), was[order], atol=2e-5)
  for feature in plan.translation_features:
    name = f"{feature}_B{FEATURES[feature].axes}"
    if name == "source_head_BW":  # another tree: the last word is the root
      new = jnp.full_like(BATCH[name][0], BATCH["source_word_BS"][0].max())
    else:
      new = BATCH[name][0] + 1
    out = logits(plan, params, BATCH | {name: BATCH[name].at[0].set(new)})
    assert not np.allclose(real(PAIRS[0], out, 0), real(PAIRS[0], was, 0))
    np.testing.assert_array_equal(out[1:], was[1:])


def test_the_decoder_is_causal(system):
  plan, params = system
  was, name = logits(plan, params, BATCH), "target_id_BT"
  for t in (1, 3):
    later = (BATCH[name][:, t:] + 5) % 16 + 4
    changed = BATCH | {name: BATCH[name].at[:, t:].set(later)}
    out = logits(plan, params, changed)
    np.testing.assert_array_equal(out[:, : t + 1], was[:, : t + 1])
    assert not np.array_equal(out[:, t + 1 :], was[:, t + 1 :])


def test_training_noise_is_off_in_evaluation(system):
  outs = [logits(*system, BATCH, key) for key in (0, 1)]
  np.testing.assert_array_equal(*outs)


def test_a_sentence_without_a_tree_equals_the_baseline(system):
  plan, params = system
  if not plan.translation_features:
    pytest.skip("it reads no tree")
  plain = without_modifiers(plan, without_trees=True)
  batch = BATCH | {"source_parsed_B": jnp.array([1, 0, 1, 1, 1, 1], jnp.uint8)}
  out, was = (logits(p, params, batch) for p in (plan, plain))
  np.testing.assert_allclose(out[1], was[1], atol=1e-5)
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
  config = dataclasses.replace(plain.config, parts=parts)
  disabled = resolve(config, JOINT)
  # It has the same parameters, and needs no parser.
  assert (disabled.spec, disabled.features) == (plain.spec, plain.features)
  params = parameters(plain, BATCH)
  batch = {n: a for n, a in BATCH.items() if split(n)[0].endswith("_id")}
  np.testing.assert_array_equal(
    logits(disabled, params, batch), logits(plain, params, batch)
  )


def test_modifiers_of_a_system_are_active(system):
  plan, _ = system
  assert plan.spec.modifiers == plan.config.parts


def test_systems_differ_from_the_baseline(system):
  """In the model, in training, or in both."""
  plan, params = system
  plain = without_modifiers(plan)
  outs = [logits(one, params, BATCH) for one in (plan, plain)]
  same_model = np.allclose(*outs, atol=1e-4)
  name, baseline = plan.config.system, plain.config.system
  assert same_model == (plan.spec == plain.spec), f"{name} and {baseline}"
  same_training = training_of(plan) == training_of(plan_of(baseline))
  assert (same_model and same_training) == (name == baseline), (
    f"{name} equals {baseline}, the first system of its architecture"
  )
