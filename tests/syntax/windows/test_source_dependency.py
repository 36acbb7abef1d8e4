"""The context of its own annotations: what it reads, and what it leaves."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  JOINT,
  batch_of,
  logits,
  parameters,
  plan_of,
  sentence,
)

from jaxsyn.errors import InputError
from jaxsyn.models.contract import sentence_features
from jaxsyn.options import ConfigPath, from_config
from jaxsyn.plan import resolve
from jaxsyn.syntax.source_dependency import Surroundings
from jaxsyn.syntax.windows.source_dependency import SourceDependencyWindow

BATCH = batch_of([sentence(5, 6, 1), sentence(1, 4, 2), sentence(6, 5, 3)])
BASELINE = plan_of("gru_global")
DOUBLE = plan_of("gru_double_sdr")
HIDDEN = DOUBLE.spec.architecture.hidden
PARAMS = parameters(DOUBLE, BATCH)


@functools.partial(jax.jit, static_argnames="model")
def encode(model, params, batch):
  view = sentence_features(batch, "source")
  return model.apply(
    {"params": params},
    batch["source_id_BS"],
    view,
    method="encode",
  )


def encoded(plan, batch):
  return encode(plan.recipe.model, PARAMS, batch)


def test_its_annotations_are_made_from_the_vectors():
  """As many dimensions, and the values, of the module the part has too."""
  view = sentence_features(BATCH, "source")
  values = PARAMS["decoder_0"]["cross"]["source_dependency"]["surroundings"]

  @jax.jit
  def expected():
    model = DOUBLE.recipe.model.bind({"params": PARAMS})
    x_BSD = model.source_table(BATCH["source_id_BS"])
    v_BSP = Surroundings(6).apply({"params": values}, x_BSD, view)
    return v_BSP, model.encoder[1](v_BSP, view)

  v_BSP, annotation_BSE = expected()
  assert v_BSP.shape[-1] == 6  # 3/8 of 16
  np.testing.assert_allclose(
    encoded(DOUBLE, BATCH).annotations[1], annotation_BSE, atol=1e-5
  )


def test_the_first_annotations_are_those_of_the_baseline():
  first, _ = encoded(DOUBLE, BATCH).annotations
  (plain,) = encoded(BASELINE, BATCH).annotations
  np.testing.assert_array_equal(first, plain)


def test_reads_only_the_relatives_of_a_word():
  # The second sentence has one word, and so nothing in its unit.
  first_BS = jnp.arange(BATCH["source_id_BS"].shape[1]) == 0
  id_BS = BATCH["source_id_BS"]
  other = dict(BATCH, source_id_BS=jnp.where(first_BS, 23 - id_BS, id_BS))
  assert other["source_id_BS"][1, 0] != id_BS[1, 0]
  was, out = (encoded(DOUBLE, b).annotations for b in (BATCH, other))
  assert not np.allclose(was[0][1], out[0][1], atol=1e-3)
  np.testing.assert_array_equal(was[1][1], out[1][1])
  assert not np.allclose(was[1][0], out[1][0], atol=1e-3)


def test_unread_annotations_equal_the_baseline_bit_for_bit():
  plain = {
    jax.tree_util.keystr(path)
    for path, _ in jax.tree_util.tree_leaves_with_path(
      parameters(BASELINE, BATCH)
    )
  }

  def unread(path, x):
    name = jax.tree_util.keystr(path)
    return 0 * x if "read_context" in name and name not in plain else x

  params = jax.tree_util.tree_map_with_path(unread, PARAMS)
  was = logits(BASELINE, PARAMS, BATCH)
  np.testing.assert_array_equal(logits(DOUBLE, params, BATCH), was)
  assert not np.allclose(logits(DOUBLE, PARAMS, BATCH), was, atol=1e-3)


def test_falls_back_to_global_attention_without_a_tree():
  expected = (("source_dependency", SourceDependencyWindow(size=6)),)
  family = dataclasses.replace(DOUBLE.spec.architecture, windows=expected)
  model = dataclasses.replace(DOUBLE.config.model, family=family)
  config = dataclasses.replace(DOUBLE.config, model=model)
  single = resolve(config, JOINT)
  params = parameters(single, BATCH)
  shared = parameters(BASELINE, BATCH)["decoder_0"]

  def names(tree):
    return {name for name in tree if name.startswith("read_context")}

  # The read-out of the only context, under the name that the baseline has.
  (expected,), (plain,) = names(params["decoder_0"]), names(shared)
  decoder = params["decoder_0"] | {plain: params["decoder_0"][expected]}
  batch = dict(BATCH, source_parsed_B=jnp.array([1, 0, 0], jnp.uint8))
  out = logits(single, params, batch)
  was = logits(BASELINE, params | {"decoder_0": decoder}, batch)
  np.testing.assert_allclose(out[1:], was[1:], atol=1e-5)
  assert not np.allclose(out[0], was[0], atol=1e-3)


def test_its_weights_are_a_softmax_of_its_own_scores():
  context = encoded(DOUBLE, BATCH)
  model = DOUBLE.recipe.model.bind({"params": PARAMS})
  cross = model.decoder.cross
  view = sentence_features(BATCH, "source")
  facts = cross.project_memory(context.annotations, view)
  query_BNG = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, HIDDEN)))
  query_BNG = query_BNG.astype(jnp.float32)
  _, weights, _ = cross(query_BNG, cross.start(view, 2), facts, view)
  for align, annotation_BSE, weight_BNS in zip(
    cross.alignment, context.annotations, weights
  ):
    score_BNS = align(query_BNG, align.project_memory(annotation_BSE))
    score_BNS = jnp.where(view.real_BS[:, None], score_BNS, -jnp.inf)
    expected = jax.nn.softmax(score_BNS, axis=-1)
    np.testing.assert_allclose(weight_BNS, expected, atol=1e-6)
  assert not np.allclose(*weights, atol=1e-2)


THERE = ConfigPath("there")


@pytest.mark.parametrize(
  "options, message",
  [
    ({"size": 0}, r"there\.size must be from 1 to .*, got 0"),
  ],
)
def test_rejects_invalid_options(options, message):
  with pytest.raises(InputError, match=message):
    from_config(SourceDependencyWindow, options, THERE).check(THERE)
