"""Rotary positions: the rotation matrix, differences alone count, trees."""

import dataclasses

import graph_by_loops as graph
import numpy as np
import pytest
from graph_by_loops import HEADS, VIEW, WHERE
from models_under_test import check_part

from jaxsyn.errors import InputError
from jaxsyn.syntax.tree_rotary import TreeRotary

RNG = np.random.default_rng(0)
QUERY, KEY = (
  RNG.normal(size=(graph.B, graph.S, HEADS, 8)).astype(np.float32)
  for _ in range(2)
)


def projected(spec, view=VIEW, site=WHERE, q=QUERY, k=KEY):
  return spec.make(site).apply({}, q, k, view, method="project")


def place(by, b, s):
  """Where a subword stands."""
  head, _, word, parsed = graph.SENTENCES[b]
  if by == "line" or not parsed:
    return s
  if by == "depth":
    return 0 if word[s] < 0 else len(graph.chain(head, word[s]))
  return float(VIEW.parent_mid_BS[b, s])


def matrix(angles):
  """Eq. 15: blocks [[cos, -sin], [sin, cos]] along the diagonal."""
  complete = np.zeros((2 * len(angles),) * 2)
  for i, a in enumerate(angles):
    block = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
    complete[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
  return complete


@pytest.mark.parametrize(
  "by", [("line", "line"), ("line", "depth"), ("parent", "depth")]
)
@pytest.mark.parametrize("heads", [None, (2, 0)])
def test_against_the_matrix(by, heads):
  spec = TreeRotary(by=by, heads=heads)
  new_q, new_k = projected(spec)
  for x, new in ((QUERY, new_q), (KEY, new_k)):
    for b, (_, _, word, _) in enumerate(graph.SENTENCES):
      for s in range(len(word)):
        angles = [
          place(by[i % 2], b, s) * 10000.0 ** (-2 * i / 8) for i in range(4)
        ]
        for h in range(HEADS):
          turns = heads is None or h in heads
          wanted = matrix(angles) @ x[b, s, h] if turns else x[b, s, h]
          np.testing.assert_allclose(new[b, s, h], wanted, atol=2e-6)


def test_a_last_channel_without_another_stays():
  spec = TreeRotary(by=("line", "line"))
  site = dataclasses.replace(WHERE, width=7 * HEADS)
  new, _ = projected(spec, site=site, q=QUERY[..., :7], k=KEY[..., :7])
  np.testing.assert_array_equal(new[..., 6], QUERY[..., 6])
  angles = 5 * 10000.0 ** (-np.arange(3) / 3)
  np.testing.assert_allclose(
    new[0, 5, 0, :6], matrix(angles) @ QUERY[0, 5, 0, :6], atol=2e-6
  )


def test_only_the_difference_in_the_line_counts():
  """Eq. 11: all moved by 100, a decoder's step among them."""
  spec = TreeRotary(by=("line", "line"))
  moved = VIEW.replace(
    position_Q=VIEW.position_Q + 100, position_M=VIEW.position_M + 100
  )
  scores = [
    np.einsum("BQHK,BMHK->BHQM", *projected(spec, view))
    for view in (VIEW, moved)
  ]
  np.testing.assert_allclose(*scores, atol=2e-4)
  complete, keys = projected(spec)
  step = VIEW.replace(position_Q=VIEW.position_Q[5:6])
  one, again = projected(spec, step, q=QUERY[:, 5:6])
  np.testing.assert_array_equal(one[:, 0], complete[:, 5])
  np.testing.assert_array_equal(again, keys)


@pytest.mark.parametrize(
  "place, options, message",
  [
    ("decoder", {}, "what a decoder writes has no tree; take"),
    ("encoder", {"by": ("line", "tree")}, "by"),
  ],
)
def test_rejects_invalid_options(place, options, message):
  with pytest.raises(InputError, match=message):
    check_part(place, "tree_rotary", options)
