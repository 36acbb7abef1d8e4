"""What every part is: a frozen spec, a Linen module, a view of the sentence.

A part changes attention at one or more of five stages (`embed`, `project`,
`rescore`, `mix`, `adapt_output`), or what an encoder ends with (`encoded`);
each is the identity unless overridden. The story that calls them is
`jaxsyn.models.attention`; the table of parts is `jaxsyn.syntax.MODIFIERS`.

Letters: E eigenvector.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from jaxsyn.options import Choice, ConfigPath
from jaxsyn.shapes import agree


def gather_words(fact_BW: Array, index_BS: Array) -> Array:
  """An integer or truth value of each word asked for; 0 of a word below 0.

  out[b,s] = fact[b, index[b,s]]

  By comparison, which an accelerator does on the side where gathers stop it.
  """
  fact_BW, index_BS = jnp.asarray(fact_BW), jnp.asarray(index_BS)
  word_W = jnp.arange(fact_BW.shape[1])
  is_index_BSW = index_BS[:, :, None] == word_W
  if fact_BW.dtype == bool:
    return jnp.any(is_index_BSW & fact_BW[:, None, :], axis=2)
  fact_B1W = fact_BW[:, None, :]
  return jnp.sum(
    jnp.where(is_index_BSW, fact_B1W, 0), axis=2, dtype=fact_BW.dtype
  )


# An array, of a batch that carries it: what reads one says so in its
# `required_features`.
Feature = Any


@struct.dataclass
class SentenceFeatures:
  """What a part may know: one side's facts, and where attention stands.

  Facts come from the batch (`jaxsyn.data.schema` has them); those a batch does
  not carry are None. Indices are right-padded and count from 0.

  Attributes:
    real_BS: True for subwords, EOS included; False for pads.
    word_BS: word a subword belongs to; -1 for EOS and pads.
    head_BW: parent word of each word; a root is its own parent.
    relation_BW: dependency relation of each word.
    parent_mid_BS: middle of the parent word's subwords, in subwords.
    tree_distance_BWW: edges between two words; 254 saturated, 255 other tree.
    eigenvectors_BWE: of the tree's Laplacian (`jaxsyn.data.sentence.spectrum`).
    parsed_B: False where the parser failed; parts then do nothing, see
      `where_parsed`.
    weighting_BSS, weighting_BHSS: the caller's own syntax weighting matrix.
    annotations: what else is said of words, by name; see `annotation_BS`.
    position_Q: position of each query in its sentence.
    position_M: position of each remembered subword; when decoding, memory is
      the past of all beams, one after the other.
    inputs: inputs of this layer and of all before it, first layer first.
    told: what parts tell all layers of a place, by part: see
      `Modifier.make_shared_features`.
    full_context: a decoder shows its queries what stands after them too; only
      losses ask for that.
    train: dropout is on, and what parts do in training alone. It stands here,
      set where views are made, so that no layer forgets to hand it on.
  """

  real_BS: Array
  word_BS: Feature = None
  head_BW: Feature = None
  relation_BW: Feature = None
  parent_mid_BS: Feature = None
  tree_distance_BWW: Feature = None
  eigenvectors_BWE: Feature = None
  parsed_B: Feature = None
  weighting_BSS: Feature = None
  weighting_BHSS: Feature = None
  annotations: Mapping[str, Array] = struct.field(default_factory=dict)
  position_Q: Feature = None
  position_M: Feature = None
  inputs: tuple[Array, ...] = ()
  shared_features: Mapping[str, Array] = struct.field(default_factory=dict)
  full_context: bool = struct.field(pytree_node=False, default=False)
  train: bool = struct.field(pytree_node=False, default=False)

  @property
  def is_word_BS(self) -> Array:
    """True for subwords of words; False for EOS and pads."""
    return self.word_BS >= 0

  @property
  def tree_distance_BSS(self) -> Array:
    """Edges between the words of two subwords; 255 where one has no word."""
    return self.expand_pairs(self.tree_distance_BWW, 255)

  def expand_pairs(self, fact_BWW: Array, fill: int) -> Array:
    """An integer of each pair of words, for each pair of their subwords.

    Args:
      fact_BWW: from 0 to 255, or truth values, which become 0 and 1.
      fill: where one of the two has no word.

    Returns: fact_BSS, int32.
    """
    one_BSW = jax.nn.one_hot(self.word_BS, fact_BWW.shape[1])
    # Exact on every device: ones by integers below 256, which bfloat16 holds.
    fact_BSS = jnp.einsum(
      "BSW,BWX,BRX->BSR", one_BSW, fact_BWW.astype(jnp.float32), one_BSW
    )
    both_BSS = self.is_word_BS[:, :, None] & self.is_word_BS[:, None, :]
    return jnp.where(both_BSS, fact_BSS.astype(jnp.int32), fill)

  @property
  def depth_BW(self) -> Array:
    """Edges from each word to its root."""
    head_BW = self.head_BW
    index_BW = jnp.arange(head_BW.shape[1])[None, :]
    depth_BW = (head_BW != index_BW).astype(jnp.int32)
    # Pointer doubling: after k rounds, depth counts up to 2**k edges.
    for _ in range(max(1, (head_BW.shape[1] - 1).bit_length())):
      depth_BW = depth_BW + gather_words(depth_BW, head_BW)
      head_BW = gather_words(head_BW, head_BW)
    return depth_BW

  @property
  def depth_BS(self) -> Array:
    """Edges from a subword's word to its root; -1 where there is no word."""
    return self._expand_words(self.depth_BW, -1)

  @property
  def relation_BS(self) -> Array:
    """Relation of a subword's word to its parent; 0 where there is no word."""
    return self._expand_words(self.relation_BW, 0)

  def annotation_BS(self, name: str) -> Array:
    """An annotation of a subword's word; 0 where there is no word.

    Args:
      name: of `jaxsyn.data.annotations`, as the part's `required_features` have
        it.
    """
    return self._expand_words(self.annotations[name], 0)

  def where_parsed(self, new: Array, old: ArrayLike) -> Array:
    """`new` for sentences that have a tree, `old` for the others.

    Args:
      new, old: of the same shape, or broadcast to it; the first axis is B.
    """
    if self.parsed_B is None:
      return new
    parsed = self.parsed_B.reshape(-1, *[1] * (jnp.ndim(new) - 1)) != 0
    return jnp.where(parsed, new, old)

  def _expand_words(self, fact_BW: Array, fill: int) -> Array:
    return jnp.where(self.is_word_BS, gather_words(fact_BW, self.word_BS), fill)

  def with_positions(self) -> SentenceFeatures:
    """Where all positions ask and are remembered at once; checked."""
    position_S = jnp.arange(self.real_BS.shape[1])
    return dataclasses.replace(
      self, position_Q=position_S, position_M=position_S
    ).check()

  def check(self) -> SentenceFeatures:
    """Raises ValueError unless all facts agree in shape; returns itself."""
    names = [f.name for f in dataclasses.fields(self)]
    arrays = {n: getattr(self, n) for n in names if n[-1].isupper()}
    if self.tree_distance_BWW is not None:  # two axes of one letter
      agree(tree_distance_BWW=self.tree_distance_BWW)
    agree(**{n: a for n, a in arrays.items() if a is not None})
    return self


