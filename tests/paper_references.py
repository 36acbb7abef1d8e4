"""Attention heads and windows of the papers, by loops in float64.

They are written from the papers, for words and parents (`cases.Sentence`), and
use no code of jaxsyn. A subclass of `Plain` computes one attention head for a
pair of subwords, a subclass of `Whole` one context of a decoding step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from cases import Sentence

Params = Mapping  # nested names -> arrays


def sigmoid(x: float) -> float:
  return 1 / (1 + math.exp(-x))


def softmax(score_S: Sequence[float], visible: Sequence[int]) -> list[float]:
  """Weights of the visible positions; 0 elsewhere."""
  top = max(score_S[j] for j in visible)
  terms = {j: math.exp(score_S[j] - top) for j in visible}
  total = sum(terms.values())
  return [terms.get(j, 0.0) / total for j in range(len(score_S))]


def gaussian(distance: float, sigma: float) -> float:
  return math.exp(-(distance**2) / (2 * sigma**2))


def dense(params: Params, x: np.ndarray) -> np.ndarray:
  out = x @ np.asarray(params["kernel"], float).reshape(len(x), -1)
  return out + np.ravel(np.asarray(params.get("bias", 0.0), float))


@dataclasses.dataclass(frozen=True)
class Head:
  """One attention head on one sentence, with the parameters of its modifier."""

  sentence: Sentence
  score_SS: np.ndarray
  q_SK: np.ndarray  # not divided by √K
  k_SK: np.ndarray
  params: Params
  index: int = 0  # among the heads of the modifier


@dataclasses.dataclass(frozen=True)
class Plain:
  """Vaswani et al. 2017."""

  reads_tree: ClassVar[bool] = False

  def score(self, head: Head, i: int, j: int) -> float:
    return head.score_SS[i][j]

  def value(self, head: Head, i: int, j: int):
    """What is added to the value."""
    return 0.0


@dataclasses.dataclass(frozen=True)
class Weighted(Plain):
  """A Gaussian of a distance: a factor, a term, or its logarithm as a term."""

  sigma: float = 1.0
  apply: str = "multiply"
  normalise: str = "pdf"
  reads_tree: ClassVar[bool] = True

  def weighted(self, score, distance):
    exponent = -(distance**2) / (2 * self.sigma**2)
    constant = 1.0
    if self.normalise == "pdf":
      constant = 1 / (self.sigma * math.sqrt(2 * math.pi))
    weight = constant * math.exp(exponent)
    if self.apply == "add_log":
      return score + max(exponent, -1e9)
    return score * weight if self.apply == "multiply" else score + weight


@dataclasses.dataclass(frozen=True)
class Parent(Weighted):
  """PASCAL, section 3.2; Table 7b: "weights are only placed on parents"."""

  weighting: str = "gaussian"

  def score(self, head, i, j):
    offset, score = j - head.sentence.parent_middle(i), head.score_SS[i][j]
    if self.weighting == "gaussian":
      return self.weighted(score, offset)
    is_middle = abs(offset) < 1  # one, or both
    only = dataclasses.replace(self, normalise="peak1")
    return only.weighted(score, 0 if is_middle else math.inf)


@dataclasses.dataclass(frozen=True)
class Tree(Weighted):
  """Deps-SAN, Eqs. 4 and 5; σ is in edges."""

  def score(self, head, i, j):
    edges = head.sentence.edges(i, j)
    return self.weighted(
      head.score_SS[i][j], math.inf if edges is None else edges
    )


@dataclasses.dataclass(frozen=True)
class Dasa(Plain):
  """Chi et al. 2026, from the abstract, with our normalizations."""

  normalise: str
  apply: str
  strength: float
  reads_tree: ClassVar[bool] = True

  def nearness(self, sentence, i, j):
    word = sentence.word
    distance = sentence.word_edges(word[i], word[j])
    if distance is None:
      return 0.0
    if self.normalise == "inverse":
      return 1 / (1 + distance)
    rows = [word[i]] if self.normalise == "rows" else word
    edges = [sentence.word_edges(one, other) for one in rows for other in word]
    edges = [d for d in edges if d is not None]
    if self.normalise == "rows":
      return math.exp(-distance) / sum(math.exp(-d) for d in edges)
    return 1 - distance / max(1, *edges)

  def score(self, head, i, j):
    bias = self.strength * self.nearness(head.sentence, i, j)
    score = head.score_SS[i][j]
    return score * (1 + bias) if self.apply == "multiply" else score + bias


@dataclasses.dataclass(frozen=True)
class Path(Plain):
  """Ying et al. 2021, Eqs. 6 and 7, on paths of trees."""

  kind: str
  edges: bool
  clip: int
  max_edges: int
  reads_tree: ClassVar[bool] = True

  def score(self, head, i, j):
    sentence, bias_L = head.sentence, head.params["bias_LH"][:, head.index]
    score, words = head.score_SS[i][j], (sentence.word[i], sentence.word[j])
    if min(words) < 0:
      return score + bias_L[-1]
    path = sentence.steps(*words)
    if path is None:
      return score + bias_L[-2]
    up, down = path
    label = min(len(up) - 1 + len(down), self.clip)
    if self.kind == "steps":
      label = min(len(up) - 1, self.clip) * (self.clip + 1)
      label += min(len(down), self.clip)
    biases = []
    if self.edges:
      table_ER = head.params["edge_ERH"][..., head.index]
      relations = [sentence.relation[w] for w in up[:-1]]
      relations += [table_ER.shape[1] // 2 + sentence.relation[w] for w in down]
      relations = relations[: self.max_edges]
      biases = [table_ER[n, r] for n, r in enumerate(relations)]
    return score + bias_L[label] + sum(biases) / max(1, len(biases))


@dataclasses.dataclass(frozen=True)
class Localness(Plain):
  """Yang et al. 2018; 0.1 as in the authors' code."""

  window: str
  width: float = 10.0

  def score(self, head, i, j):
    n, length = head.index, len(head.q_SK)
    hidden = np.tanh(head.q_SK[i] @ head.params["hidden_HKK"][n])
    center = length * sigmoid(hidden @ head.params["centre_HK"][n])
    window = self.width
    if self.window == "layer":
      hidden = np.tanh(head.k_SK.mean(0) @ head.params["key_hidden_HKK"][n])
    if self.window != "fixed":
      window = length * sigmoid(hidden @ head.params["window_HK"][n]) + 0.1
    return head.score_SS[i][j] - (j - center) ** 2 / (2 * (window / 2) ** 2)


