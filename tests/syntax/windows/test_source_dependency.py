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
from numpy.testing import assert_allclose, assert_array_equal

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
  return model.apply({"params": PARAMS}, *inputs, method="encode").annotations


def test_annotations_encode_the_vectors_of_relatives():
  values = PARAMS["decoder_0"]["cross"]["source_dependency"]["surroundings"]
  model = DOUBLE.recipe.model.bind({"params": PARAMS})
  x_BSD = model.source_table(BATCH["source_id_BS"])
  v_BSP = Surroundings(6).apply({"params": values}, x_BSD, FEATURES)
  first, second = encode(DOUBLE.recipe.model, BATCH)
  expected = model.encoder[1](v_BSP, FEATURES)
  assert_allclose(second, expected, atol=1e-5)
  (plain,) = encode(BASELINE.recipe.model, BATCH)
  assert_array_equal(first, plain)
  # The second sentence has one word, whose unit is empty.
  id_BS = BATCH["source_id_BS"]
  is_first_BS = jnp.arange(id_BS.shape[1]) == 0
  other = dict(BATCH, source_id_BS=jnp.where(is_first_BS, 23 - id_BS, id_BS))
  new_first, new_second = encode(DOUBLE.recipe.model, other)
  assert not np.allclose(first[1], new_first[1], atol=1e-3)
  assert_array_equal(second[1], new_second[1])
  assert not np.allclose(second[0], new_second[0], atol=1e-3)


def test_falls_back_to_global_attention_without_a_tree():
  windows = (("source_dependency", SourceDependencyWindow(size=6)),)
  family = dataclasses.replace(DOUBLE.spec.architecture, windows=windows)
  model = dataclasses.replace(DOUBLE.config.model, family=family)
  single = resolve(dataclasses.replace(DOUBLE.config, model=model), JOINT)
  params = parameters(single, BATCH)
  batch = dict(BATCH, source_parsed_B=jnp.array([1, 0, 0], jnp.uint8))
  out = logits(single, params, batch)
  was = logits(BASELINE, params, batch)
  assert_allclose(out[1:], was[1:], atol=1e-5)
  assert not np.allclose(out[0], was[0], atol=1e-3)
