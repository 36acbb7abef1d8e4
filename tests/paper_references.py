"""What the rows of the papers' tables compute: loops in float64.

Written from the papers and from words and heads alone: nothing here comes from
`jaxsyn`. A `Rule` says what one head of attention does with a pair of subwords;
a `Window` what one context of a recurrent decoder does with a step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

Params = Mapping  # nested names -> arrays
HIDDEN = -1e9


def sigmoid(x: float) -> float:
  return 1 / (1 + math.exp(-x))


def softmax(score_S: Sequence[float], seen: Sequence[int]) -> list[float]:
  """Over the positions seen; 0 elsewhere."""
  top = max(score_S[j] for j in seen)
  part = {j: math.exp(score_S[j] - top) for j in seen}
  return [part.get(j, 0.0) / sum(part.values()) for j in range(len(score_S))]


def dense(params: Params, x: np.ndarray) -> np.ndarray:
  out = x @ np.asarray(params["kernel"], float).reshape(len(x), -1)
  return out + np.ravel(np.asarray(params.get("bias", 0.0), float))


@dataclasses.dataclass(frozen=True)
class Sentence:
  """Words and their heads.

  Attributes:
    word: of each subword; -1 for EOS, the last one.
    head: of each word; a root is its own.
  """

  word: tuple[int, ...]
  head: tuple[int, ...]

  def path(self, word: int) -> list[int]:
    """A word, its parent, and so on up to the root."""
    path = [word]
    while self.head[path[-1]] != path[-1]:
      path.append(self.head[path[-1]])
    return path

  def depth(self, i: int) -> int:
    return len(self.path(self.word[i])) - 1

  def edges(self, i: int, j: int) -> int | None:
    """Between the words of two subwords; None: there is no path."""
    if i == j:
      return 0
    if -1 in (self.word[i], self.word[j]):
      return None
    one, other = self.path(self.word[i]), self.path(self.word[j])
    for up, word in enumerate(one):
      if word in other:
        return up + other.index(word)
    return None

  def subwords(self, word: int) -> list[int]:
    return [i for i, of in enumerate(self.word) if of == word]

  def parent_middle(self, i: int) -> float:
    """The mean of the places of the parent's subwords; EOS's own."""
    if self.word[i] < 0:
      return i
    parts = self.subwords(self.head[self.word[i]])
    return sum(parts) / len(parts)


@dataclasses.dataclass(frozen=True)
class Head:
  """What a rule is told: a sentence, its own queries and keys, its part."""

  sentence: Sentence
  q_SK: np.ndarray
  k_SK: np.ndarray
  part: Params
  number: int = 0  # among the heads of the part

  def plain(self, i: int, j: int) -> float:
    total = sum(a * b for a, b in zip(self.q_SK[i], self.k_SK[j]))
    return total / math.sqrt(len(self.q_SK[i]))


@dataclasses.dataclass(frozen=True)
class Plain:
  """Vaswani et al. 2017."""

  def score(self, head: Head, i: int, j: int) -> float:
    return head.plain(i, j)

  def value(self, head: Head, i: int, j: int):
    """What stands beside the value."""
    return 0.0


@dataclasses.dataclass(frozen=True)
class Parent(Plain):
  """PASCAL, section 3.2: times a normal density around the parent."""

  variance: float

  def score(self, head, i, j):
    offset = j - head.sentence.parent_middle(i)
    density = math.exp(-(offset**2) / (2 * self.variance))
    density /= math.sqrt(2 * math.pi * self.variance)
    return head.plain(i, j) * density


@dataclasses.dataclass(frozen=True)
class ParentOnly(Plain):
  """PASCAL, Table 7b: "weights are only placed on parents"."""

  def score(self, head, i, j):
    return head.plain(i, j) * (
      abs(j - head.sentence.parent_middle(i)) < 1  # one middle, or both
    )


@dataclasses.dataclass(frozen=True)
class Tree(Plain):
  """Deps-SAN, Eqs. 4 and 5.

  Attributes:
    sigma: standard deviation, in edges.
    within: Wink-Sparse: pairs of words more edges apart than these are "far",
      weight 0, or are "hidden".
    beyond: which of the two.
    counts: edges that every pair of words counts as, as if dropped by RS.
  """

  sigma: float
  within: int | None = None
  beyond: str = "far"
  counts: int | None = None

  def score(self, head, i, j):
    edges = head.sentence.edges(i, j)
    if edges is None:
      return 0.0
    if self.counts is not None and head.sentence.word[i] >= 0:
      edges = self.counts
    if self.within is not None and edges > self.within:
      return HIDDEN if self.beyond == "hidden" else 0.0
    density = math.exp(-(edges**2) / (2 * self.sigma**2))
    density /= self.sigma * math.sqrt(2 * math.pi)
    return head.plain(i, j) * density


@dataclasses.dataclass(frozen=True)
class Related(Plain):
  """Omote et al., Eqs. 12 to 16: vectors by clipped difference of depths.

  Attributes:
    label: "depth"; or "distance", signed by the order of the words.
    clip: l.
    keys, values: beside which of them.
  """

  label: str = "depth"
  clip: int = 2
  keys: bool = True
  values: bool = True

  def row(self, sentence: Sentence, i: int, j: int) -> int:
    if -1 in (sentence.word[i], sentence.word[j]):
      return 2 * self.clip + 1
    if self.label == "depth":
      far = sentence.depth(j) - sentence.depth(i)
    else:
      edges = sentence.edges(i, j)
      edges = self.clip if edges is None else edges  # two trees: far
      far = -edges if j < i else edges
    return max(-self.clip, min(self.clip, far)) + self.clip

  def score(self, head, i, j):
    score = head.plain(i, j)
    if self.keys:
      adjacent = head.part["key_LK"][self.row(head.sentence, i, j)]
      score += float(head.q_SK[i] @ adjacent) / math.sqrt(len(adjacent))
    return score

  def value(self, head, i, j):
    if not self.values:
      return 0.0
    return np.asarray(
      head.part["value_LK"][self.row(head.sentence, i, j)], float
    )


@dataclasses.dataclass(frozen=True)
class Sisa(Plain):
  """[leaky(q); 1] Θ leaky(k), as PASCAL's authors have it."""

  def form(self, x_K):
    return np.where(x_K > 0, x_K, 0.01 * x_K)

  def divisor(self, size: int) -> float:
    return 1.0

  def score(self, head, i, j):
    q, k = self.form(head.q_SK[i]), self.form(head.k_SK[j])
    matrix = np.asarray(head.part["bilinear_HKK"][head.number], float)
    single = np.asarray(head.part["bias_HK"][head.number], float)
    return float(q @ matrix @ k) / self.divisor(len(q)) + float(single @ k)


