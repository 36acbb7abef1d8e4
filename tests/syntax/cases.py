"""Difficult sentences, single stages of modifiers, and loops over trees.

References are loops in float64 over `Sentence`, which uses no code of jaxsyn.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.testing import assert_allclose

from jaxsyn.data.sentence import tree as trees
from jaxsyn.data.sentence.spectrum import eigenvectors
from jaxsyn.syntax import AttentionSite, SentenceFeatures


@dataclasses.dataclass(frozen=True)
class Sentence:
  """Words and their parents.

  Attributes:
    word: Word of each subword; -1 for EOS, the last one.
    head: Parent of each word; a root is its own parent.
    relation: Relation of each word; 0: not in the training data.
    parsed: Whether there is a tree.
  """

  word: tuple[int, ...]
  head: tuple[int, ...]
  relation: tuple[int, ...] = ()
  parsed: bool = True

  def path(self, word: int) -> list[int]:
    """The word, its parent, and so on up to the root."""
    path = [word]
    while self.head[path[-1]] != path[-1]:
      path.append(self.head[path[-1]])
    return path

  def steps(self, one: int, other: int) -> tuple[list[int], list[int]] | None:
    """Words up from `one` to the lowest common ancestor; those down from it."""
    up, down = self.path(one), self.path(other)
    common = next((word for word in up if word in down), None)
    if common is None:
      return None
    return up[: up.index(common) + 1], down[: down.index(common)][::-1]

  def word_edges(self, one: int, other: int) -> int | None:
    """Edges between two words; None: without a path, or one is no word."""
    steps = self.steps(one, other) if min(one, other) >= 0 else None
    return None if steps is None else len(steps[0]) - 1 + len(steps[1])

  def edges(self, i: int, j: int) -> int | None:
    """Edges between the words of two subwords; 0 from EOS to itself."""
    return 0 if i == j else self.word_edges(self.word[i], self.word[j])

  def depth(self, i: int) -> int:
    """Edges from a subword's word to its root; -1 for no word."""
    return len(self.path(self.word[i])) - 1 if self.word[i] >= 0 else -1

  def subwords(self, word: int) -> list[int]:
    return [i for i, one in enumerate(self.word) if one == word]

  def ancestors(self, word: int) -> list[int]:
    """Ancestors that have subwords, nearest first."""
    return [one for one in self.path(word)[1:] if one in self.word]

  def children(self, word: int) -> list[int]:
    return [w for w, parent in enumerate(self.head) if parent == word != w]

  def parent_middle(self, i: int) -> float:
    """Mean position of the parent's subwords; its own position for EOS."""
    word = self.word[i]
    if word < 0:
      return i
    positions = self.subwords((self.ancestors(word) or [word])[0])
    return sum(positions) / len(positions)


SENTENCES = (
  # "The monkey eats a ripe banana", "eats" and "banana" in two subwords.
  Sentence(
    (0, 1, 2, 2, 3, 4, 5, 5, -1), (1, 2, 2, 5, 5, 2), (2, 3, 5, 2, 1, 4)
  ),
  # Two trees: words 0 to 2, and 3 to 5.
  Sentence((0, 1, 2, 3, 4, 5, -1), (1, 1, 1, 4, 4, 3), (3, 5, 4, 2, 5, 1)),
  # Five of eight words have subwords; a long chain with a branch.
  Sentence(
    (0, 2, 5, 6, 7, -1), (0, 0, 1, 2, 3, 4, 2, 0), (5, 1, 0, 3, 4, 1, 2, 3)
  ),
  Sentence((0, -1), (0,), (5,)),
  Sentence((-1,), ()),
  Sentence((0, 1, 2, 2, -1), (1, 1, 1), (3, 5, 4), parsed=False),
)
RELATIONS, HEADS, K = 5, 3, 8
SITE = AttentionSite(
  "encoder",
  0,
  heads=HEADS,
  width=HEADS * K,
  dtype="float32",
  relations=RELATIONS,
  modifier="it",
)


def features_of(sentences, **more) -> SentenceFeatures:
  """The padded batch of sentences."""
  B = len(sentences)
  W = max(len(one.head) for one in sentences) + 1
  S = max(len(one.word) for one in sentences) + 2
  arrays = {
    "word_BS": np.full((B, S), -1),
    "head_BW": np.zeros((B, W), int),
    "relation_BW": np.zeros((B, W), int),
    "tree_distance_BWW": np.full((B, W, W), 255),
    "parent_mid_BS": np.zeros((B, S), np.float32),
    "real_BS": np.zeros((B, S), bool),
    "parsed_B": np.array([one.parsed for one in sentences], int),
    "eigenvectors_BWE": np.zeros((B, W, 16), np.float32),
  }
  for b, one in enumerate(sentences):
    size, words = len(one.word), len(one.head)
    word_S, head_W = np.array(one.word), np.array(one.head, int)
    arrays["word_BS"][b, :size] = word_S
    arrays["real_BS"][b, :size] = True
    arrays["head_BW"][b, :words] = head_W
    arrays["relation_BW"][b, : len(one.relation)] = one.relation
    arrays["parent_mid_BS"][b, :size] = trees.parent_mid(word_S, head_W)
    if words:
      distance_WW = trees.tree_distance(head_W)
      arrays["tree_distance_BWW"][b, :words, :words] = distance_WW
      (vectors_WE,) = eigenvectors([head_W])
      arrays["eigenvectors_BWE"][b, : len(vectors_WE)] = vectors_WE
  arrays |= {"position_Q": np.arange(S), "position_M": np.arange(S)}
  arrays = {name: jnp.asarray(array) for name, array in arrays.items()}
  return SentenceFeatures(**arrays | more)