@dataclasses.dataclass(frozen=True)
class Related(Plain):
  """Shaw et al. 2018 with vectors by clipped distance, and subclasses.

  Attributes:
    clip: Maximum distance.
    keys, values: Whether vectors are added to keys and values.
  """

  clip: int = 2
  keys: bool = True
  values: bool = True

  def row(self, sentence: Sentence, i: int, j: int) -> int:
    return max(-self.clip, min(self.clip, j - i)) + self.clip

  def score(self, head, i, j):
    score = head.score_SS[i][j]
    if self.keys:
      key_K = head.params["key_LK"][self.row(head.sentence, i, j)]
      score += float(head.q_SK[i] @ key_K) / math.sqrt(len(key_K))
    return score

  def value(self, head, i, j):
    if not self.values:
      return 0.0
    row = self.row(head.sentence, i, j)
    return np.asarray(head.params["value_LK"][row], float)


@dataclasses.dataclass(frozen=True)
class TreeRelated(Related):
  """Omote et al., Eqs. 12 to 16: vectors by clipped difference of depths.

  Attributes:
    label: "depth"; or "distance", negative if the key comes first.
  """

  label: str = "depth"
  reads_tree: ClassVar[bool] = True

  def row(self, sentence, i, j):
    # Padding, which the softmax hides, counts as EOS.
    if j >= len(sentence.word) or -1 in (sentence.word[i], sentence.word[j]):
      return 2 * self.clip + 1
    if self.label == "depth":
      far = sentence.depth(j) - sentence.depth(i)
    else:
      edges = sentence.edges(i, j)
      edges = self.clip if edges is None else edges
      far = -edges if j < i else edges
    return super().row(sentence, 0, far)


