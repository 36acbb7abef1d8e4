"""Properties of every system and every part, over the whole tables."""

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
  parameters,
  parts_of,
  places,
  plan_of,
  sentence,
  shape_of,
  without_parts,
)

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.data import schema
from jaxsyn.data.schema import FEATURES
from jaxsyn.models.contract import sentence_features
from jaxsyn.models.spec import Placement
from jaxsyn.plan import resolve
from jaxsyn.shapes import split
from jaxsyn.syntax import MODIFIERS, AttentionSite, Modifier

# One sentence has far more words than subwords, one has a single word, one has
# none but EOS, and one is longer than all others together.
PAIRS = [
  sentence(5, 6, 1),
  sentence(3, 4, 226, bare=17),  # its three words are neighbours in the tree
  sentence(7, 8, 3),
  sentence(1, 3, 4),
  sentence(0, 2, 5),
  sentence(60, 5, 6),
]
# Every program is compiled for two shapes: all pairs, and a short one alone,
# which has more room for words than for subwords.
BATCH = batch_of(PAIRS, extra=2)
SHORT = PAIRS[:5]
ALONE = dataclasses.replace(shape_of(SHORT), rows=1)


# Parts work together, on the same heads too.
MIXED = [
  "pascal+relative",
  "pascal_ignoring+deps_san_additive",
  "deps_san+localness_query",
]


def different() -> list[str]:
  """Systems of different models and training: no controls, which differ in trees."""
  names = {}
  for name in SYSTEMS:
    plan = plan_of(name)
    config = plan.config
    trained = (config.losses, config.data.second, config.optimiser)
    names.setdefault(repr((plan.spec, plan.features, trained)), name)
  return sorted(names.values())


@pytest.fixture(scope="module", params=[*different(), *MIXED])
def system(request):
  plan = plan_of(request.param)
  return plan, parameters(plan, BATCH)


def real(pair, out, row):
  """The logits of a sentence's own target positions."""
  return np.asarray(out[row, : len(pair["target_id_BT"])])


def test_every_part_is_in_a_system():
  used = {name for s in SYSTEMS for name in parts_of(plan_of(s))}
  assert used == set(MODIFIERS)


def test_declares_all_features_that_it_reads(system):
  plan, params = system
  required = schema.features_for(JOINT, plan.features)
  expected = {
    name: array
    for name, array in BATCH.items()
    if split(name)[0] in required or split(name)[0] not in FEATURES
  }
  jax.eval_shape(  # a part that is to name it in its `required_features` finds None
    lambda: apply(params, expected, jax.random.key(0), plan.recipe.model, False)
  )


def test_a_sentence_alone_equals_the_sentence_in_a_batch(system):
  plan, params = system
  assert ALONE.source < ALONE.source_words  # and the other way round in BATCH
  assert BATCH["source_id_BS"].shape[1] > BATCH["source_head_BW"].shape[1]
  combined = logits(plan, params, BATCH)
  for row, pair in enumerate(SHORT):
    single = logits(plan, params, batch_of([pair], shape=ALONE))
    np.testing.assert_allclose(
      real(pair, combined, row), real(pair, single, 0), atol=2e-5
    )
  assert np.isfinite(combined).all()


def test_padding_does_not_affect_real_words(system):
  plan, params = system
  batch = BATCH
  pad_BS = batch["source_id_BS"] == 0
  dirty = dict(batch)
  dirty["source_parent_mid_BS"] = jnp.where(
    pad_BS, 1.5, batch["source_parent_mid_BS"]
  )
  dirty["source_word_BS"] = jnp.where(pad_BS, 0, batch["source_word_BS"])
  either = pad_BS[:, :, None] | pad_BS[:, None, :]
  dirty["source_weighting_BSS"] = jnp.where(
    either, 9.0, batch["source_weighting_BSS"]
  )
  clean, other = logits(plan, params, batch), logits(plan, params, dirty)
  for row, pair in enumerate(PAIRS):
    np.testing.assert_array_equal(
      real(pair, clean, row), real(pair, other, row)
    )


def test_a_sentence_depends_on_its_own_tree_only(system):
  plan, params = system
  batch = BATCH
  order = jnp.array([2, 0, 5, 1, 4, 3])
  moved = {name: array[order] for name, array in batch.items()}
  np.testing.assert_allclose(
    logits(plan, params, moved), logits(plan, params, batch)[order], atol=2e-5
  )
  for name in plan.translation_features:
    edited = dict(batch)
    name = f"{name}_B{FEATURES[name].axes}"
    if name == "source_head_BW":  # another tree: each word depends on the last
      new = jnp.full_like(batch[name][0], batch["source_word_BS"][0].max())
    else:
      new = batch[name][0] + 1
    edited[name] = batch[name].at[0].set(new)
    out, was = logits(plan, params, edited), logits(plan, params, batch)
    assert not np.allclose(real(PAIRS[0], out, 0), real(PAIRS[0], was, 0))
    np.testing.assert_array_equal(out[1:], was[1:])


