"""The probe on attention made by hand."""

import numpy as np
import pytest

from jaxsyn.inspection.maps import Map
from jaxsyn.inspection.probe import Probe, as_text

# "the duck sleeps": the -> duck -> sleeps, the root.
HEADS = (1, 2, 2)


def layer(weight_HQM, *parts):
  """Returns a layer whose modifiers are active on all heads."""
  heads = range(len(weight_HQM))
  return [
    Map(
      "encoder",
      0,
      "",
      "weight",
      tuple(heads),
      weight_HQM,
      tuple(parts for _ in heads),
    )
  ]


def attention(*rows, parts=()):
  """Returns a layer of one head; a row for EOS is added."""
  return layer(np.array([[*rows, (0.0, 0.0, 0.0, 1.0)]]), *parts)


def test_counts_hits_of_each_relation():
  probe = Probe()
  probe.add(
    attention(
      (0.3, 0.4, 0.2, 0.1),  # the -> duck: its parent and the next word
      (0.1, 0.2, 0.6, 0.1),  # duck -> sleeps: its parent and the next word
      (0.1, 0.2, 0.1, 0.6),  # sleeps -> duck, after the end: child, previous
      parts=["parent_scaled"],
    ),
    HEADS,
  )
  result = probe.result()
  assert (result["sentences"], result["words"]) == (1, 3)
  # The root has no parent, "the" no child and no previous, "sleeps" no next.
  assert result["possible"] == dict.fromkeys(result["possible"], 2)
  (head,) = result["heads"]
  assert (head["layer"], head["head"]) == (0, 0)
  assert head["parts"] == ["parent_scaled"]
  assert (head["parent"], head["next"]) == (1.0, 1.0)
  assert (head["child"], head["previous"]) == (0.5, 0.5)  # "sleeps" of two
  # Own weight 0.3 + 0.2 + 0.1, the end's 0.1 + 0.1 + 0.6, of three words.
  assert head["self"] == pytest.approx(0.2)
  assert head["end"] == pytest.approx(0.8 / 3, abs=1e-4)
  # One of two other words is the parent, and so on.
  assert result["random"] == dict.fromkeys(result["random"], 0.5)


def test_the_word_itself_and_the_end_are_no_candidates():
  probe = Probe()
  probe.add(
    attention((0.9, 0.0, 0.1, 0.0), (0.1, 0.8, 0.0, 0.1), (0.2, 0.1, 0.0, 0.7)),
    HEADS,
  )
  (head,) = probe.result()["heads"]
  # the -> sleeps, duck -> the, sleeps -> the: only duck finds its child.
  assert (head["parent"], head["next"]) == (0.0, 0.0)
  assert head["child"] == 0.5  # of duck and sleeps
  assert head["previous"] == 0.5  # of duck and sleeps


def test_ties_share_the_hit():
  probe = Probe()
  # "duck" has three subwords: both others find it, "duck" finds either.
  probe.add(layer(np.full((2, 4, 4), 0.25)), HEADS, (1, 3, 1))
  result = probe.result()
  for head in result["heads"]:  # as a random choice
    assert {n: head[n] for n in result["random"]} == result["random"]
  # Parent: "the" 1, "duck" finds sleeps with 1/2; and so on.
  assert result["even"] == dict.fromkeys(result["even"], 0.75)
  assert set(result["random"].values()) == {0.5}


def test_sentences_of_different_length_add_up():
  probe = Probe()
  probe.add(attention((0, 1, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0)), HEADS)
  # Two words: the second depends on the first; both look at each other.
  two = np.array([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
  probe.add(layer(two), (0, 0))
  result = probe.result()
  assert result["words"] == 5
  assert result["possible"]["parent"] == 3
  # Chance: 1/2 + 1/2 in the first sentence, 1 in the second.
  assert result["random"]["parent"] == pytest.approx(2 / 3, abs=1e-4)
  assert result["heads"][0]["parent"] == 1.0


def test_any_child_is_a_hit():
  # A root in the middle with two children; both are children to be found.
  probe = Probe()
  probe.add(attention((0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0)), (1, 1, 1))
  result = probe.result()
  assert result["possible"]["child"] == 1
  assert result["random"]["child"] == 1.0  # any other word is a child
  assert result["heads"][0]["child"] == 1.0


def test_a_word_alone_is_not_counted_and_rates_of_nothing_are_none():
  probe = Probe()
  probe.add(layer(np.ones((1, 2, 2)) / 2), (0,))
  result = probe.result()
  assert result["sentences"] == 0
  assert result["random"]["parent"] is None
  # Two roots: words, but no parent among them.
  probe.add(layer(np.full((1, 3, 3), 1 / 3)), (0, 1))
  result = probe.result()
  assert result["heads"][0]["parent"] is None
  assert result["heads"][0]["previous"] == 1.0
  assert " - " in as_text(result)


def test_formats_counts_and_rates():
  probe = Probe()
  rows = (0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0)
  probe.add(attention(*rows, parts=["tree_scaled"]), HEADS)
  lines = as_text(probe.result()).splitlines()
  assert lines[2].split()[:5] == ["layer", "0", "head", "0", "100.0"]
  assert lines[2].endswith("tree_scaled")
  assert lines[3].split() == ["random", "choice", *["50.0"] * 4]
  assert lines[4].split() == ["even", "attention", *["50.0"] * 4]
  assert lines[5].split() == ["words", *["2"] * 4, "3", "3"]
