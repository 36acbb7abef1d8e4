"""Graphormer's biases on trees: paths by hand, loops, gradients."""

import cases
import numpy as np
import pytest
from cases import FEATURES, RELATIONS, heads_of, normal, rescore
from models_under_test import batch_of, parameters, plan_of, sentence
from numpy.testing import assert_allclose

from jaxsyn.syntax import tree_bias
from jaxsyn.syntax.tree_bias import TreeBias, edges_EBWW, steps_BWW


def params_of(spec):
  heads = len(heads_of(spec))
  params = {"bias_LH": normal(spec.kinds, heads)}
  if spec.edges:
    params["edge_ERH"] = normal(tree_bias.MAX_EDGES, 2 * (1 + RELATIONS), heads)
  return params


@pytest.mark.parametrize(
  "kind, edges, clip, max_edges, heads",
  [
    ("distance", False, 2, 3, None),
    ("distance", True, 8, 9, (2, 0)),
    ("steps", True, 2, 3, None),
    ("steps", False, 8, 9, (2, 0)),
  ],
)
def test_scores_equal_loops(monkeypatch, kind, edges, clip, max_edges, heads):
  monkeypatch.setattr(tree_bias, "MAX_EDGES", max_edges)
  spec = TreeBias(kind=kind, edges=edges, clip=clip, heads=heads)
  params = params_of(spec)

  def score_of(score, sentence, i, q, m):
    words = sentence.word[q], sentence.word[m]
    if min(words) < 0:
      return score + params["bias_LH"][spec.kinds - 1, i]
    path = sentence.steps(*words)
    if path is None:
      return score + params["bias_LH"][spec.kinds - 2, i]
    up, down = path
    label = min(len(up) - 1 + len(down), clip)
    if kind == "steps":
      label = min(len(up) - 1, clip) * (clip + 1) + min(len(down), clip)
    score += params["bias_LH"][label, i]
    relations = [sentence.relation[w] for w in up[:-1]]
    relations += [1 + RELATIONS + sentence.relation[w] for w in down]
    relations = relations[:max_edges]
    if edges and relations:
      biases = [params["edge_ERH"][n, r, i] for n, r in enumerate(relations)]
      score += sum(biases) / len(biases)
    return score

  assert_allclose(
    cases.real_pairs(rescore(spec, params=params)),
    cases.expected_scores(spec, score_of),
    atol=2e-6,
  )


def test_steps_and_edges_by_hand():
  up, down = (np.asarray(x[0]) for x in steps_BWW(FEATURES))
  # "The monkey eats a ripe banana": monkey-The, The-eats, ripe-a, The-banana.
  for one, other, steps in (
    (1, 0, (0, 1)),
    (0, 2, (2, 0)),
    (4, 3, (1, 1)),
    (0, 5, (2, 1)),
  ):
    assert (up[one, other], down[one, other]) == steps
  edge = np.asarray(edges_EBWW(FEATURES, 4, RELATIONS))
  # The (det 2) up to monkey (nsubj 3) up to eats, down to banana (obj 4).
  assert edge[:, 0, 0, 5].tolist() == [2, 3, 4 + 6, -1]
  assert edge[:, 0, 5, 0].tolist() == [4, 3 + 6, 2 + 6, -1]
  assert edge[:, 1, 0, 3].tolist() == [-1] * 4  # another tree
  # Word 2 of the third sentence has an unknown relation.
  assert edge[:, 2, 3, 1].tolist() == [3, 0, -1, -1]


def test_all_layers_share_one_table():
  batch = batch_of([sentence(3, 4, 226, bare=17)])
  params = parameters(plan_of("tree_bias_steps_edges"), batch)
  assert {*params["encoder_tree_bias"]} == {"bias_LH", "edge_ERH"}
  for layer in ("encoder_0", "encoder_1"):
    assert "tree_bias" not in params[layer]["attention"]