def test_the_decoder_is_causal(system):
  plan, params = system
  batch = BATCH
  for t in (1, 3):
    later = dict(batch)
    edited = (batch["target_id_BT"][:, t:] + 5) % 16 + 4
    later["target_id_BT"] = batch["target_id_BT"].at[:, t:].set(edited)
    out, was = logits(plan, params, later), logits(plan, params, batch)
    np.testing.assert_array_equal(out[:, : t + 1], was[:, : t + 1])
    assert not np.array_equal(out[:, t + 1 :], was[:, t + 1 :])


def test_training_noise_is_off_in_evaluation(system):
  plan, params = system
  batch = BATCH
  outs = [logits(plan, params, batch, key) for key in (0, 1)]
  np.testing.assert_array_equal(*outs)
  outs = [logits(plan, params, batch, key, train=True) for key in (0, 1)]
  noisy = {
    name
    for name, spec in parts_of(plan).items()
    if dataclasses.replace(spec, **spec.noise_free_options) != spec
  }
  assert np.array_equal(*outs) == (not noisy), (
    "a spec says it in `noise_free_options`"
  )


def test_a_sentence_without_a_tree_equals_the_baseline(system):
  plan, params = system
  if not plan.translation_features:
    pytest.skip("it reads no tree")
  plain = without_parts(plan, treeless=True)
  batch = BATCH | {"source_parsed_B": jnp.array([1, 0, 1, 1, 1, 1], jnp.uint8)}
  out, was = (logits(p, params, batch) for p in (plan, plain))
  np.testing.assert_allclose(out[1], was[1], atol=1e-5)
  # Sixty words: in five, all may be near in the tree.
  assert not np.allclose(out[5], was[5], atol=1e-4)


@pytest.mark.parametrize(
  "name, place",
  [(n, place) for n, kind in MODIFIERS.items() for place in kind.stacks],
)
def test_disabled_modifiers_equal_the_baseline_bit_for_bit(name, place):
  plain = plan_of("transformer")
  params = parameters(plain, BATCH)
  assert MODIFIERS[name].disabled_options, (
    f"{name}: say in `off` what switches it off"
  )
  parts = Placement(
    **{place: ((name, MODIFIERS[name](**MODIFIERS[name].disabled_options)),)}
  )
  off = resolve(dataclasses.replace(plain.config, parts=parts), JOINT)
  # The same parameters, and it needs no parser.
  assert (off.spec, off.features) == (plain.spec, plain.features)
  batch = {n: a for n, a in BATCH.items() if split(n)[0].endswith("_id")}
  np.testing.assert_array_equal(
    logits(off, params, batch), logits(plain, params, batch)
  )


def test_modifiers_of_a_system_are_active(system):
  plan, _ = system
  assert plan.spec.modifiers == plan.config.parts


@pytest.mark.parametrize(
  "name, nowhere",
  [
    ("dasa", {"heads": ()}),
    ("dasa", {"layers": ()}),
    ("graph_block", {"at": "beside", "layers": ()}),
    ("graph_block", {"at": "beside", "depth": 0}),
    ("neighbour_heads", {"layers": (), "gate": "input"}),
    ("tree_bias", {"heads": ()}),
    ("parent_scaled", {"layers": ()}),
  ],
)
def test_without_layers_or_heads_no_tree_is_read(name, nowhere):
  plain = plan_of("transformer")
  config = dataclasses.replace(
    plain.config, parts=places(encoder={name: nowhere})
  )
  plan = resolve(config, JOINT)
  assert (plan.spec, plan.features) == (plain.spec, plain.features)
  batch = {n: a for n, a in BATCH.items() if split(n)[0].endswith("_id")}
  params = parameters(plain, BATCH)
  np.testing.assert_array_equal(
    logits(plan, params, batch), logits(plain, params, batch)
  )


def test_systems_differ_from_the_baseline(system):
  """Its model may be that of a system that learns more, or otherwise, too."""
  plan, params = system
  plain = without_parts(plan)
  batch = BATCH
  same = np.allclose(
    logits(plan, params, batch), logits(plain, params, batch), atol=1e-4
  )
  name, baseline = plan.config.system, plan_of(plain.config.system)
  assert same == (plan.spec == plain.spec), f"{name} and {plain.config.system}"
  learns, plainly = (
    (p.config.losses, p.config.data.second, p.config.optimiser)
    for p in (plan, baseline)
  )
  alike = same and learns == plainly
  assert alike == (name == plain.config.system), (
    f"{name} does what {plain.config.system} does, the first of its family"
  )


def test_default_stages_are_the_identity():
  for name, kind in MODIFIERS.items():
    where = AttentionSite(kind.stacks[0], 0, heads=2, width=8, dtype="float32")
    part = kind().make(where)
    view = sentence_features(batch_of(PAIRS), "source")
    x = jnp.ones((3, view.real_BS.shape[1], 8))
    if type(part).embed is Modifier.embed:
      same, _ = part.init_with_output(  # parameters that `setup` makes
        jax.random.key(0), x, view, method="embed"
      )
      np.testing.assert_array_equal(same, x, err_msg=name)