@dataclasses.dataclass(frozen=True)
class AttentionSite:
  """Where attention or a part sits, and what it needs to size its parameters."""

  stack: str  # "encoder", "decoder" or "cross"
  layer: int  # from 0; -1 at the embeddings
  heads: int  # H
  width: int  # D
  dtype: str  # of the computation
  relations: int = 0  # dependency relations of the side, numbered from 1
  # Labels of each annotation of the side, numbered from 1.
  labels: tuple[tuple[str, int], ...] = ()
  modifier: str = ""  # its name in the config, which is its address in `maps`

  @property
  def head_width(self) -> int:
    return self.width // self.heads

  def for_modifier(self, part: str) -> AttentionSite:
    """The same place, for the part of that name."""
    return dataclasses.replace(self, modifier=part)


class Modifier(nn.Module):
  """A part at one place. Override the stages it changes; set-up in `setup`.

  All stages must leave pads out of real words' business, work on each
  sentence alone, and in a decoder never look ahead; `tests/test_every_part`
  holds every part of the table to this.
  """

  spec: Any
  site: AttentionSite

  def embed(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    """What enters the first layer, before positions and dropout."""
    return x_BSD

  def encoded(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    """What the decoder looks at, after the last layer."""
    return x_BSD

  def make_shared_features(self, view: SentenceFeatures) -> Array:
    """What all layers of its place read in `features.shared_features`, made once for them.

    Asked of parts whose spec `is_shared`, of a module of their own at layer -1:
    what it learns is one for all layers.
    """
    raise NotImplementedError

  def project(
    self, q_BQHK: Array, k_BMHK: Array, view: SentenceFeatures
  ) -> tuple[Array, Array]:
    """Queries, already divided by √K, and keys."""
    return q_BQHK, k_BMHK

  def rescore(
    self,
    score_BHQM: Array,
    q_BQHK: Array,
    k_BMHK: Array,
    view: SentenceFeatures,
  ) -> Array:
    """Scores before the mask: no entry may be relied on to be hidden.

    They come in float32 whatever the dtype of queries and keys, and leave in
    it: a weight or bias rounded to bfloat16 moves them by up to 0.4 %.
    """
    return score_BHQM

  def mix(
    self, mixed_BQHK: Array, weight_BHQM: Array, view: SentenceFeatures
  ) -> Array:
    """The mixed values of each head, before the output projection."""
    return mixed_BQHK

  def adapt_output(
    self, out_BQD: Array, x_BQD: Array, view: SentenceFeatures
  ) -> Array:
    """What attention gives, before dropout and the sum.

    Args:
      out_BQD: that.
      x_BQD: what attention was given to ask with.
      view: facts.
    """
    return out_BQD


@dataclasses.dataclass(frozen=True)
class StackShape:
  """A place of a model with its sizes: what the options of a part must fit.

  Attributes:
    place: "encoder", "decoder" or "cross".
    layers: of the place.
    heads: H of each.
    width: D.
  """

  stack: str
  layers: int
  heads: int
  width: int


@dataclasses.dataclass(frozen=True)
class ModifierSpec(Choice):
  """What a config may say of a part. Subclasses add options and checks."""

  modifier: ClassVar[type[Modifier]]
  stacks: ClassVar[tuple[str, ...]] = ("encoder",)
  # Replaces the scores of its cells: two such parts clash where they share one.
  replaces: ClassVar[bool] = False
  supervised: ClassVar[bool] = False  # publishes a parse for a loss
  disabled_options: ClassVar[
    Mapping[str, Any]
  ] = {}  # options under which it does nothing
  # Options of what it is to a sentence without a tree; None: it leaves it alone.
  no_tree_options: ClassVar[Mapping[str, Any] | None] = None

  @property
  def embeds(self) -> bool:
    """Whether it sits at the embeddings, or the end, and not in layers."""
    return False

  @property
  def noise_free_options(self) -> Mapping[str, Any]:
    """Options under which it draws no noise in training; {}: it draws none."""
    return {}

  @property
  def is_shared(self) -> bool:
    """Whether its layers have one set of parameters: see `Modifier.make_shared_features`."""
    return False

  @property
  def additive(self) -> bool:
    """Whether it does with scores but add to them, and never reads weights.

    So it fits attention that makes neither (config.model.attention="fused").
    """
    part = self.modifier
    return part.rescore is Modifier.rescore and part.mix is Modifier.mix

  @property
  def required_features(self) -> tuple[str, ...]:
    """Facts of the view it reads."""
    return ()

  @property
  def train_only_features(self) -> tuple[str, ...]:
    """And those it reads there beyond them."""
    return ()

  @classmethod
  def fits(cls, field: str) -> bool:
    return field in cls.stacks

  def in_layer(self, layer: int) -> bool:
    """Whether the part works in a layer of its place, from 0."""
    return True

  def active_heads(self, layers: int, heads: int) -> set[tuple[int, int]]:
    """(layer, head) of all heads it works on, of a place of that size.

    Of a part that replaces dimensions of the embeddings: (-1, dimension).
    """
    return set(
      itertools.product(filter(self.in_layer, range(layers)), range(heads))
    )

  def is_active(self, stack_shape: StackShape) -> bool:
    """Whether it does anything at a place; else a model is made without it."""
    off = self.disabled_options and all(
      getattr(self, n) == v for n, v in self.disabled_options.items()
    )
    # A part at the embeddings has cells only where it replaces dimensions.
    is_used = self.embeds or self.active_heads(
      stack_shape.layers, stack_shape.heads
    )
    return bool(is_used) and not off

  def make(self, site: AttentionSite) -> Modifier:
    """The module of this part at one place."""
    return self.modifier(self, site)

  def reject_changed_options(
    self, at: ConfigPath, names: Iterable[str], why: str
  ) -> None:
    """Raises InputError for options that were set and do nothing.

    Args:
      at: where in the config they stand.
      names: of them.
      why: with what they do nothing.
    """
    for name in names:
      value, default = getattr(self, name), getattr(type(self), name)
      if value != default:
        raise (at / name).error(
          f"={value!r} does nothing with {why}; leave it at {default!r}."
        )

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    """Raises InputError where the options do not fit a place of the model.

    Args:
      at: where in the config they stand.
      stack_shape: the place.
    """