@dataclasses.dataclass(frozen=True)
class Sisa(Plain):
  """[leaky(q); 1] Θ leaky(k), as in the code of PASCAL's authors."""

  def form(self, x_K):
    return np.where(x_K > 0, x_K, 0.01 * x_K)

  def divisor(self, size: int) -> float:
    return 1.0

  def score(self, head, i, j):
    q, k = self.form(head.q_SK[i]), self.form(head.k_SK[j])
    matrix = np.asarray(head.params["bilinear_HKK"][head.index], float)
    bias = np.asarray(head.params["bias_HK"][head.index], float)
    return float(q @ matrix @ k) / self.divisor(len(q)) + float(bias @ k)


@dataclasses.dataclass(frozen=True)
class Dbsa(Sisa):
  """Deguchi et al. 2019, Eq. 4, with the bias of their code."""

  def form(self, x_K):
    return x_K

  def divisor(self, size):
    return math.sqrt(size)


@dataclasses.dataclass(frozen=True)
class Step:
  """One step of a recurrent decoder on one sentence.

  Attributes:
    sentence: The source.
    score_S: Alignment scores.
    query_G: State of the decoder.
    params: Parameters of the window.
    attended: Mean position that the previous step attended to.
  """

  sentence: Sentence
  score_S: Sequence[float]
  query_G: np.ndarray
  params: Params
  attended: float = 0.0

  def position(self) -> float:
    """p = J · σ(vᵀ tanh(W s + b)), Chen et al. 2018, Eq. 5."""
    position = self.params["position"]
    hidden = np.tanh(dense(position["hidden"], self.query_G))
    return len(self.score_S) * sigmoid(dense(position["position"], hidden)[0])


@dataclasses.dataclass(frozen=True)
class Whole:
  """Bahdanau et al. 2015."""

  def weights(self, step: Step) -> list[float]:
    return softmax(step.score_S, range(len(step.score_S)))


@dataclasses.dataclass(frozen=True)
class Local(Whole):
  """Luong et al. 2015, local-p, with D = 10 and σ = D / 2."""

  reach: int = 10
  sigma: float = 5.0

  def weights(self, step):
    p, size = step.position(), len(step.score_S)
    near = [j for j in range(size) if abs(j - math.floor(p)) <= self.reach]
    weight_S = softmax(step.score_S, near)
    return [w * gaussian(j - p, self.sigma) for j, w in enumerate(weight_S)]


@dataclasses.dataclass(frozen=True)
class Flexible(Whole):
  """Shu & Nakayama 2017: a penalty g (j - p)² / 2σ², σ = 1.5, and span τ."""

  span: float = 0.0

  def penalties(self, step: Step) -> list[float]:
    hidden = np.tanh(dense(step.params["hidden"], step.query_G))
    strength = sigmoid(dense(step.params["strength"], hidden)[0])
    offsets = [j - step.attended for j in range(len(step.score_S))]
    return [strength * x**2 / (2 * 1.5**2) for x in offsets]

  def visible(self, step: Step) -> list[int]:
    nearest = math.floor(step.attended + 0.5)
    return [
      j
      for j, penalty in enumerate(self.penalties(step))
      if not self.span or penalty <= self.span or j == nearest
    ]

  def weights(self, step):
    penalties = self.penalties(step)
    score_S = [e - p for e, p in zip(step.score_S, penalties)]
    return softmax(score_S, self.visible(step))


@dataclasses.dataclass(frozen=True)
class Sdatt(Whole):
  """Chen et al. 2018, Eqs. 9 to 12, with n = 4 and σ = n / 2."""

  position: str = "interp"
  reach: int = 4
  sigma: float = 2.0
  apply: str = "multiply"

  def edges(self, sentence: Sentence, i: int, j: int) -> int:
    """Edges, where EOS is the parent of the roots."""
    edges = sentence.edges(i, j)
    if edges is not None:
      return edges
    return sum(
      0 if sentence.word[x] < 0 else sentence.depth(x) + 1 for x in (i, j)
    )

  def weights(self, step):
    size = len(step.score_S)
    rows = [
      [self.edges(step.sentence, i, j) for j in range(size)]
      for i in range(size)
    ]
    if self.position == "expected":
      weight_S = softmax(step.score_S, range(size))
      distance = limit = list(np.array(weight_S) @ np.array(rows))
      center = min(range(size), key=lambda j: distance[j])
    else:
      p = step.position()
      center = min(math.floor(p), size - 1)
      distance = limit = rows[center]
      if self.position == "interp":
        above, share = rows[min(math.ceil(p), size - 1)], p - math.floor(p)
        distance = [(1 - share) * a + share * b for a, b in zip(limit, above)]
        limit = limit if share < 0.5 else above
    visible = [j for j in range(size) if limit[j] <= self.reach or j == center]
    if self.apply == "multiply":
      scores = [
        e * gaussian(d, self.sigma) for e, d in zip(step.score_S, distance)
      ]
    else:
      scores = [
        e - d**2 / (2 * self.sigma**2) for e, d in zip(step.score_S, distance)
      ]
    return softmax(scores, visible)


