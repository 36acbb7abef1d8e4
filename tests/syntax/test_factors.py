"""Factors: their labels, their vectors by plain loops, and what clashes."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  JOINT,
  batch_of,
  check_part,
  logits,
  places,
  plan_of,
  sentence,
)

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.errors import InputError
from jaxsyn.models.contract import forward
from jaxsyn.plan import resolve
from jaxsyn.syntax import AttentionSite, SentenceFeatures
from jaxsyn.syntax.factors import FACTORS, Factors

WHERE = AttentionSite(
  *("encoder", -1),
  heads=2,
  width=8,
  dtype="float32",
  relations=2,
  labels=(("upos", 3), ("feats", 2), ("lemma", 4)),
)
# Words of 1, 3 and 2 subwords, EOS, a pad; of 2 and 1, of which the
# first has what no table knows, EOS and pads. Word 1 of the second has
# no subword: another's piece holds it.
VIEW = SentenceFeatures(
  real_BS=jnp.array([[1] * 7 + [0], [1] * 4 + [0] * 4], bool),
  word_BS=jnp.array([[0, 1, 1, 1, 2, 2, -1, -1], [0, 0, 2, *[-1] * 5]]),
  relation_BW=jnp.array([[2, 1, 2], [9, 1, 1]]),
  annotations={
    "upos": jnp.array([[3, 1, 2], [4, 1, 2]]),
    "feats": jnp.array([[0, 2, 1], [-1, 2, 2]]),
    "lemma": jnp.array([[1, 4, 2], [5, 3, 3]]),
  },
)
# Which label each subword has, worked out by hand: 0 where there is no word and
# where no table knows it.
LABELS = {
  "upos": [[3, 1, 1, 1, 2, 2, 0, 0], [0, 0, 2, 0, 0, 0, 0, 0]],
  "feats": [[0, 2, 2, 2, 1, 1, 0, 0], [0, 0, 2, 0, 0, 0, 0, 0]],
  "lemma": [[1, 4, 4, 4, 2, 2, 0, 0], [0, 0, 3, 0, 0, 0, 0, 0]],
  "relation": [[2, 1, 1, 1, 2, 2, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]],
  # Words from the second on are one.
  "position": [[1, 2, 2, 2, 2, 2, 0, 0], [1, 1, 2, 0, 0, 0, 0, 0]],
  "subword": [[1, 2, 3, 4, 2, 4, 0, 0], [2, 4, 1, 0, 0, 0, 0, 0]],
}
COUNTS = dict(upos=3, feats=2, lemma=4, relation=2, position=2, subword=4)
X_BSD = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)


def tables(spec: Factors) -> dict:
  rng = np.random.default_rng(1)
  return {
    name: {"embedding": jnp.asarray(rng.normal(size=(COUNTS[name] + 1, size)))}
    for name, size in spec.sizes_in(WHERE.width).items()
  }


def embedded(spec, params, view=VIEW, x_BSD=X_BSD):
  return spec.make(WHERE).apply(
    {"params": params}, jnp.asarray(x_BSD), view, method="embed"
  )


def by_loops(spec: Factors, params) -> np.ndarray:
  """Section 2.1 of the paper in float64, a number at a time."""
  out = X_BSD.astype(np.float64)
  factor = math.sqrt(8) if spec.scale else 1.0
  for b in range(2):
    for s in range(8):
      at = 8 - sum(np.shape(t["embedding"])[1] for t in params.values())
      for name in spec.names:
        table = np.asarray(params[name]["embedding"], np.float64)
        for i, value in enumerate(table[LABELS[name][b][s]]):
          if spec.join == "sum":
            out[b, s, i] += factor * value
          else:
            out[b, s, at + i] = factor * value
        at += table.shape[1]
  return out


@pytest.mark.parametrize(
  "spec",
  [
    Factors(sizes=(1, 1, 2, 1, 1, 1), positions=2),
    Factors(("lemma", "upos"), sizes=(5, 3), positions=2, scale=False),
    Factors(positions=2, join="sum"),
    Factors(("subword",), positions=2, join="sum", scale=False),
    *(Factors((name,), sizes=(3,), positions=2) for name in FACTORS),
  ],
  ids=str,
)
def test_against_loops(spec):
  params = tables(spec)
  np.testing.assert_allclose(
    embedded(spec, params), by_loops(spec, params), rtol=1e-6, atol=1e-6
  )


def test_a_sentence_without_a_tree_keeps_its_tokens():
  view = VIEW.replace(parsed_B=jnp.array([0, 1], jnp.uint8))
  for join in ("concatenate", "sum"):
    spec = Factors(("upos", "subword"), join, positions=2)
    params = tables(spec)
    out = embedded(spec, params, view)
    np.testing.assert_array_equal(out[0], X_BSD[0])
    np.testing.assert_array_equal(out[1], embedded(spec, params)[1])


def test_parameters_are_as_many_as_labels_and_start_as_tokens_do():
  site = AttentionSite(
    *("encoder", -1),
    heads=2,
    width=400,
    dtype="float32",
    relations=7,
    labels=(("upos", 17), ("feats", 900), ("lemma", 20_001)),
  )
  spec, x_BSD = Factors(), jnp.zeros((2, 8, 400))
  made = spec.make(site).init(jax.random.key(0), x_BSD, VIEW, method="embed")
  params = made["params"]
  assert {n: t["embedding"].shape for n, t in params.items()} == {
    "upos": (18, 8),  # 10 of 500
    "feats": (901, 8),
    "lemma": (20_002, 92),  # 115 of 500
    "relation": (8, 8),
    "position": (101, 8),
    "subword": (5, 4),
  }
  # 1 / √400; the deviation of 1.8 million draws is known far better.
  assert abs(np.std(params["lemma"]["embedding"]) / 0.05 - 1) < 0.01


def test_annotations_with_labels_are_factors():
  assert {*ANNOTATIONS, "relation", "position", "subword"} == set(FACTORS)


def test_each_is_read_only_where_it_is_used():
  plan = plan_of("factors")
  expected = ("upos", "feats", "lemma", "relation")
  assert plan.features == {f"source_{name}" for name in expected}
  assert Factors(("subword", "position")).required_features == ("word",)
  assert Factors(("lemma", "subword")).required_features == ("lemma",)
  assert Factors(()).required_features == ()


def test_rejects_two_modifiers_of_the_same_dimensions():
  message = "label_embedding and factors both take the last dimensions"
  with pytest.raises(InputError, match=message):
    plan_of("label_embedding+factors")
  with pytest.raises(InputError, match="source_dependency and factors both"):
    plan_of("gru_sdr+factors")


def test_summed_they_take_none():
  both = places(encoder={"factors": {"join": "sum"}, "label_embedding": {}})
  active = [part.active_heads(1, 1) for _, part in both.modifiers_in("encoder")]
  assert active == [{(-1, -1)}, set()]
  spec = resolve(
    dataclasses.replace(plan_of("transformer").config, parts=both), JOINT
  ).spec
  assert spec.modifiers == both  # taking none, they are there


@pytest.mark.parametrize(
  "options, message",
  [
    ({"names": ("upso",)}, r"names\[0\] has no factor 'upso'.*upos"),
    ({"names": ("upos", "upos")}, r"factors\.names=.* has one twice"),
    ({"sizes": (1, 2)}, r"factors\.sizes=\(1, 2\) must have one for each"),
    ({"sizes": (0,) * 6}, r"sizes\[0\] must be from 1 to"),
    (
      {"names": ("lemma", "upos"), "sizes": (10, 7)},
      r"sizes: 17 dimensions .* of config\.model\.width=16",
    ),
  ],
)
def test_rejects_invalid_options(options, message):
  with pytest.raises(InputError, match=message):
    check_part("encoder", "factors", options)


def test_the_label_embedding_is_what_it_was_before_there_were_factors():
  """Names, shapes, first values and results of checkpoints.

  Values: of commit 7111ab5, jax 0.10.2 on a CPU.
  """
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