@dataclasses.dataclass(frozen=True)
class Dbsa(Sisa):
  """Deguchi et al. 2019, Eq. 4, and their code's term of the key."""

  def form(self, x_K):
    return x_K

  def divisor(self, size):
    return math.sqrt(size)


@dataclasses.dataclass(frozen=True)
class Step:
  """What a window is told of one step of one sentence."""

  sentence: Sentence
  score_S: list[float]
  query_G: np.ndarray
  part: Params
  examined: float  # mean position that the previous step attended to

  def position(self) -> float:
    """p = J · σ(vᵀ tanh(W s + b)), Chen et al. 2018, Eq. 5."""
    hidden = np.tanh(dense(self.part["position"]["hidden"], self.query_G))
    at = dense(self.part["position"]["position"], hidden)[0]
    return len(self.score_S) * sigmoid(at)


@dataclasses.dataclass(frozen=True)
class Whole:
  """Bahdanau et al. 2015.

  Attributes:
    name: of the window.
    own: it has annotations and an alignment of its own.
  """

  name: str = "global"
  own: bool = False

  def weights(self, step: Step) -> list[float]:
    return softmax(step.score_S, range(len(step.score_S)))


@dataclasses.dataclass(frozen=True)
class Local(Whole):
  """Luong et al. 2015, local-p, with D = 10 and σ = D / 2."""

  name: str = "local"

  def weights(self, step):
    p, reach = step.position(), 10
    seen = [
      j for j in range(len(step.score_S)) if abs(j - math.floor(p)) <= reach
    ]
    weight_S = softmax(step.score_S, seen)
    return [
      w * math.exp(-((j - p) ** 2) / (2 * (reach / 2) ** 2))
      for j, w in enumerate(weight_S)
    ]


@dataclasses.dataclass(frozen=True)
class Flexible(Whole):
  """Shu & Nakayama 2017: a penalty g (j - p)² / 2σ², σ = 1.5."""

  name: str = "flexible"

  def weights(self, step):
    hidden = np.tanh(dense(step.part["hidden"], step.query_G))
    strength = sigmoid(dense(step.part["strength"], hidden)[0])
    score_S = [
      e - strength * (j - step.examined) ** 2 / (2 * 1.5**2)
      for j, e in enumerate(step.score_S)
    ]
    return softmax(score_S, range(len(score_S)))


