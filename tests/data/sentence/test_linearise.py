"""Tests bracketings of trees with worked examples and round trips."""

import control_trees
import numpy as np

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.linearise import (
  CLOSE,
  END,
  HEAD,
  OPEN,
  linearise,
  numbers,
  of_subwords,
  opening,
  skeleton,
  symbols,
)

LABELS = ("det", "nsubj", "obj", "root")  # 1, 2, 3, 4
NAMES = symbols(LABELS)


def delinearise(index):
  """The parents and relations in a skeleton; words count in its order."""
  head, relation = [], []
  # Of each open bracket: label, words that depend on its word, its own word.
  todo: list[tuple[int, list[int], list[int]]] = [(0, [], [])]

  def place(entry) -> None:
    entry[2].append(len(head))
    head.append(-1)
    relation.append(entry[0])

  for sign in map(int, index):
    if sign >= OPEN:
      todo.append((sign - OPEN, [], []))
    elif sign == HEAD:
      place(todo[-1])
    else:
      assert sign == END
      entry = todo.pop()
      _, dependents, word = entry
      if not dependents and not word:
        place(entry)
      (parent,) = word
      for dependent in dependents:
        head[dependent] = parent
      todo[-1][1].append(parent)
  ((_, roots, _),) = todo
  for root in roots:
    head[root] = root
  return np.array(head, np.int32), np.array(relation, np.int32)


def shown(bracketing, words=None):
  """A bracketing as text: with words, or as the symbols of its skeleton."""
  if words is None:
    return " ".join(NAMES[k] for k in skeleton(bracketing, heads=True))
  return " ".join(
    words[sign] if sign >= 0 else NAMES[k]
    for sign, k in zip(bracketing, numbers(bracketing))
  )


def test_bracketing_of_the_worked_example():
  words = ["The", "monkey", "eats", "a", "banana"]
  signs = linearise([1, 2, 2, 4, 2], [1, 2, 4, 1, 3])
  assert signs.dtype == np.int32
  assert (
    shown(signs, words)
    == "(root (nsubj (det The ) monkey ) eats (obj (det a ) banana ) )"
  )
  # A word that nothing depends on needs no mark of where it stands.
  assert shown(signs) == "(root (nsubj (det ) ^ ) ^ (obj (det ) ^ ) )"
  head_W, relation_W = delinearise(skeleton(signs, heads=True))
  assert head_W.tolist() == [1, 2, 2, 4, 2]
  assert relation_W.tolist() == [1, 2, 4, 1, 3]


def test_symbol_indices_are_fixed():
  """They are in checkpoints."""
  fixed = ("<TR>", "<PA>", ")", "^", "(?")
  assert (*fixed, "(det", "(nsubj", "(obj", "(root") == NAMES
  assert (CLOSE, opening(0), opening(3)) == (-1, -2, -5)
  assert opening(opening(3)) == 3


def test_several_roots_and_an_unknown_label():
  signs = linearise([0, 0, 2], [4, 0, 4])
  assert shown(signs, "abc") == "(root a (? b ) ) (root c )"
  assert shown(signs) == "(root ^ (? ) ) (root )"
  assert delinearise(skeleton(signs, True))[0].tolist() == [0, 0, 2]


def test_words_of_crossing_edges_are_next_to_their_parents():
  # b depends on d over the root c; a depends on c: the order is a c b d.
  head_W, relation_W = [2, 3, 2, 2], [1, 2, 4, 3]
  signs = linearise(head_W, relation_W)
  assert shown(signs, "abcd") == "(root (det a ) c (obj (nsubj b ) d ) )"
  head, relation = delinearise(skeleton(signs, heads=True))
  order = [0, 2, 1, 3]  # words by place
  assert [order[h] for h in head] == [head_W[w] for w in order]
  assert relation.tolist() == [relation_W[w] for w in order]


def random_projective(rng, words):
  """Heads of a random tree without crossing arcs, or of several."""
  head_W = np.zeros(words, np.int64)

  def grow(low, high, parent):
    while low < high:  # one dependent's span after the other
      stop = int(rng.integers(low + 1, high + 1))
      word = int(rng.integers(low, stop))
      head_W[word] = word if parent is None else parent
      grow(low, word, word)
      grow(word + 1, stop, word)
      low = stop

  grow(0, words, None)
  return head_W


def test_projective_trees_round_trip():
  rng = np.random.default_rng(0)
  multiple = 0
  for _ in range(3000):
    words = int(rng.integers(0, 25))
    head_W = random_projective(rng, words)
    relation_W = rng.integers(0, 9, words)
    multiple += (head_W == np.arange(words)).sum() > 1
    signs = linearise(head_W, relation_W)
    assert signs[signs >= 0].tolist() == list(range(words))
    index = skeleton(signs, heads=True)
    has_dependents = set(head_W[head_W != np.arange(words)].tolist())
    assert len(index) == 2 * words + len(has_dependents)
    head, relation = delinearise(index)
    np.testing.assert_array_equal(head, head_W)
    np.testing.assert_array_equal(relation, relation_W)
  assert multiple > 500


def test_gold_trees_round_trip(shared_data):
  blocks = list(conllu.read(shared_data / "ud" / "en_pud.conllu.gz"))
  same = 0
  for block in blocks:
    relation_W = range(len(block.head_W))
    signs = linearise(block.head_W, relation_W)
    head, relation = delinearise(skeleton(signs, heads=True))
    in_order = relation.tolist() == list(relation_W)
    assert not in_order or head.tolist() == list(block.head_W)
    same += in_order
  assert len(blocks) == 1000 and same >= 950  # the others have crossing arcs


def test_deep_chain():
  words = 5000
  head, _ = delinearise(
    skeleton(linearise(control_trees.linear(words), [0] * words), heads=True)
  )
  np.testing.assert_array_equal(head, control_trees.linear(words))


def test_of_subwords_replaces_words():
  signs = linearise([1, 1, 1], [1, 4, 3])
  # Word 0 is subwords 0 and 1, word 1 has none, word 2 is subword 2; EOS.
  placed = of_subwords(signs, np.array([0, 0, 2, -1]))
  assert shown(placed, "xyz.") == "(root (det x y ) (obj z ) )"


def test_skeleton_of_constituents_has_no_head_marks():
  # (S (NP x y ) z ), labels 1 and 2
  signs = np.array([opening(2), opening(1), 0, 1, CLOSE, 2, CLOSE])
  names = symbols(["NP", "S"])
  assert " ".join(names[k] for k in skeleton(signs, heads=False)) == (
    "(S (NP ) )"
  )
