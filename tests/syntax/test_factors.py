"""Factors and S&H: labels by hand, vectors by loops, initial values."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import run
from models_under_test import JOINT, placement, plan_of
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.plan import resolve
from jaxsyn.syntax import AttentionSite, SentenceFeatures, factors
from jaxsyn.syntax.factors import Factors
from jaxsyn.syntax.label_embedding import LabelEmbedding


@pytest.fixture(autouse=True)
def two_positions(monkeypatch):
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
  return run(spec, "embed", X, features, params=params, site=SITE)


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
  ],
  ids=str,
)
def test_factors_equal_loops(spec):
  params = tables(spec.sizes_in(8))
  expected = by_loops(spec.names, params, scaled=spec.scale, join=spec.join)
  out = embed(spec, params)
  assert_allclose(out, expected, rtol=1e-6, atol=1e-6)
  # A sentence without a tree keeps its embeddings.
  features = FEATURES.replace(parsed_B=jnp.array([0, 1], jnp.uint8))
  result = embed(spec, params, features)
  assert_array_equal(result, np.where([[[1]], [[0]]], X, out))


@pytest.mark.parametrize("size, scaled", [(2, False), (8, True)])
def test_label_embedding_equals_loops(size, scaled):
  params = tables({"relation": size})
  out = embed(
    LabelEmbedding(size=size, scale_label=scaled), {"table": params["relation"]}
  )
  expected = by_loops(["relation"], params, scaled=scaled)
  assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


def test_tables_have_one_row_per_label_and_start_as_tokens_do():
  labels = (("upos", 17), ("feats", 900), ("lemma", 20_001))
  site = dataclasses.replace(SITE, width=400, relations=20_001, labels=labels)
  x_BSD = jnp.zeros((2, 8, 400))

  def initial(spec):
    inputs = jax.random.key(0), x_BSD, FEATURES
    params = spec.make(site).init(*inputs, method="embed")["params"]
    return {name: table["embedding"] for name, table in params.items()}

  tables, label = initial(Factors()), initial(LabelEmbedding(size=92))
  assert {name: table.shape for name, table in tables.items()} == {
    "upos": (18, 8),  # 10 of 500
    "feats": (901, 8),
    "lemma": (20_002, 92),  # 115 of 500
    "relation": (20_002, 8),
    "position": (3, 8),
    "subword": (5, 4),
  }
  for table in (tables["lemma"], label["table"]):
    assert table.shape == (20_002, 92)
    # 1 / √400, known precisely from 1.8 million samples.
    assert abs(np.std(table) / 0.05 - 1) < 0.01


@pytest.mark.parametrize(
  "options, count", [({"join": "sum"}, 2), ({"names": ()}, 1)]
)
def test_factors_that_replace_nothing_combine_with_labels(options, count):
  parts = placement(encoder={"factors": options, "label_embedding": {}})
  config = dataclasses.replace(plan_of("transformer").config, parts=parts)
  assert len(resolve(config, JOINT).spec.modifiers.encoder) == count