FEATURES = features_of(SENTENCES)
B, S = FEATURES.real_BS.shape
WORDS = FEATURES.head_BW.shape[1]
RNG = np.random.default_rng(0)


def normal(*shape) -> np.ndarray:
  return RNG.normal(size=shape).astype(np.float32)


SCORE = normal(B, HEADS, S, S)
QUERY, KEY = normal(B, S, HEADS, K), normal(B, S, HEADS, K)


TREE_FEATURES = {
  "head": "head_BW",
  "relation": "relation_BW",
  "parent_mid": "parent_mid_BS",
  "tree_distance": "tree_distance_BWW",
  "eigenvectors": "eigenvectors_BWE",
}


def declared(spec, features: SentenceFeatures) -> SentenceFeatures:
  """The features without those that a modifier does not declare."""
  names, labels = spec.required_features, features.annotations
  hidden = [field for n, field in TREE_FEATURES.items() if n not in names]
  return features.replace(
    annotations={n: labels[n] for n in labels if n in names},
    **dict.fromkeys(hidden),
  )


def run(spec, stage, *inputs, params=None, site=SITE, key=0, **options):
  """The result of one stage of a modifier, for the features it declares."""
  inputs = [
    declared(spec, x) if isinstance(x, SentenceFeatures) else x for x in inputs
  ]
  params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params or {})
  return spec.make(site).apply(
    {"params": params},
    *inputs,
    method=stage,
    rngs={"syntax": jax.random.key(key)},
    **options,
  )


def rescore(spec, score=SCORE, features=FEATURES, q=QUERY, k=KEY, **options):
  """Scores after a modifier; its shared features are computed first.

  Args:
    spec: Options of the modifier.
    score: Scores before.
    features: Features of the sentences.
    q, k: Queries, divided by √K, and keys.
    **options: See `run`.
  """
  features = features.replace(
    query_BQHK=jnp.asarray(q), key_BMHK=jnp.asarray(k)
  )
  if spec.is_shared:
    site = options.get("site", SITE)
    shared = run(
      spec,
      "make_shared_features",
      features,
      **options | {"site": dataclasses.replace(site, layer=-1)},
    )
    features = features.replace(shared_features={site.modifier: shared})
    options["params"] = {}
  return run(spec, "rescore", jnp.asarray(score), features, **options)


def random_params(spec, stage, *inputs, site=SITE, scale=0.5, seed=0):
  """Random parameters of a modifier, biases included."""
  module, rng = spec.make(site), np.random.default_rng(seed)
  shapes = jax.eval_shape(
    lambda: module.init(jax.random.key(0), *inputs, method=stage)
  )
  return jax.tree.map(
    lambda x: rng.normal(0, scale, x.shape).astype(np.float32),
    shapes.get("params", {}),
  )


def heads_of(spec) -> range | tuple[int, ...]:
  return range(HEADS) if spec.heads is None else spec.heads


def expected_scores(spec, score_of, no_tree: bool = False) -> np.ndarray:
  """Scores by loops over heads and pairs, zeros at padding.

  Args:
    spec: Options of the modifier.
    score_of: Function of old score, sentence, index among the selected heads,
      query and key.
    no_tree: Whether scores of sentences without a tree change too.
  """
  out = np.array(SCORE, np.float64)
  for b, one in enumerate(SENTENCES):
    for i, h in enumerate(heads_of(spec)):
      for q, m in np.ndindex(len(one.word), len(one.word)):
        if one.parsed or no_tree:
          out[b, h, q, m] = score_of(out[b, h, q, m], one, i, q, m)
  return real_pairs(out)


def real_pairs(array_BHQM) -> np.ndarray:
  """A copy with zeros where the query or key is padding."""
  real = np.asarray(FEATURES.real_BS)
  both = real[:, None, :, None] & real[:, None, None, :]
  return np.where(both, np.asarray(array_BHQM), 0)


def real_subwords(x_BSD, features=FEATURES) -> np.ndarray:
  """A copy with zeros at padding."""
  return np.where(np.asarray(features.real_BS)[..., None], np.asarray(x_BSD), 0)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


# At this step, rounding in float32 and the truncation error of the series are
# both near 1e-4 for losses around 1.
STEP = 1e-2


def check_gradients(loss, params, atol: float = 1e-3) -> None:
  """Compares gradients with central differences; each leaf must have some."""
  flat, unravel = ravel_pytree(params)

  def flat_loss(flat):
    return loss(unravel(flat))

  steps = STEP * jnp.eye(flat.size)
  up, down, gradient = jax.jit(
    lambda: (
      jax.vmap(flat_loss)(flat + steps),
      jax.vmap(flat_loss)(flat - steps),
      jax.grad(flat_loss)(flat),
    )
  )()
  assert_allclose(gradient, (up - down) / (2 * STEP), atol=atol)
  for leaf in jax.tree.leaves(unravel(gradient)):
    assert np.abs(leaf).max() > 5 * atol
