"""Where a word stands in the tree, added to its embedding.

"path": Shiv & Quirk 2019, "Novel positional encodings to enable tree-based
transformers" (NeurIPS 2019), section 3: the stack of branches taken from the root,
the last one first, each a one-hot vector times a power of a learned decay p, and
all times √((1 - p²) D / 2). "laplacian": Dwivedi & Bresson 2021, "A Generalization
of Transformer Networks to Graphs" (arXiv:2012.09699), section 2.1: eigenvectors of
the Laplacian, projected to D; in training each has a sign that is drawn. Both are
recalled. "depth": edges to the root as a position, as the absolute structural position
of Wang et al. 2019, "Self-Attention with Structural Position Representations"
(arXiv:1909.00383, recalled). How they join it with the position in the sentence is not
known to us; here its sinusoids are added with the dimensions in reverse order.

Shiv & Quirk make binary trees of general ones first (left child, right sibling).
Here a branch is which child of its parent a word is, counted in the line, and all
from `branches` - 1 on are one. p is the sigmoid of a parameter, and begins between
0 and 1; in the authors' library (icecaps, recalled) it is the tanh of one that begins
near 0, so that it may be negative.

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

from jaxsyn.data.schema import EIGENVECTORS
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Count
from jaxsyn.sinusoids import sinusoids
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import (
  Modifier,
  ModifierSpec,
  SentenceFeatures,
  StackShape,
  gather_words,
)


def branch_BW(head_BW: Array) -> Array:
  """Which child of its parent each word is, from 0, in the line; a root: -1.

  Args:
    head_BW: words that are none come after all others.
  """
  index_W = jnp.arange(head_BW.shape[1])
  is_root_BW = head_BW == index_W
  siblings_BWW = head_BW[:, :, None] == head_BW[:, None, :]
  before_WW = index_W[None, :] < index_W[:, None]
  elder_BWW = siblings_BWW & before_WW & ~is_root_BW[:, None, :]
  elder_BW = jnp.sum(elder_BWW, axis=2, dtype=jnp.int32)
  return jnp.where(is_root_BW, -1, elder_BW)


def branches_BSI(view: SentenceFeatures, levels: int) -> Array:
  """The branches on the way from each subword's word up to its root.

  Args:
    view: with word_BS and head_BW.
    levels: I.

  Returns: int32; -1 from the root on, and where there is no word.
  """
  of_word_BW = branch_BW(view.head_BW)
  at_BS = view.word_BS
  branches = []
  for _ in range(levels):
    branches.append(jnp.where(at_BS < 0, -1, gather_words(of_word_BW, at_BS)))
    at_BS = jnp.where(at_BS < 0, -1, gather_words(view.head_BW, at_BS))
  return jnp.stack(branches, axis=-1)


def _spread(key: Array, shape: tuple[int, ...]) -> Array:
  """Logits of decays that are spread evenly over 0 to 1, ours."""
  (copies,) = shape
  decay_C = jnp.arange(1, copies + 1) / (copies + 1)
  return jnp.log(decay_C) - jnp.log1p(-decay_C)


class _TreePosition(Modifier):
  def setup(self) -> None:
    spec, width = self.spec, self.site.width
    if spec.kind == "path":
      copies = width // (spec.branches * spec.levels)
      self.logit_C = self.param("logit_C", _spread, (copies,))
    if spec.kind == "laplacian":
      self.projection_ED = self.param(
        "projection_ED",
        nn.initializers.xavier_uniform(),
        (spec.eigenvectors, width),
      )

  def _path_BSD(self, view: SentenceFeatures) -> Array:
    spec: TreePosition = self.spec
    width = self.site.width
    branch_BSI = branches_BSI(view, spec.levels)
    last_BSI = jnp.minimum(branch_BSI, spec.branches - 1)
    one_BSIR = jax.nn.one_hot(last_BSI, spec.branches)  # of -1: zeros
    decay_C1 = jax.nn.sigmoid(self.logit_C)[:, None]
    weight_CI = decay_C1 ** jnp.arange(spec.levels)
    # √(1 - p²) by logarithms: where p rounds to 1 its gradient would be NaN.
    log_C1 = jax.nn.log_sigmoid(-self.logit_C)[:, None] + jnp.log1p(decay_C1)
    weight_CI *= jnp.exp(0.5 * log_C1) * (width / 2) ** 0.5
    code = one_BSIR[:, :, None] * weight_CI[:, :, None]  # BSCIR
    code_BSD = code.reshape(*code.shape[:2], -1)
    rest = width - code_BSD.shape[-1]
    return jnp.pad(code_BSD, ((0, 0), (0, 0), (0, rest)))

  def _laplacian_BSD(self, view: SentenceFeatures) -> Array:
    spec: TreePosition = self.spec
    vector_BWE = view.eigenvectors_BWE[..., : spec.eigenvectors]
    B, W, E = vector_BWE.shape
    if view.train and spec.flip:
      flips_B1E = jax.random.bernoulli(self.make_rng("syntax"), 0.5, (B, 1, E))
      vector_BWE = jnp.where(flips_B1E, -vector_BWE, vector_BWE)
    one_BSW = jax.nn.one_hot(view.word_BS, W)  # of -1: zeros
    # On a TPU a product with ones would round, and single words are asked for.
    exact = jax.lax.Precision.HIGHEST
    vector_BSE = jnp.einsum(
      "BSW,BWE->BSE", one_BSW, vector_BWE, precision=exact
    )
    return jnp.einsum("BSE,ED->BSD", vector_BSE, self.projection_ED)

  def _depth_BSD(self, view: SentenceFeatures) -> Array:
    # Backwards: of the sum of two alike, word 2 at depth 5 is word 5 at depth 2.
    place_BSD = sinusoids(view.depth_BS, self.site.width)[..., ::-1]
    return jnp.where(view.is_word_BS[..., None], place_BSD, 0.0)

  def embed(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    kinds = {
      "path": self._path_BSD,
      "laplacian": self._laplacian_BSD,
      "depth": self._depth_BSD,
    }
    code_BSD = view.where_parsed(kinds[self.spec.kind](view), 0.0)
    size_BS1 = jnp.sum(code_BSD**2, axis=-1, keepdims=True)
    unit_BSD = code_BSD * jax.lax.rsqrt(size_BS1 + 1e-12)
    alike_BQM = jnp.einsum("BQD,BMD->BQM", unit_BSD, unit_BSD)
    publish(self, "alike_BQM", alike_BQM)
    return x_BSD + code_BSD.astype(x_BSD.dtype)


@dataclasses.dataclass(frozen=True)
class TreePosition(ModifierSpec):
  """Tree position that is added to embeddings: x + code.

  All subwords of a word have its vector; EOS and pads have none, and
  neither has a sentence without a tree. Positions in the line, and dropout, come
  afterwards. The root has the vector 0 of "path". Published beside it is the
  cosine of two subwords' vectors.
  """

  kind: Literal["path", "laplacian", "depth", "none"] = option(
    "path",
    'Kind of tree position: "path", the branches from the word up to the '
    'root; "laplacian", eigenvectors of the tree; "depth", sinusoids of '
    'the number of edges to the root; "none", nothing is added.',
  )
  branches: Count = option(
    4,
    "Number of children of a word that have different codes, the first "
    'ones, with kind="path".',
  )
  levels: Count = option(
    4,
    "Number of branches that are encoded, from the word upwards, with "
    'kind="path". There are D / (branches · levels) copies, each with its '
    "own decay; remaining dimensions are 0.",
    unit="edges",
  )
  eigenvectors: Count = option(
    8,
    "Number of eigenvectors, those of the smallest eigenvalues above 0, "
    f'at most {EIGENVECTORS}, with kind="laplacian". Missing ones of a '
    "small tree are 0.",
  )
  flip: bool = option(
    True,
    "Whether each eigenvector of a sentence has a random sign in "
    'training, with kind="laplacian".',
  )

  modifier: ClassVar[type[Modifier]] = _TreePosition
  embeds: ClassVar[bool] = True
  disabled_options: ClassVar[Mapping[str, Any]] = {"kind": "none"}

  @property
  def required_features(self) -> tuple[str, ...]:
    return ("eigenvectors",) if self.kind == "laplacian" else ("head",)

  @property
  def noise_free_options(self) -> Mapping[str, Any]:
    return {"flip": False} if self.kind == "laplacian" else {}

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    own_options = {
      "path": ("branches", "levels"),
      "laplacian": ("eigenvectors", "flip"),
    }
    for kind, names in own_options.items():
      if self.kind not in (kind, "none"):
        self.reject_changed_options(at, names, f"kind={self.kind!r}")
    one = self.branches * self.levels
    if self.kind == "path" and one > stack_shape.width:
      raise (at / "levels").error(
        f"={self.levels}: branches · levels = {one} dimensions are wanted, of "
        f"config.model.width={stack_shape.width}."
      )
    if self.kind == "laplacian" and self.eigenvectors > EIGENVECTORS:
      raise (at / "eigenvectors").error(
        f"={self.eigenvectors}: a batch has {EIGENVECTORS} of each tree; take "
        "so many or fewer."
      )
    if self.kind == "depth" and stack_shape.width % 2:
      raise (at / "kind").error(
        f"='depth': sinusoids need an even config.model.width, got {stack_shape.width}."
      )
