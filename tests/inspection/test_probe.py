"""The probe on attention made by hand, and against loops."""

import numpy as np
import pytest

from jaxsyn.inspection.maps import Map
from jaxsyn.inspection.probe import RELATIONS, Probe, as_text

# "the duck sleeps": the -> duck -> sleeps, the root.
HEADS = (1, 2, 2)


def probed(*sentences, parts=()):
  """Returns the probe of (weight_HQM, parents, subwords of each word)."""
  probe = Probe()
  for weight_HQM, *tree in sentences:
    heads = tuple(range(len(weight_HQM)))
    names = ("encoder", 0, "", "weight", heads)
    probe.add([Map(*names, weight_HQM, tuple(parts for _ in heads))], *tree)
  return probe.result()


def attention(*rows):
  """Returns the map of one head; a row for EOS is added."""
  return np.array([[*rows, (0.0, 0.0, 0.0, 1.0)]])


def test_counts_hits_of_each_relation():
  weight_HQM = attention(
    (0.3, 0.4, 0.2, 0.1),  # the -> duck: its parent and the next word
    (0.1, 0.2, 0.6, 0.1),  # duck -> sleeps: its parent and the next word
    (0.1, 0.2, 0.1, 0.6),  # sleeps -> duck, after the end: child, previous
  )
  result = probed((weight_HQM, HEADS), parts=("parent_scaled",))
  assert (result["sentences"], result["words"]) == (1, 3)
  # The root has no parent, "the" no child and no previous, "sleeps" no next.
  assert result["possible"] == dict.fromkeys(RELATIONS, 2)
  (head,) = result["heads"]
  assert (head["layer"], head["head"]) == (0, 0)
  assert head["parts"] == ["parent_scaled"]
  assert (head["parent"], head["next"]) == (1.0, 1.0)
  assert (head["child"], head["previous"]) == (0.5, 0.5)  # "sleeps" of two
  # Own weight 0.3 + 0.2 + 0.1, the end's 0.1 + 0.1 + 0.6, of three words.
  assert head["self"] == pytest.approx(0.2)
  assert head["end"] == pytest.approx(0.8 / 3, abs=1e-4)
  # One of two other words is the parent, and so on.
  assert result["random"] == dict.fromkeys(RELATIONS, 0.5)


def test_ties_share_the_hit():
  # "duck" has three subwords: both others find it, "duck" finds either.
  result = probed((np.full((2, 4, 4), 0.25), HEADS, (1, 3, 1)))
  for head in result["heads"]:  # as a random choice
    assert {n: head[n] for n in RELATIONS} == result["random"]
  # Parent: "the" 1, "duck" finds sleeps with 1/2; and so on.
  assert result["even"] == dict.fromkeys(RELATIONS, 0.75)
  assert set(result["random"].values()) == {0.5}


def related(head_W, word):
  """Returns the words that stand in each relation to a word."""
  words = range(len(head_W))
  return {
    "parent": {head_W[word]} - {word},
    "child": {w for w in words if head_W[w] == word} - {word},
    "previous": {word - 1} & {*words},
    "next": {word + 1} & {*words},
  }


def test_rates_of_sentences_of_different_lengths_equal_loops():
  """Neither the word itself nor EOS is a candidate; any child is a hit."""
  draw = np.random.default_rng(0)
  sentences = []
  for words in (1, 2, 3, 7, 12):
    head_W = draw.integers(words, size=words).tolist()
    shape = (3, words + 1)
    sentences.append((draw.dirichlet(np.ones(words + 1), shape), head_W))
  result = probed(*sentences)
  assert (result["sentences"], result["words"]) == (4, 24)
  for name in RELATIONS:
    possible, chance, hits_H = 0, 0.0, np.zeros(3)
    for weight_HQM, head_W in sentences[1:]:  # a word alone is not counted
      for word in range(len(head_W)):
        wanted = related(head_W, word)[name]
        possible += bool(wanted)
        chance += len(wanted) / (len(head_W) - 1)
        for head in range(3):
          others = {w: weight_HQM[head, word, w] for w in range(len(head_W))}
          del others[word]
          hits_H[head] += max(others, key=others.get) in wanted
    assert result["possible"][name] == possible
    assert result["random"][name] == pytest.approx(chance / possible, abs=1e-4)
    rates = [head[name] for head in result["heads"]]
    np.testing.assert_allclose(rates, hits_H / possible, atol=1e-4)


def test_formats_counts_and_rates():
  weight_HQM = attention((0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0))
  result = probed((weight_HQM, HEADS), parts=("tree_scaled",))
  lines = as_text(result).splitlines()
  assert lines[2].split()[:5] == ["layer", "0", "head", "0", "100.0"]
  assert lines[2].endswith("tree_scaled")
  assert lines[3].split() == ["random", "choice", *["50.0"] * 4]
  assert lines[4].split() == ["uniform", *["50.0"] * 4]
  assert lines[5].split() == ["words", *["2"] * 4, "3", "3"]
  # Two roots: words, but no parent among them, so no rate.
  result = probed((np.full((1, 3, 3), 1 / 3), (0, 1)))
  assert result["heads"][0]["parent"] is result["random"]["parent"] is None
  assert result["heads"][0]["previous"] == 1.0
  assert " - " in as_text(result)
