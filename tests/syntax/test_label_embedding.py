"""S&H: which dimensions a label takes, and what keeps its token embedding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  batch_of,
  check_part,
  parameters,
  plan_of,
  sentence,
)

from jaxsyn.errors import InputError
from jaxsyn.models.contract import sentence_features
from jaxsyn.syntax import AttentionSite, SentenceFeatures
from jaxsyn.syntax.label_embedding import LabelEmbedding

WHERE = AttentionSite(
  "encoder", -1, heads=2, width=4, dtype="float32", relations=2
)

# Two words, the first of two subwords; then EOS and a pad. The second
# sentence has one word, whose relation the table does not know.
VIEW = SentenceFeatures(
  real_BS=jnp.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], bool),
  word_BS=jnp.array([[0, 0, 1, -1, -1], [0, -1, -1, -1, -1]]),
  relation_BW=jnp.array([[2, 1], [3, 0]]),
)
TOKEN = np.arange(40, dtype=np.float32).reshape(2, 5, 4)
TABLE = {"table": {"embedding": jnp.array([[-1.0, -2], [-3, -4], [-5, -6]])}}


def embedded(spec, view=VIEW, params=TABLE, x_BSD=TOKEN, site=WHERE):
  return spec.make(site).apply(
    {"params": params}, jnp.asarray(x_BSD), view, method="embed"
  )


def test_the_last_dimensions_are_those_of_the_label():
  out = embedded(LabelEmbedding(size=2))
  np.testing.assert_array_equal(out[..., :2], TOKEN[..., :2])
  # Labels 2, 2, 1, none, none; unknown, none ...
  none = [-1, -2]
  labels = [[-5, -6], [-5, -6], [-3, -4], none, none]
  np.testing.assert_array_equal(out[0, :, 2:], labels)
  np.testing.assert_array_equal(out[1, :, 2:], [none] * 5)


def test_a_label_is_scaled_on_request():
  plain = embedded(LabelEmbedding(size=2))
  out = embedded(LabelEmbedding(size=2, scale_label=True))
  np.testing.assert_array_equal(out[..., :2], plain[..., :2])
  np.testing.assert_allclose(out[..., 2:], 2.0 * plain[..., 2:])  # √4


def test_a_label_may_take_all_dimensions():
  table = {"table": {"embedding": jnp.arange(12.0).reshape(3, 4)}}
  out = embedded(LabelEmbedding(size=4), params=table)
  np.testing.assert_array_equal(out[0, 0], [8, 9, 10, 11])


def test_labels_start_as_tokens_do():
  site = dataclasses.replace(WHERE, width=400, relations=49)
  x_BSD = jnp.zeros((2, 5, 400))
  made = (
    LabelEmbedding(size=400)
    .make(site)
    .init(jax.random.key(0), x_BSD, VIEW, method="embed")
  )
  table = made["params"]["table"]["embedding"]
  assert table.shape == (50, 400)
  # 1 / √400; the deviation of 20,000 draws is known to half a percent.
  assert abs(np.std(table) / 0.05 - 1) < 0.03


def encoder_output(plan, params, batch):
  model = plan.recipe.model
  return model.apply(
    {"params": params},
    batch["source_id_BS"],
    sentence_features(batch, "source"),
    method="encode",
  ).memory_BSD


def test_the_encoder_never_sees_the_last_dimensions_of_a_token():
  plan = plan_of("label_embedding", tie_embeddings=False)
  batch = batch_of([sentence(4, 3, 1), sentence(3, 2, 2)])
  batch["source_parsed_B"] = jnp.array([1, 0], jnp.uint8)
  params = parameters(plan, batch)
  table = params["source_table"]["embedding"]
  was = encoder_output(plan, params, batch)

  def changed(dimensions):
    new = {"embedding": table.at[:, dimensions].add(1.0)}
    return encoder_output(plan, params | {"source_table": new}, batch)

  last = changed(slice(-10, None))
  np.testing.assert_array_equal(last[0], was[0])
  assert not np.allclose(last[1], was[1], atol=1e-3)  # it has no tree
  before = changed(slice(-11, -10))
  assert not np.allclose(before[0], was[0], atol=1e-3)


@pytest.mark.parametrize(
  "size, message", [(-1, " must be from 0 to .*, got -1"), (17, "=17 must be")]
)
def test_rejects_an_invalid_size(size, message):
  with pytest.raises(
    InputError, match=rf"encoder\.label_embedding\.size{message}"
  ):
    check_part("encoder", "label_embedding", {"size": size})
