"""Factors: embeddings of word annotations, joined with subword embeddings.

Sennrich & Haddow 2016, "Linguistic Input Features Improve Neural Machine
Translation" (arXiv:1606.02892), section 3: x_j = [E_1 x_j1; ...; E_k x_jk], the
concatenated vectors of all factors of a subword, together as wide as its vector
alone was. Alternatively their sum: x_j = Σ_k E_k x_jk.

Letters: P dimension of a factor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.options import (
  Choice,
  ConfigPath,
  Registry,
  RegistryKey,
  option,
)
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.last_dimensions import (
  LAST_DIMENSIONS,
  label_table,
  replace_last,
)
from jaxsyn.syntax.modifier import (
  AttentionSite,
  Modifier,
  ModifierSpec,
  StackShape,
)

POSITIONS = 100  # number of labels of "position"; later words share the last


@dataclasses.dataclass(frozen=True)
class Factor(Choice):
  """Base class of factors: kinds of subword labels, such as part of speech.

  Labels count from 1; a subword of no word has label 0.
  """

  # Share of the dimensions of an embedding: a lemma has 115 of 500, a tag 10,
  # the position in a word 5 (Sennrich & Haddow, Table 1, from memory).
  share: ClassVar[float] = 10 / 500
  # Feature that the factor reads in addition to words; "" for words only.
  required_feature: ClassVar[str] = ""

  def count(self, site: AttentionSite) -> int:
    """Returns the number of labels of the factor."""
    raise NotImplementedError

  def label_BS(self, features: SentenceFeatures) -> Array:
    """Returns the factor's label of each subword; 0 for EOS and padding."""
    raise NotImplementedError


class RelationFactor(Factor):
  """Factor: dependency relation between a subword's word and its parent."""

  required_feature = "relation"

  def count(self, site: AttentionSite) -> int:
    return site.relations

  def label_BS(self, features: SentenceFeatures) -> Array:
    return features.relation_BS


class PositionFactor(Factor):
  """Factor: position of a subword's word in the sentence."""

  def count(self, site: AttentionSite) -> int:
    return POSITIONS

  def label_BS(self, features: SentenceFeatures) -> Array:
    return jnp.clip(features.word_BS + 1, 0, POSITIONS)


class SubwordFactor(Factor):
  """Factor: a subword's position in its word (begin, middle, end or complete).

  The labels are 1 complete, 2 begin, 3 middle and 4 end. The paper, section 3,
  calls them O, B, I and E.
  """

  share = 5 / 500

  def count(self, site: AttentionSite) -> int:
    return 4

  def label_BS(self, features: SentenceFeatures) -> Array:
    word_BS = features.word_BS
    is_same_BS = word_BS[:, 1:] == word_BS[:, :-1]
    false_B1 = jnp.zeros_like(word_BS[:, :1], bool)
    has_previous_BS = jnp.concatenate([false_B1, is_same_BS], axis=1)
    has_next_BS = jnp.concatenate([is_same_BS, false_B1], axis=1)
    label_BS = jnp.where(
      has_previous_BS,
      jnp.where(has_next_BS, 3, 4),
      jnp.where(has_next_BS, 2, 1),
    )
    return jnp.where(features.is_word_BS, label_BS, 0)


def _annotation_factor(name: str) -> type[Factor]:
  """Creates a factor class for the labels of a word annotation."""

  class AnnotationFactor(Factor):
    required_feature = name
    share = 115 / 500 if name == "lemma" else Factor.share

    def count(self, site: AttentionSite) -> int:
      return dict(site.labels).get(name, 0)

    def label_BS(self, features: SentenceFeatures) -> Array:
      return features.annotation_BS(name)

  AnnotationFactor.__doc__ = ANNOTATIONS[name].__doc__
  return AnnotationFactor


FACTORS: Registry[Factor] = Registry(
  "factor",
  {
    **{
      name: _annotation_factor(name)
      for name, annotation in ANNOTATIONS.items()
      if annotation.labels or annotation.open
    },
    "relation": RelationFactor,
    "position": PositionFactor,
    "subword": SubwordFactor,
  },
)


class _Factors(Modifier):
  def setup(self) -> None:
    site = self.site
    for name, size in self.spec.sizes_in(site.width).items():
      labels = FACTORS[name]().count(site)
      setattr(self, name, label_table(labels, size, site))

  def embed(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    spec = self.spec
    vectors = []
    for name in spec.names:
      label_BS = FACTORS[name]().label_BS(features)
      vector_BSP = getattr(self, name)(label_BS).astype(x_BSD.dtype)
      if spec.scale:
        vector_BSP = vector_BSP * self.site.width**0.5
      vectors.append(vector_BSP)
    if spec.join == "sum":
      return features.where_parsed(sum(vectors, x_BSD), x_BSD)
    return replace_last(x_BSD, jnp.concatenate(vectors, axis=-1), features)


@dataclasses.dataclass(frozen=True)
class Factors(ModifierSpec):
  """Embeddings of word annotations, joined with the subword embeddings.

  All subwords of a word have the word's labels. EOS and padding have label 0 in
  every factor; a sentence without a tree keeps its token embeddings. Positions
  and dropout are applied afterwards.
  """

  names: tuple[Annotated[str, RegistryKey(FACTORS)], ...] = option(
    ("upos", "feats", "lemma", "relation", "position", "subword"),
    "Word factors to embed: annotations that have labels, such as upos; "
    '"relation"; "position" of the word in the sentence; "subword", whether '
    "the subword is a complete word, or the beginning, middle or end of one. "
    "(): none.",
  )
  join: Literal["concatenate", "sum"] = option(
    "concatenate",
    'How factors are combined with the token embedding: "concatenate", as its '
    'last dimensions, so that the width stays the same; "sum", added to it as '
    "embeddings of full width.",
  )
  scale: bool = option(
    True,
    "Whether factor embeddings are multiplied by √D. Token embeddings are "
    "multiplied by √D in the Transformer, but not in the recurrent model.",
  )

  modifier: ClassVar[type[Modifier]] = _Factors
  disabled_options: ClassVar[Mapping[str, Any]] = {"names": ()}

  @property
  def required_features(self) -> tuple[str, ...]:
    names = [FACTORS[name].required_feature for name in self.names]
    read = tuple(name for name in names if name)
    return read or ("word",) if self.names else ()

  def sizes_in(self, width: int) -> dict[str, int]:
    """Returns each factor's embedding width in a model of the given width."""
    if self.join == "sum":
      return dict.fromkeys(self.names, width)
    return {
      name: max(1, round(FACTORS[name].share * width)) for name in self.names
    }

  def exclusive_targets(self, stack_shape: StackShape) -> set[str]:
    replaces = self.names and self.join == "concatenate"
    return {LAST_DIMENSIONS} if replaces else set()

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    if len({*self.names}) < len(self.names):
      raise (at / "names").error(f"={self.names} has one twice.")
    if self.join == "concatenate":
      total = sum(self.sizes_in(stack_shape.width).values())
      if total > stack_shape.width:
        raise (at / "names").error(
          f": the factors need {total} dimensions of the embedding, but "
          f"config.model.width={stack_shape.width}."
        )
