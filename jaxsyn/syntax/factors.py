"""What is said of a word, embedded and joined with its subwords.

Sennrich & Haddow 2016, "Linguistic Input Features Improve Neural Machine
Translation" (arXiv:1606.02892), section 3: x_j = [E_1 x_j1; ...; E_k x_jk], the
vectors of all features of a subword one after the other, as wide together as a
subword's alone was. Summed instead, as positions are: x_j = Σ_k E_k x_jk.

Letters: P of all factors' own dimensions.
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
from jaxsyn.syntax.labels import table_of
from jaxsyn.syntax.last_dimensions import last_cell, with_last
from jaxsyn.syntax.modifier import (
  AttentionSite,
  Modifier,
  ModifierSpec,
  SentenceFeatures,
  StackShape,
)

POSITIONS = 100  # words of a sentence with a label of their own in "position"


@dataclasses.dataclass(frozen=True)
class Factor(Choice):
  """A label of each subword, from 1; 0 where there is no word."""

  # Of the dimensions of all: of 500 a lemma has 115, a tag 10, the place in its
  # word 5 (Sennrich & Haddow, table 1, as we recall it).
  share: ClassVar[float] = 10 / 500
  required_features: ClassVar[str] = ""  # a fact of the view, beside words

  def count(self, site: AttentionSite) -> int:
    """Returns the number of labels."""
    raise NotImplementedError

  def label_BS(self, view: SentenceFeatures) -> Array:
    raise NotImplementedError


class RelationFactor(Factor):
  """The dependency relation of the subword's word."""

  required_features = "relation"

  def count(self, site: AttentionSite) -> int:
    return site.relations

  def label_BS(self, view: SentenceFeatures) -> Array:
    return view.relation_BS


class PositionFactor(Factor):
  """Which word of the sentence it is; those far behind share a label."""

  def count(self, site: AttentionSite) -> int:
    return POSITIONS

  def label_BS(self, view: SentenceFeatures) -> Array:
    return jnp.clip(view.word_BS + 1, 0, POSITIONS)


class SubwordFactor(Factor):
  """Where in its word: 1 all of it, 2 its begin, 3 within, 4 its end.

  Section 3 of the paper: O, B, I and E.
  """

  share = 5 / 500

  def count(self, site: AttentionSite) -> int:
    return 4

  def label_BS(self, view: SentenceFeatures) -> Array:
    word_BS = view.word_BS
    same_BS = word_BS[:, 1:] == word_BS[:, :-1]
    no_B1 = jnp.zeros_like(word_BS[:, :1], bool)
    after_BS = jnp.concatenate([no_B1, same_BS], axis=1)  # of the one before
    before_BS = jnp.concatenate([same_BS, no_B1], axis=1)
    inner_BS = jnp.where(before_BS, 3, 4)
    outer_BS = jnp.where(before_BS, 2, 1)
    label_BS = jnp.where(after_BS, inner_BS, outer_BS)
    return jnp.where(view.is_word_BS, label_BS, 0)


def _annotated(name: str) -> type[Factor]:
  """The factor of an annotation that has labels."""

  class Said(Factor):
    required_features = name
    share = 115 / 500 if name == "lemma" else Factor.share

    def count(self, site: AttentionSite) -> int:
      return dict(site.labels).get(name, 0)

    def label_BS(self, view: SentenceFeatures) -> Array:
      return view.annotation_BS(name)

  Said.__doc__ = ANNOTATIONS[name].__doc__
  return Said


FACTORS: Registry[Factor] = Registry(
  "factor",
  {
    **{
      name: _annotated(name)
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
    spec, site = self.spec, self.site
    for name, size in spec.sizes_in(site.width).items():
      labels = FACTORS[name]().count(site)
      setattr(self, name, table_of(labels, size, site))

  def embed(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    spec = self.spec
    vectors = [
      getattr(self, name)(FACTORS[name]().label_BS(view)) for name in spec.names
    ]
    vectors = [vector_BSP.astype(x_BSD.dtype) for vector_BSP in vectors]
    if spec.scale:
      vectors = [vector_BSP * self.site.width**0.5 for vector_BSP in vectors]
    if spec.join == "sum":
      return view.where_parsed(sum(vectors, x_BSD), x_BSD)
    return with_last(x_BSD, jnp.concatenate(vectors, axis=-1), view)


@dataclasses.dataclass(frozen=True)
class Factors(ModifierSpec):
  """Embeddings of annotations of a word, joined with those of its subwords.

  All subwords of a word bear the word's labels. EOS and pads have a
  label of their own in every factor; a sentence without a tree keeps its token
  embeddings whole. Positions and dropout come afterwards.
  """

  names: tuple[Annotated[str, RegistryKey(FACTORS)], ...] = option(
    ("upos", "feats", "lemma", "relation", "position", "subword"),
    "Factors of a word that are embedded: annotations with labels; "
    '"relation"; "position" of the word in the sentence; "subword", '
    "whether the subword is the complete word, its begin, its middle or "
    "its end. (): none.",
  )
  join: Literal["concatenate", "sum"] = option(
    "concatenate",
    'Combination with the token embedding: "concatenate", in its last '
    'dimensions, so that the width stays the same; "sum", with embeddings '
    "of the full width.",
  )
  scale: bool = option(
    True,
    "Whether factor embeddings are multiplied by √D, as token embeddings "
    "of the Transformer are; those of the recurrent model are not.",
  )

  modifier: ClassVar[type[Modifier]] = _Factors
  embeds: ClassVar[bool] = True
  replaces: ClassVar[bool] = True
  disabled_options: ClassVar[Mapping[str, Any]] = {"names": ()}

  @property
  def required_features(self) -> tuple[str, ...]:
    facts = (FACTORS[name].required_features for name in self.names)
    names_read = tuple(fact for fact in facts if fact)
    return names_read or ("word",) if self.names else ()

  def sizes_in(self, width: int) -> dict[str, int]:
    """The width of each factor's vectors, by name, where D is `width`."""
    if self.join == "sum":
      return dict.fromkeys(self.names, width)
    shares = (FACTORS[name].share for name in self.names)
    sizes = [max(1, round(share * width)) for share in shares]
    return dict(zip(self.names, sizes))

  def active_heads(self, layers: int, heads: int) -> set[tuple[int, int]]:
    return last_cell(len(self.names) if self.join == "concatenate" else 0)

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    if len({*self.names}) < len(self.names):
      raise (at / "names").error(f"={self.names} has one twice.")
    if self.join == "concatenate":
      total = sum(self.sizes_in(stack_shape.width).values())
      if total > stack_shape.width:
        raise (at / "names").error(
          f": {total} dimensions of the token embedding are wanted, of "
          f"config.model.width={stack_shape.width}."
        )
