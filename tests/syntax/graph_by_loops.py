"""A batch of trees that hurt, and walks on them, word by word in plain Python."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxsyn.data.sentence import tree as trees
from jaxsyn.syntax import AttentionSite, SentenceFeatures

# Of each: parent of each word, its relation (0: never seen in training), the word
# of each subword (-1: EOS), and whether it has a tree.
SENTENCES = [
  # "The monkey eats a ripe banana", "eats" and "banana" in two subwords.
  ([1, 2, 2, 5, 5, 2], [2, 3, 5, 2, 1, 4], [0, 1, 2, 2, 3, 4, 5, 5, -1], True),
  # Two trees in one sentence: of words 0 to 2, and of 3 to 5.
  ([1, 1, 1, 4, 4, 3], [3, 5, 4, 2, 5, 1], [0, 1, 2, 3, 4, 5, -1], True),
  # Eight words, of which five have a subword: a chain down with a branch.
  ([0, 0, 1, 2, 3, 4, 2, 0], [5, 1, 0, 3, 4, 1, 2, 3], [0, 2, 5, 6, 7, -1], True),
  ([0], [5], [0, -1], True),
  ([], [], [-1], True),
  ([1, 1, 1], [3, 5, 4], [0, 1, 2, 2, -1], False),
]  # fmt: skip
RELATIONS, HEADS = 5, 3
B = len(SENTENCES)
W = max(len(one[0]) for one in SENTENCES) + 1
S = max(len(one[2]) for one in SENTENCES) + 2
WHERE = AttentionSite(
  "encoder", 0, heads=HEADS, width=8 * HEADS, dtype="float32",
  relations=RELATIONS, modifier="it",
)  # fmt: skip


def view_of(sentences) -> SentenceFeatures:
  """The padded batch of sentences written as in `SENTENCES`."""
  B = len(sentences)
  W = max(len(one[0]) for one in sentences) + 1
  S = max(len(one[2]) for one in sentences) + 2
  filled = {
    "word_BS": np.full((B, S), -1),
    "head_BW": np.zeros((B, W), int),
    "relation_BW": np.zeros((B, W), int),
    "tree_distance_BWW": np.full((B, W, W), 255),
    "parent_mid_BS": np.zeros((B, S), np.float32),
    "real_BS": np.zeros((B, S), bool),
    "parsed_B": np.zeros(B, int),
  }
  for b, (head, relation, word, parsed) in enumerate(sentences):
    size, words = len(word), len(head)
    filled["word_BS"][b, :size] = word
    filled["real_BS"][b, :size] = True
    filled["head_BW"][b, :words] = head
    filled["relation_BW"][b, :words] = relation
    filled["parsed_B"][b] = parsed
    tree = np.asarray(head, int)
    filled["parent_mid_BS"][b, :size] = trees.parent_mid(np.array(word), tree)
    if words:
      distance = np.asarray(trees.tree_distance(tree))
      filled["tree_distance_BWW"][b, :words, :words] = distance
  facts = {name: jnp.asarray(array) for name, array in filled.items()}
  return SentenceFeatures(
    **facts, position_Q=jnp.arange(S), position_M=jnp.arange(S)
  )


VIEW = view_of(SENTENCES)


def chain(head, word):
  """The word, its parent, and so on up to its root."""
  result = [word]
  while head[word] != word:
    word = head[word]
    result.append(word)
  return result


def path(head, one, other):
  """Words up from `one` to the lowest common ancestor, and down to `other`.

  Returns: those up, the ancestor last; those down, `other` last. None: two trees.
  """
  up, down = chain(head, one), chain(head, other)
  common = next((word for word in up if word in down), None)
  if common is None:
    return None
  return (
    up[: up.index(common) + 1],
    down[: down.index(common)][::-1],
  )


def pairs():
  """(b, q, m, head, word of q, word of m) of all pairs of real subwords."""
  for b, (head, _, word, _) in enumerate(SENTENCES):
    for q in range(len(word)):
      for m in range(len(word)):
        yield b, q, m, head, word[q], word[m]


def parsed(b):
  return SENTENCES[b][3]


def real_pairs(array_BHQM):
  """A copy with zeros where one of the two is a pad."""
  real = np.asarray(VIEW.real_BS)
  both = real[:, None, :, None] & real[:, None, None, :]
  return np.where(both, np.asarray(array_BHQM), 0)
