"""Features of trees, computed by loops over words from their definitions."""

import collections

import numpy as np

from jaxsyn.data.schema import FAR, OTHER_TREE


def path(head_W, word):
  """Returns a word and its ancestors up to the root; fails on a cycle."""
  result = [word]
  while head_W[result[-1]] != result[-1]:
    result.append(int(head_W[result[-1]]))
    assert len(result) <= len(head_W), f"a cycle: {head_W}"
  return result


def roots(head_W):
  return [word for word, parent in enumerate(head_W) if parent == word]


def distances(head_W) -> np.ndarray:
  """Returns distances by breadth-first search from every word."""
  words = len(head_W)
  neighbors = collections.defaultdict(set)
  for word, head in enumerate(head_W):
    if word != head:
      neighbors[word].add(head)
      neighbors[head].add(word)
  result = np.full((words, words), OTHER_TREE, np.uint8)
  for start in range(words):
    queue, seen = collections.deque([(start, 0)]), {start}
    while queue:
      word, steps = queue.popleft()
      result[start, word] = min(steps, FAR)
      for other in neighbors[word] - seen:
        seen.add(other)
        queue.append((other, steps + 1))
  return result


def parent_middles(word_S, head_W) -> list[np.float32]:
  """Returns the middle of the nearest ancestor with subwords, by subword.

  It is that of the word itself if it is a root or no ancestor has a subword.
  """
  places = [np.flatnonzero(np.equal(word_S, w)) for w in range(len(head_W))]
  middles = []
  for i, word in enumerate(word_S):
    words = [*path(head_W, word)[1:], word] if word >= 0 else []
    where = next((places[w] for w in words if len(places[w])), [i])
    middles.append(np.float32(np.mean(where)))
  return middles
