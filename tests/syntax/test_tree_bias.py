"""Graphormer's biases on trees: values by hand, loops over paths, sharing."""

import dataclasses

import graph_by_loops as graph
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_by_loops import HEADS, RELATIONS, VIEW, WHERE
from models_under_test import (
  JOINT,
  batch_of,
  logits,
  parameters,
  plan_of,
  sentence,
)

from jaxsyn.plan import resolve
from jaxsyn.syntax.placement import Placement
from jaxsyn.syntax.tree_bias import TreeBias

RNG = np.random.default_rng(0)
SCORE = RNG.normal(size=(graph.B, HEADS, graph.S, graph.S)).astype(np.float32)
QUERY = np.zeros((graph.B, graph.S, HEADS, 8), np.float32)


def drawn(spec, heads=HEADS):
  params = {"bias_LH": RNG.normal(size=(spec.kinds, heads))}
  if spec.edges:
    shape = spec.longest, 2 * (1 + RELATIONS), heads
    params["edge_ERH"] = RNG.normal(size=shape)
  return params


def rescored(spec, params, view=VIEW):
  made = spec.make(WHERE)
  variables = {
    "params": jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
  }
  return made.apply(variables, SCORE, QUERY, QUERY, view, method="rescore")


def by_loops(spec, params):
  """The formula, walking from word to word."""
  out = np.array(SCORE, np.float64)
  heads = range(HEADS) if spec.heads is None else spec.heads
  for b, q, m, head, one, other in graph.pairs():
    if not graph.parsed(b):
      continue
    relation = graph.SENTENCES[b][1]
    edges = []
    if one < 0 or other < 0:
      kind = spec.kinds - 1
    elif (result := graph.path(head, one, other)) is None:
      kind = spec.kinds - 2
    else:
      up, down = result
      steps = len(up) - 1, len(down)
      if spec.kind == "distance":
        kind = min(sum(steps), spec.clip)
      else:
        kind = min(steps[0], spec.clip) * (spec.clip + 1) + min(
          steps[1], spec.clip
        )
      edges = [(relation[w], 0) for w in up[:-1]] + [
        (relation[w], 1) for w in down
      ]
      edges = edges[: spec.longest]
    for i, h in enumerate(heads):
      out[b, h, q, m] += params["bias_LH"][kind][i]
      if spec.edges and edges:
        out[b, h, q, m] += sum(
          params["edge_ERH"][n][label + (1 + RELATIONS) * down][i]
          for n, (label, down) in enumerate(edges)
        ) / len(edges)
  return out


@pytest.mark.parametrize("kind", ["distance", "steps"])
@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("clip, longest, heads", [(8, 9, None), (2, 3, (2, 0))])
def test_against_loops(kind, edges, clip, longest, heads):
  spec = TreeBias(
    kind=kind, edges=edges, clip=clip, longest=longest, heads=heads, share=False
  )
  params = drawn(spec, HEADS if heads is None else len(heads))
  out = graph.real_pairs(rescored(spec, params))
  np.testing.assert_allclose(
    out, graph.real_pairs(by_loops(spec, params)), atol=2e-6
  )


def test_all_layers_have_one_table_or_each_a_copy_of_it():
  batch = batch_of([sentence(5, 6, 1), sentence(3, 4, 226, bare=17)])
  plan = plan_of("tree_bias_steps_edges")
  ((_, spec),) = plan.spec.modifiers.encoder
  places = Placement(
    encoder=(("tree_bias", dataclasses.replace(spec, share=False)),)
  )
  expected = resolve(dataclasses.replace(plan.config, parts=places), JOINT)
  params = parameters(plan, batch)
  copied = dict(params)
  table = copied.pop("encoder_tree_bias")
  for layer in ("encoder_0", "encoder_1"):
    attention = {**copied[layer]["attention"], "tree_bias": table}
    copied[layer] = {**copied[layer], "attention": attention}
  assert jax.tree.structure(copied) == jax.tree.structure(
    parameters(expected, batch)
  )
  np.testing.assert_array_equal(
    logits(plan, params, batch), logits(expected, copied, batch)
  )
