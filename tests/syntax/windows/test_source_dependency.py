"""The window with its own annotations: inputs, weights, and the baseline."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from models_under_test import (
  JOINT,
  batch_of,
  logits,
  parameters,
  plan_of,
  sentence,
)

from jaxsyn.models.contract import sentence_features
from jaxsyn.plan import resolve
from jaxsyn.syntax.source_dependency import Surroundings
from jaxsyn.syntax.windows.source_dependency import SourceDependencyWindow

BATCH = batch_of([sentence(5, 6, 1), sentence(1, 4, 2), sentence(6, 5, 3)])
FEATURES = sentence_features(BATCH, "source")
BASELINE, DOUBLE = plan_of("gru_global"), plan_of("gru_double_sdr")
PARAMS = parameters(DOUBLE, BATCH)


@functools.partial(jax.jit, static_argnames="model")
def encode(model, batch):
  features = sentence_features(batch, "source")
  inputs = batch["source_id_BS"], features
  return model.apply({"params": PARAMS}, *inputs, method="encode")


def annotations(plan, batch=BATCH):
  return encode(plan.recipe.model, batch).annotations


def test_annotations_encode_the_vectors():
  values = PARAMS["decoder_0"]["cross"]["source_dependency"]["surroundings"]
  model = DOUBLE.recipe.model.bind({"params": PARAMS})
  x_BSD = model.source_table(BATCH["source_id_BS"])
  v_BSP = Surroundings(6).apply({"params": values}, x_BSD, FEATURES)
  first, second = annotations(DOUBLE)
  expected = model.encoder[1](v_BSP, FEATURES)
  np.testing.assert_allclose(second, expected, atol=1e-5)
  np.testing.assert_array_equal(first, annotations(BASELINE)[0])


def test_reads_only_the_relatives_of_a_word():
  # The second sentence has one word, whose unit is empty.
  id_BS = BATCH["source_id_BS"]
  is_first_BS = jnp.arange(id_BS.shape[1]) == 0
  other = dict(BATCH, source_id_BS=jnp.where(is_first_BS, 23 - id_BS, id_BS))
  was, out = annotations(DOUBLE), annotations(DOUBLE, other)
  assert not np.allclose(was[0][1], out[0][1], atol=1e-3)
  np.testing.assert_array_equal(was[1][1], out[1][1])
  assert not np.allclose(was[1][0], out[1][0], atol=1e-3)


def test_falls_back_to_global_attention_without_a_tree():
  windows = (("source_dependency", SourceDependencyWindow(size=6)),)
  family = dataclasses.replace(DOUBLE.spec.architecture, windows=windows)
  model = dataclasses.replace(DOUBLE.config.model, family=family)
  single = resolve(dataclasses.replace(DOUBLE.config, model=model), JOINT)
  params = parameters(single, BATCH)
  batch = dict(BATCH, source_parsed_B=jnp.array([1, 0, 0], jnp.uint8))
  out = logits(single, params, batch)
  was = logits(BASELINE, params, batch)
  np.testing.assert_allclose(out[1:], was[1:], atol=1e-5)
  assert not np.allclose(out[0], was[0], atol=1e-3)


def test_weights_are_a_softmax_of_its_own_scores():
  model = DOUBLE.recipe.model.bind({"params": PARAMS})
  cross, encoded = model.decoder.cross, annotations(DOUBLE)
  shared = cross.project_memory(encoded, FEATURES)
  hidden = DOUBLE.spec.architecture.hidden
  query_BNG = np.random.default_rng(0).normal(size=(3, 2, hidden))
  query_BNG = jnp.asarray(query_BNG, jnp.float32)
  past = cross.start(FEATURES, 2)
  _, weights, _ = cross(query_BNG, past, shared, FEATURES)
  real_B1S = FEATURES.real_BS[:, None]
  for align, annotation_BSE, weight in zip(cross.alignment, encoded, weights):
    score_BNS = align(query_BNG, align.project_memory(annotation_BSE))
    expected = jax.nn.softmax(jnp.where(real_B1S, score_BNS, -jnp.inf))
    np.testing.assert_allclose(weight, expected, atol=1e-6)
  assert not np.allclose(*weights, atol=1e-2)
