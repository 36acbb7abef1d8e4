"""The vectors of Chen et al. 2017, word by word."""

from __future__ import annotations

import math


def unit_by_loops(head_W, words, word, length):
  """Members of the unit of a word, among words that have subwords."""
  members, head = [], head_W[word]
  if head != word:
    members = [head]
    members += [w for w in words if w not in (word, head) and head_W[w] == head]
  members += [w for w in words if w != word and head_W[w] == word]
  return [w for w in members if w in words][:length]


def vector_by_loops(params, members, x_WD):
  """tanh of the largest, at each member, of a channel that sees its like.

  Args:
    params: of `Surroundings`.
    members: words of the unit.
    x_WD: word -> its embedding.
  """
  count, width, size = params["kernel"].shape
  out = []
  for channel in range(size):
    collected = []
    for place in range(max(1, len(members))):
      total = float(params["bias"][channel])
      for offset in range(count):
        at = place + offset - count // 2
        inside = 0 <= at < len(members)
        x_D = x_WD[members[at]] if inside else params["slash"]
        for d in range(width):
          total += float(x_D[d]) * float(params["kernel"][offset, d, channel])
      collected.append(total)
    out.append(math.tanh(max(collected)))
  return out
