"""Factors and S&H: labels by hand, vectors by loops, golden values."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import check_gradients, run
from models_under_test import (
  JOINT,
  batch_of,
  check_modifier,
  logits,
  parameters,
  placement,
  plan_of,
  sentence,
)

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.errors import InputError
from jaxsyn.models.contract import forward, sentence_features
from jaxsyn.plan import resolve
from jaxsyn.syntax import AttentionSite, SentenceFeatures, factors
from jaxsyn.syntax.factors import FACTORS, Factors
from jaxsyn.syntax.label_embedding import LabelEmbedding


@pytest.fixture(autouse=True)
def few_positions(monkeypatch):
  monkeypatch.setattr(factors, "POSITIONS", 2)


SITE = AttentionSite(
  "encoder",
  -1,
  heads=2,
  width=8,
  dtype="float32",
  relations=2,
  labels=(("upos", 3), ("feats", 2), ("lemma", 4)),
)
# Words of 1, 3 and 2 subwords, EOS, padding. Then words of 2 and 1 subwords with
# a word without subwords in between, and unknown labels of the first word.
FEATURES = SentenceFeatures(
  real_BS=jnp.array([[1] * 7 + [0], [1] * 4 + [0] * 4], bool),
  word_BS=jnp.array([[0, 1, 1, 1, 2, 2, -1, -1], [0, 0, 2, *[-1] * 5]]),
  relation_BW=jnp.array([[2, 1, 2], [9, 1, 1]]),
  annotations={
    "upos": jnp.array([[3, 1, 2], [4, 1, 2]]),
    "feats": jnp.array([[0, 2, 1], [-1, 2, 2]]),
    "lemma": jnp.array([[1, 4, 2], [5, 3, 3]]),
  },
)
LABELS = {  # by hand
  "upos": [[3, 1, 1, 1, 2, 2, 0, 0], [0, 0, 2, 0, 0, 0, 0, 0]],
  "feats": [[0, 2, 2, 2, 1, 1, 0, 0], [0, 0, 2, 0, 0, 0, 0, 0]],
  "lemma": [[1, 4, 4, 4, 2, 2, 0, 0], [0, 0, 3, 0, 0, 0, 0, 0]],
  "relation": [[2, 1, 1, 1, 2, 2, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]],
  "position": [[1, 2, 2, 2, 2, 2, 0, 0], [1, 1, 2, 0, 0, 0, 0, 0]],
  "subword": [[1, 2, 3, 4, 2, 4, 0, 0], [2, 4, 1, 0, 0, 0, 0, 0]],
}
COUNTS = dict(upos=3, feats=2, lemma=4, relation=2, position=2, subword=4)
X = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)


def embed(spec, params, features=FEATURES):
  return np.asarray(run(spec, "embed", X, features, params=params, site=SITE))


def tables(sizes) -> dict:
  rng = np.random.default_rng(1)
  return {
    name: {"embedding": rng.normal(size=(COUNTS[name] + 1, size))}
    for name, size in sizes.items()
  }


def by_loops(names, params, *, scaled, join="concatenate"):
  """Embeddings of both sentences, number by number."""
  out = X.astype(np.float64)
  for b, s in np.ndindex(2, 8):
    at = 8 - sum(table["embedding"].shape[1] for table in params.values())
    for name in names:
      vector = params[name]["embedding"][LABELS[name][b][s]]
      for i, value in enumerate(vector * (math.sqrt(8) if scaled else 1)):
        if join == "sum":
          out[b, s, i] += value
        else:
          out[b, s, at + i] = value
      at += len(vector)
  return out


@pytest.mark.parametrize(
  "spec",
  [
    Factors(),
    Factors(("lemma", "upos"), scale=False),
    Factors(join="sum"),
    Factors(("subword",), join="sum", scale=False),
    *(Factors((name,)) for name in FACTORS),
  ],
  ids=str,
)
def test_factors_equal_loops(spec):
  params = tables(spec.sizes_in(8))
  expected = by_loops(spec.names, params, scaled=spec.scale, join=spec.join)
  np.testing.assert_allclose(
    embed(spec, params), expected, rtol=1e-6, atol=1e-6
  )


@pytest.mark.parametrize("size", [2, 8])
@pytest.mark.parametrize("scaled", [False, True])
def test_label_embedding_equals_loops(size, scaled):
  params = tables({"relation": size})
  out = embed(
    LabelEmbedding(size=size, scale_label=scaled), {"table": params["relation"]}
  )
  expected = by_loops(["relation"], params, scaled=scaled)
  np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("join", ["concatenate", "sum"])
def test_sentences_without_a_tree_keep_their_embeddings(join):
  features = FEATURES.replace(parsed_B=jnp.array([0, 1], jnp.uint8))
  spec = Factors(("upos", "subword"), join)
  params = tables(spec.sizes_in(8))
  out = embed(spec, params, features)
  np.testing.assert_array_equal(out[0], X[0])
  np.testing.assert_array_equal(out[1], embed(spec, params)[1])


def test_tables_have_one_row_per_label_and_start_as_tokens_do():
  labels = (("upos", 17), ("feats", 900), ("lemma", 20_001))
  site = dataclasses.replace(SITE, width=400, relations=7, labels=labels)
  module = Factors().make(site)
  x_BSD = jnp.zeros((2, 8, 400))
  made = module.init(jax.random.key(0), x_BSD, FEATURES, method="embed")
  params = made["params"]
  assert {n: t["embedding"].shape for n, t in params.items()} == {
    "upos": (18, 8),  # 10 of 500
    "feats": (901, 8),
    "lemma": (20_002, 92),  # 115 of 500
    "relation": (8, 8),
    "position": (3, 8),
    "subword": (5, 4),
  }
  # 1 / √400, known precisely from 1.8 million samples.
  assert abs(np.std(params["lemma"]["embedding"]) / 0.05 - 1) < 0.01


@pytest.mark.parametrize("join", ["concatenate", "sum"])
def test_gradients_equal_differences(join):
  weight = np.random.default_rng(2).normal(size=X.shape)
  spec = Factors(("feats", "subword"), join)

  def loss(params):
    out = run(spec, "embed", X, FEATURES, params=params, site=SITE)
    return jnp.mean(weight * jnp.sin(out))

  check_gradients(loss, tables(spec.sizes_in(8)))


def test_requires_only_the_features_of_its_factors():
  assert {*ANNOTATIONS, "relation", "position", "subword"} == set(FACTORS)
  names = ("upos", "feats", "lemma", "relation")
  assert plan_of("factors").features == {f"source_{name}" for name in names}
  assert Factors(("subword", "position")).required_features == ("word",)
  assert Factors(("lemma", "subword")).required_features == ("lemma",)
  assert Factors(()).required_features == ()


@pytest.mark.parametrize(
  "system, names",
  [
    ("label_embedding+factors", "label_embedding and factors"),
    ("gru_sdr+factors", "source_dependency and factors"),
    ("gru_sdr+label_embedding", "source_dependency and label_embedding"),
  ],
)
def test_rejects_two_modifiers_of_the_last_dimensions(system, names):
  message = f"{names} both replace the last dimensions of the embeddings"
  with pytest.raises(InputError, match=message):
    plan_of(system)


@pytest.mark.parametrize(
  "options", [{"factors": {"join": "sum"}}, {"factors": {"names": ()}}]
)
def test_factors_that_replace_nothing_combine_with_labels(options):
  parts = placement(encoder={**options, "label_embedding": {}})
  config = dataclasses.replace(plan_of("transformer").config, parts=parts)
  active = resolve(config, JOINT).spec.modifiers.encoder
  assert len(active) == (2 if "join" in options["factors"] else 1)


def test_encoder_does_not_read_the_replaced_dimensions():
  plan = plan_of("label_embedding", tie_embeddings=False)
  batch = batch_of([sentence(4, 3, 1), sentence(3, 2, 2)])
  batch["source_parsed_B"] = jnp.array([1, 0], jnp.uint8)
  params = parameters(plan, batch)
  table = params["source_table"]["embedding"]

  def encoded(dimensions):
    changed = {"embedding": table.at[:, dimensions].add(1.0)}
    return plan.recipe.model.apply(
      {"params": params | {"source_table": changed}},
      batch["source_id_BS"],
      sentence_features(batch, "source"),
      method="encode",
    ).memory_BSD

  plain = encoded(slice(0, 0))
  last, before = encoded(slice(-10, None)), encoded(slice(-11, -10))
  np.testing.assert_array_equal(last[0], plain[0])
  assert not np.allclose(last[1], plain[1], atol=1e-3)  # without a tree
  assert not np.allclose(before[0], plain[0], atol=1e-3)


@pytest.mark.parametrize(
  "name, options, message",
  [
    ("factors", {"names": ("upso",)}, r"names\[0\] has no factor 'upso'.*upos"),
    ("factors", {"names": ("upos", "upos")}, r"names=.* has one twice"),
    ("label_embedding", {"size": -1}, r"size must be from 0 to .*, got -1"),
    ("label_embedding", {"size": 17}, "size=17 must be"),
    ("source_dependency", {"size": 17}, "size=17 must be from 0 to .*=16"),
  ],
)
def test_rejects_invalid_options(name, options, message):
  with pytest.raises(InputError, match=rf"encoder\.{name}\.{message}"):
    check_modifier("encoder", name, options)


def test_label_embedding_keeps_the_values_of_old_checkpoints():
  """Names, shapes, initial values and results of commit 7111ab5 on a CPU."""
  plan = plan_of("label_embedding")
  batch = batch_of([sentence(4, 3, 1), sentence(3, 2, 2)])
  keys = {"params": jax.random.key(7), "syntax": jax.random.key(1)}
  made = plan.recipe.model.init(keys, batch, train=False, method=forward)
  part = made["params"]["label_embedding"]
  assert jax.tree.map(jnp.shape, part) == {"table": {"embedding": (6, 10)}}
  table = part["table"]["embedding"]
  first = [-0.04961855, -0.3069643, 0.18893804, -0.04949322]
  np.testing.assert_allclose(table[2, :4], first, rtol=1e-6)
  out = logits(plan, made["params"], batch)
  some = [0.5931889, -0.3920539, 2.111727, 0.22125304]
  np.testing.assert_allclose(out[0, 0, :4], some, atol=2e-6)
  some = [1.3288586, 0.504037, -0.298845, 1.3456978]
  np.testing.assert_allclose(out[1, 1, :4], some, atol=2e-6)
