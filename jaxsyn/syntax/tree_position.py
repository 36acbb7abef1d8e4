"""Encodings of word positions in the tree, added to the embeddings.

"path": Shiv & Quirk 2019, "Novel positional encodings to enable tree-based
transformers" (NeurIPS 2019, from memory), section 3: the branches taken from the
root, last one first, each a one-hot vector times a power of a learned decay p,
and all times √((1 - p²) D / 2). They convert trees to binary trees first (left
child, right sibling). Here a branch is the index of a child among its siblings
in sentence order, at most `branches` - 1. p is the sigmoid of a parameter and
starts between 0 and 1; the authors' library (icecaps, from memory) takes the
tanh of a parameter that starts near 0, so that p may be negative.

"laplacian": Dwivedi & Bresson 2021, "A Generalization of Transformer Networks to
Graphs" (arXiv:2012.09699, from memory), section 2.1: eigenvectors of the Laplacian,
projected to D, with random signs in training.

"depth": the number of edges to the root as a position, as in Wang et al. 2019,
"Self-Attention with Structural Position Representations" (arXiv:1909.00383,
from memory). How they combine it with the position in the sentence is not known to
us; here its sinusoids are added with the dimensions in reverse order.

Letters: E eigenvector; I level, from the word upwards; R branch; C decay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.arrays.sinusoids import sinusoids
from jaxsyn.data.schema import EIGENVECTORS
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.features import SentenceFeatures, gather_words
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier, ModifierSpec, StackShape


def branch_BW(head_BW: Array) -> Array:
  """Returns the index of each word among its parent's children; -1 for a root.

  Args:
    head_BW: Parent of each word; padding comes last.
  """
  index_W = jnp.arange(head_BW.shape[1])
  is_root_BW = head_BW == index_W
  is_sibling_BWW = head_BW[:, :, None] == head_BW[:, None, :]
  is_before_WW = index_W[None, :] < index_W[:, None]
  is_previous_BWW = is_sibling_BWW & is_before_WW & ~is_root_BW[:, None, :]
  branch_BW = jnp.sum(is_previous_BWW, axis=2, dtype=jnp.int32)
  return jnp.where(is_root_BW, -1, branch_BW)


def branches_BSI(features: SentenceFeatures, levels: int) -> Array:
  """Returns sibling indices on the path from each subword's word to the root.

  They are -1 from the root on, and where there is no word.

  Args:
    features: Features with `word_BS` and `head_BW`.
    levels: Number I of branches.
  """
  all_BW = branch_BW(features.head_BW)
  word_BS = features.word_BS
  branches = []
  for _ in range(levels):
    branch_BS = jnp.where(word_BS < 0, -1, gather_words(all_BW, word_BS))
    branches.append(branch_BS)
    parent_BS = gather_words(features.head_BW, word_BS)
    word_BS = jnp.where(word_BS < 0, -1, parent_BS)
  return jnp.stack(branches, axis=-1)


def _even_decays(key: Array, shape: tuple[int, ...]) -> Array:
  """Initializes the decay logits so that decays are evenly spaced in (0, 1)."""
  (copies,) = shape
  decay_C = jnp.arange(1, copies + 1) / (copies + 1)
  return jnp.log(decay_C) - jnp.log1p(-decay_C)


class _TreePosition(Modifier):
  def setup(self) -> None:
    spec, width = self.spec, self.site.width
    if spec.kind == "path":
      copies = width // (spec.branches * spec.levels)
      self.logit_C = self.param("logit_C", _even_decays, (copies,))
    if spec.kind == "laplacian":
      self.projection_ED = self.param(
        "projection_ED",
        nn.initializers.xavier_uniform(),
        (spec.eigenvectors, width),
      )

  def _path_BSD(self, features: SentenceFeatures) -> Array:
    spec: TreePosition = self.spec
    width = self.site.width
    branch_BSI = branches_BSI(features, spec.levels)
    clipped_BSI = jnp.minimum(branch_BSI, spec.branches - 1)
    one_BSIR = jax.nn.one_hot(clipped_BSI, spec.branches)  # -1: zeros
    decay_C1 = jax.nn.sigmoid(self.logit_C)[:, None]
    weight_CI = decay_C1 ** jnp.arange(spec.levels)
    # √(1 - p²) by logarithms, because its gradient is NaN where p rounds to 1.
    log_C1 = jax.nn.log_sigmoid(-self.logit_C)[:, None] + jnp.log1p(decay_C1)
    weight_CI *= jnp.exp(0.5 * log_C1) * (width / 2) ** 0.5
    code = one_BSIR[:, :, None] * weight_CI[:, :, None]  # BSCIR
    code_BSD = code.reshape(*code.shape[:2], -1)
    rest = width - code_BSD.shape[-1]
    return jnp.pad(code_BSD, ((0, 0), (0, 0), (0, rest)))

  def _laplacian_BSD(self, features: SentenceFeatures) -> Array:
    spec: TreePosition = self.spec
    vector_BWE = features.eigenvectors_BWE[..., : spec.eigenvectors]
    B, W, E = vector_BWE.shape
    if features.train and spec.flip:
      flips_B1E = jax.random.bernoulli(self.make_rng("syntax"), 0.5, (B, 1, E))
      vector_BWE = jnp.where(flips_B1E, -vector_BWE, vector_BWE)
    one_BSW = jax.nn.one_hot(features.word_BS, W)  # -1: zeros
    # A lookup, which a TPU would round.
    exact = jax.lax.Precision.HIGHEST
    vector_BSE = jnp.einsum(
      "BSW,BWE->BSE", one_BSW, vector_BWE, precision=exact
    )
    return jnp.einsum("BSE,ED->BSD", vector_BSE, self.projection_ED)

  def _depth_BSD(self, features: SentenceFeatures) -> Array:
    # In reverse order, because otherwise word 2 at depth 5 would have the same
    # sum as word 5 at depth 2.
    code_BSD = sinusoids(features.depth_BS, self.site.width)[..., ::-1]
    return jnp.where(features.is_word_BS[..., None], code_BSD, 0.0)

  def embed(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    encodings = {
      "path": self._path_BSD,
      "laplacian": self._laplacian_BSD,
      "depth": self._depth_BSD,
    }
    encode = encodings[self.spec.kind]
    code_BSD = features.where_parsed(encode(features), 0.0)
    size_BS1 = jnp.sum(code_BSD**2, axis=-1, keepdims=True)
    unit_BSD = code_BSD * jax.lax.rsqrt(size_BS1 + 1e-12)
    alike_BQM = jnp.einsum("BQD,BMD->BQM", unit_BSD, unit_BSD)
    publish(self, "alike_BQM", alike_BQM)
    return x_BSD + code_BSD.astype(x_BSD.dtype)


@dataclasses.dataclass(frozen=True)
class TreePosition(ModifierSpec):
  """Encoding of a word's position in the tree, added to its embedding.

  All subwords of a word have its code. EOS, padding and sentences without a tree
  have code 0, and so has the root with kind="path". Positions in the sentence and
  dropout are applied afterwards. The modifier publishes the cosine of the codes
  of two subwords.
  """

  kind: Literal["path", "laplacian", "depth", "none"] = option(
    "path",
    'Kind of tree position: "path", the branches from the word up to the '
    'root; "laplacian", eigenvectors of the tree; "depth", sinusoids of '
    'the number of edges to the root; "none", nothing is added.',
  )
  branches: Count = option(
    4,
    'Number of distinct child indices, with kind="path"; all later children '
    "share the last index.",
  )
  levels: Count = option(
    4,
    "Number of edges that are encoded, from the word up toward the root, with "
    'kind="path". There are D / (branches · levels) copies of the encoded '
    "path, each with its own decay; the remaining dimensions are 0.",
    unit="edges",
  )
  eigenvectors: Count = option(
    8,
    'With kind="laplacian": number of eigenvectors with the smallest '
    f"eigenvalues above 0; at most {EIGENVECTORS}. If a small tree has fewer, "
    "the missing vectors are 0.",
  )
  flip: bool = option(
    True,
    "Whether each eigenvector of a sentence has a random sign in "
    'training, with kind="laplacian".',
  )

  modifier: ClassVar[type[Modifier]] = _TreePosition
  disabled_options: ClassVar[Mapping[str, Any]] = {"kind": "none"}

  @property
  def required_features(self) -> tuple[str, ...]:
    return ("eigenvectors",) if self.kind == "laplacian" else ("head",)

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    options = {
      "path": ("branches", "levels"),
      "laplacian": ("eigenvectors", "flip"),
    }
    for kind, names in options.items():
      if self.kind not in (kind, "none"):
        self.reject_changed_options(at, names, f"kind={self.kind!r}")
    size = self.branches * self.levels
    if self.kind == "path" and size > stack_shape.width:
      raise (at / "levels").error(
        f"={self.levels}: branches · levels = {size} dimensions are more than "
        f"config.model.width={stack_shape.width}."
      )
    if self.kind == "laplacian" and self.eigenvectors > EIGENVECTORS:
      raise (at / "eigenvectors").error(
        f"={self.eigenvectors}: a batch has at most {EIGENVECTORS} of each tree."
      )
    if self.kind == "depth" and stack_shape.width % 2:
      raise (at / "kind").error(
        f"='depth': sinusoids need an even config.model.width, got {stack_shape.width}."
      )