def unit(head_W, words, word: int, length: int) -> list[int]:
  """Unit ⟨parent, siblings, children⟩ of Chen et al. 2017; [] for EOS.

  Args:
    head_W: Parent of each word.
    words: Words that have subwords.
    word: The word.
    length: Maximum number of members.
  """
  if word < 0:
    return []
  members, parent = [], head_W[word]
  if parent != word:
    members = [parent]
    members += [
      w for w in words if w not in (word, parent) and head_W[w] == parent
    ]
  members += [w for w in words if w != word and head_W[w] == word]
  return [w for w in members if w in words][:length]


def unit_vector(params: Params, members, x_WD) -> list[float]:
  """Vector V of Chen et al. 2017: tanh of the largest value of each channel.

  Args:
    params: Parameters of the convolution.
    members: Words of the unit.
    x_WD: Embedding of each word.
  """
  kernel_ODP = np.asarray(params["kernel"], float)
  padding = [params["slash"]] * (len(kernel_ODP) // 2)
  rows = [x_WD[word] for word in members] or [params["slash"]]
  rows = np.array([*padding, *rows, *padding], float)
  values = [
    sum(x_D @ matrix for x_D, matrix in zip(rows[at:], kernel_ODP))
    for at in range(max(1, len(members)))
  ]
  return np.tanh(np.max(values, axis=0) + np.asarray(params["bias"], float))


def normalised(params: Params, x_SD: np.ndarray) -> np.ndarray:
  """Layer normalization."""
  out = []
  for x in x_SD:
    x = (x - x.mean()) / math.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)
    out.append(x * params["scale"] + params["bias"])
  return np.array(out)


def encoder_layer(
  params: Params,
  heads: Sequence[Plain],
  modifier: Params,
  sentence: Sentence,
  x_SD: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """A post-norm Transformer layer: weights (HSS) and output (SD)."""
  attention = params["attention"]
  weight_HSS, mixed_SHK = self_attention(
    attention, heads, modifier, sentence, x_SD, causal=False
  )
  out = np.array([dense(attention["output"], m.ravel()) for m in mixed_SHK])
  x_SD = normalised(params["around_attention"]["norm"], x_SD + out)
  feed = params["feed_forward"]
  out = [
    dense(feed["outer"], np.maximum(dense(feed["inner"], x), 0)) for x in x_SD
  ]
  x_SD = normalised(params["around_feed_forward"]["norm"], x_SD + np.array(out))
  return weight_HSS, x_SD


def self_attention(attention, heads, modifier, sentence, x_SD, *, causal: bool):
  """Weights (HSS) and mixed values (SHK)."""
  size, count = len(x_SD), 0
  q, k, v = (
    np.array([dense(attention[n], x).reshape(len(heads), -1) for x in x_SD])
    for n in ("query", "key", "value")
  )
  weight_HSS, mixed_SHK = np.zeros((len(heads), size, size)), np.zeros_like(v)
  for h, rule in enumerate(heads):
    score_SS = q[:, h] @ k[:, h].T / math.sqrt(q.shape[2])
    head = Head(sentence, score_SS, q[:, h], k[:, h], modifier, count)
    count += rule != Plain()
    for i in range(size):
      visible = range(i + 1 if causal else size)
      scores = [rule.score(head, i, j) for j in range(size)]
      weight_HSS[h, i] = softmax(scores, visible)
      for j in visible:
        value = v[j, h] + rule.value(head, i, j)
        mixed_SHK[i, h] += weight_HSS[h, i, j] * value
  return weight_HSS, mixed_SHK