@dataclasses.dataclass(frozen=True)
class Sdatt(Whole):
  """Chen et al. 2018, Eqs. 9 to 12, with n = 4 and σ = n / 2."""

  name: str = "syntax"
  position: str = "interp"

  def edges(self, sentence: Sentence, i: int, j: int) -> int:
    """EOS depends on the root."""
    result = sentence.edges(i, j)
    if result is not None:
      return result
    up = [0 if sentence.word[x] < 0 else sentence.depth(x) + 1 for x in (i, j)]
    return sum(up)

  def weights(self, step):
    size, n = len(step.score_S), 4
    row = [
      [self.edges(step.sentence, i, j) for j in range(size)]
      for i in range(size)
    ]
    if self.position == "expected":
      even = softmax(step.score_S, range(size))
      mean = [
        sum(even[i] * row[i][j] for i in range(size)) for j in range(size)
      ]
      test, centre = mean, min(range(size), key=lambda j: mean[j])
    else:
      p = step.position()
      centre = min(math.floor(p), size - 1)
      mean = test = row[centre]
      if self.position == "interp":
        above, share = row[min(math.ceil(p), size - 1)], p - math.floor(p)
        mean = [(1 - share) * a + share * b for a, b in zip(mean, above)]
        test = test if share < 0.5 else above
    seen = [j for j in range(size) if test[j] <= n or j == centre]
    scaled = [
      e * math.exp(-(d**2) / (2 * (n / 2) ** 2))
      for e, d in zip(step.score_S, mean)
    ]
    return softmax(scaled, seen)


def alignment(params: Params, query_G, annotation_SE) -> list[float]:
  """e = vᵀ tanh(W s + U h + b) + c."""
  request = dense(params["query"], query_G)
  return [
    dense(params["score"], np.tanh(request + dense(params["key"], h)))[0]
    for h in annotation_SE
  ]


def normalised(params: Params, x_SD: np.ndarray) -> np.ndarray:
  """Layer normalisation."""
  out = []
  for x in x_SD:
    x = (x - x.mean()) / math.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)
    out.append(x * params["scale"] + params["bias"])
  return np.array(out)


def encoder_layer(
  params: Params,
  rules: Sequence[Plain],
  part: Params,
  sentence: Sentence,
  x_SD: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """A post-norm layer of the Transformer whose heads follow rules.

  Returns: scores and weights of all heads (HSS), and the layer's output (SD).
  """
  attention = params["attention"]
  score_HSS, weight_HSS, mixed_SHK = self_attention(
    attention, rules, part, sentence, x_SD, causal=False
  )
  out = np.array([dense(attention["output"], m.ravel()) for m in mixed_SHK])
  x_SD = normalised(params["around_attention"]["norm"], x_SD + out)
  feed = params["feed_forward"]
  out = [
    dense(feed["outer"], np.maximum(dense(feed["inner"], x), 0)) for x in x_SD
  ]
  x_SD = normalised(params["around_feed_forward"]["norm"], x_SD + np.array(out))
  return score_HSS, weight_HSS, x_SD


def self_attention(attention, rules, part, sentence, x_SD, *, causal: bool):
  """Scores and weights (HSS), and the mixed values (SHK)."""
  size, count = len(x_SD), 0
  q, k, v = (
    np.array([dense(attention[n], x).reshape(len(rules), -1) for x in x_SD])
    for n in ("query", "key", "value")
  )
  score_HSS = np.zeros((len(rules), size, size))
  weight_HSS, mixed_SHK = np.zeros_like(score_HSS), np.zeros_like(v)
  for h, rule in enumerate(rules):
    head = Head(sentence, q[:, h], k[:, h], part, count)
    count += rule != Plain()
    for i in range(size):
      seen = range(i + 1 if causal else size)
      for j in range(size):
        score_HSS[h, i, j] = rule.score(head, i, j)
      weight_HSS[h, i] = softmax(score_HSS[h, i], seen)
      for j in seen:
        value = v[j, h] + rule.value(head, i, j)
        mixed_SHK[i, h] += weight_HSS[h, i, j] * value
  return score_HSS, weight_HSS, mixed_SHK
