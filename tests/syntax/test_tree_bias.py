"""Graphormer's biases on trees: values by hand, loops over paths, sharing."""

import dataclasses

import finite_differences
import graph_by_loops as graph
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_by_loops import HEADS, RELATIONS, VIEW, WHERE
from models_under_test import (
  batch_of,
  parameters,
  plan_of,
  sentence,
)

from jaxsyn.syntax import tree_bias
from jaxsyn.syntax.tree_bias import TreeBias, edges_EBWW, steps_BWW

RNG = np.random.default_rng(0)
SCORE = RNG.normal(size=(graph.B, HEADS, graph.S, graph.S)).astype(np.float32)
QUERY = np.zeros((graph.B, graph.S, HEADS, 8), np.float32)


def drawn(spec, heads=HEADS):
  params = {"bias_LH": RNG.normal(size=(spec.kinds, heads))}
  if spec.edges:
    shape = tree_bias.LONGEST, 2 * (1 + RELATIONS), heads
    params["edge_ERH"] = RNG.normal(size=shape)
  return params


def rescored(spec, params, view=VIEW):
  site = dataclasses.replace(WHERE, modifier="tree_bias")
  variables = {
    "params": jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
  }
  shared = spec.make(dataclasses.replace(site, layer=-1)).apply(
    variables, view, method="make_shared_features"
  )
  view = view.replace(shared_features={"tree_bias": shared})
  return spec.make(site).apply({}, SCORE, QUERY, QUERY, view, method="rescore")


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
      edges = edges[: tree_bias.LONGEST]
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
def test_against_loops(monkeypatch, kind, edges, clip, longest, heads):
  monkeypatch.setattr(tree_bias, "LONGEST", longest)
  spec = TreeBias(kind=kind, edges=edges, clip=clip, heads=heads)
  params = drawn(spec, HEADS if heads is None else len(heads))
  out = graph.real_pairs(rescored(spec, params))
  np.testing.assert_allclose(
    out, graph.real_pairs(by_loops(spec, params)), atol=2e-6
  )


def test_steps_tell_parent_child_sibling_and_ancestor_apart():
  up, down = (np.asarray(x[0]) for x in steps_BWW(VIEW))
  # Of "The monkey eats a ripe banana": The-monkey, monkey-The, monkey-banana,
  # The-eats, ripe-a, The-banana.
  for one, other, steps in (
    (0, 1, (1, 0)), (1, 0, (0, 1)), (1, 5, (1, 1)), (0, 2, (2, 0)),
    (4, 3, (1, 1)), (0, 5, (2, 1)), (5, 0, (1, 2)), (4, 4, (0, 0)),
  ):  # fmt: skip
    assert (up[one, other], down[one, other]) == steps


def test_the_edges_of_a_path():
  edge = np.asarray(edges_EBWW(VIEW, 4, RELATIONS))
  # The (det 2) up to monkey (nsubj 3) up to eats, down to banana (obj 4).
  assert edge[:, 0, 0, 5].tolist() == [2, 3, 4 + 6, -1]
  assert edge[:, 0, 5, 0].tolist() == [4, 3 + 6, 2 + 6, -1]
  assert edge[:, 0, 2, 2].tolist() == [-1] * 4
  assert edge[:, 1, 0, 3].tolist() == [-1] * 4  # another tree
  # Word 2 of the third sentence has a relation that training never saw.
  assert edge[:, 2, 3, 1].tolist() == [3, 0, -1, -1]
  assert edge[:, 2, 1, 3].tolist() == [0 + 6, 3 + 6, -1, -1]


def test_gradients(monkeypatch):
  monkeypatch.setattr(tree_bias, "LONGEST", 1)
  spec = TreeBias(kind="steps", clip=1, edges=True)
  near = graph.real_pairs(RNG.normal(size=SCORE.shape)) / 20

  def loss(params):
    new = rescored(spec, params) - SCORE
    return jnp.sum(new * near) + jnp.sum((new * near) ** 2)

  params = drawn(spec)
  finite_differences.agree_with_differences(loss, params)


def test_all_layers_have_one_table():
  batch = batch_of([sentence(5, 6, 1), sentence(3, 4, 226, bare=17)])
  params = parameters(plan_of("tree_bias_steps_edges"), batch)
  assert {*params["encoder_tree_bias"]} == {"bias_LH", "edge_ERH"}
  for layer in ("encoder_0", "encoder_1"):
    assert "tree_bias" not in params[layer]["attention"]
