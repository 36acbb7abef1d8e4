"""The contract between models and everything that uses them.

Nothing outside this room knows what kind of model it is. What options and parts
a family takes is said by `jaxsyn.models.spec.Architecture`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.schema import BOS, PAD
from jaxsyn.models.layers import Embedding
from jaxsyn.models.spec import ModelSpec
from jaxsyn.shapes import split
from jaxsyn.syntax import SentenceFeatures


class EncoderDecoder(nn.Module):
  """What a family is: its module, made from a `ModelSpec`.

  Training knows only `encode`, `decode` and `logits`; decoding only `encode` and
  the last four, and never looks into what is encoded or into a cache. But it moves
  sentences in them and gives caches more room: every array of both begins with
  the axis of sentences, and an axis that grows with T has its first output
  first and zeros where there is none. Whether dropout and noise of training are
  on is said by the views. The base has the embeddings.
  """

  spec: ModelSpec

  def encode(self, id_BS: Array, source: SentenceFeatures) -> Any:
    """Source subwords, and the facts about them, to what the decoder looks at."""
    raise NotImplementedError

  def decode(
    self, encoded: Any, input_BT: Array, target: SentenceFeatures
  ) -> Array:
    """What `logits` reads of every target position, given the true past (BTD).

    Args:
      encoded: of `encode`.
      input_BT: target subwords shifted right: BOS first.
      target: facts of the target side, of the positions of `input_BT`.
    """
    raise NotImplementedError

  def logits(self, state_BTD: Array) -> Array:
    """Of each target subword (logits_BTV): the output layer, as `decode` left it.

    Each position is for itself: training takes some at a time where those of
    all would fill the memory.
    """
    raise NotImplementedError

  def project_memory(self, encoded: Any) -> Any:
    """Adds what every decoding step needs again."""
    raise NotImplementedError

  def start(self, encoded: Any, beams: int, length: int) -> Any:
    """The cache of N hypotheses a sentence before their first subword.

    Args:
      encoded: of `remember`.
      beams: N.
      length: T, room for outputs.
    """
    raise NotImplementedError

  def advance(
    self, encoded: Any, cache: Any, token_BN: Array, at: Array
  ) -> tuple[Array, Any]:
    """Logits of the position after `token_BN` (logits_BNV), and the cache.

    Args:
      encoded: of `remember`.
      cache: of `start` or the step before.
      token_BN: the last subword of each hypothesis; BOS at position 0.
      at: position of that subword, a scalar: the search maps this method over
        sentences, each at a position of its own.
    """
    raise NotImplementedError

  def reorder(self, cache: Any, beam_BN: Array) -> Any:
    """The cache after each hypothesis was continued from a beam's.

    This one is of arrays that begin with the axes sentence, hypothesis.
    """
    return jax.tree.map(lambda x: gather_beams(x, beam_BN), cache)

  def setup(self) -> None:
    spec, model = self.spec, self.spec.model

    def table(size: int) -> Embedding:
      return Embedding(
        size,
        model.width,
        dtype=model.dtype,
        embedding_init=self._embedding_init(),
      )

    self.target_table = table(spec.target_vocabulary)
    if model.tie_embeddings:
      self.source_table = self.target_table
    else:
      self.source_table = table(spec.source_vocabulary)
    for name, part in spec.modifiers.modifiers_at_embeddings("encoder"):
      setattr(
        self,
        name,
        part.make(spec.attention_site("encoder", -1).for_modifier(name)),
      )
    for place in ("encoder", "decoder"):
      for name, part in spec.modifiers.shared_modifiers(place):
        of_all = part.make(spec.attention_site(place, -1).for_modifier(name))
        setattr(self, f"{place}_{name}", of_all)

  def _embedding_init(self) -> nn.initializers.Initializer:
    return nn.initializers.normal(self.spec.model.width**-0.5)

  def _embed(self, table: Embedding, id_BS: Array) -> Array:
    return table(id_BS)

  def _embed_source(self, id_BS: Array, view: SentenceFeatures) -> Array:
    """Embeddings as the parts that sit there leave them."""
    x_BSD = self._embed(self.source_table, id_BS)
    for name, _ in self.spec.modifiers.modifiers_at_embeddings("encoder"):
      x_BSD = getattr(self, name).embed(x_BSD, view)
    return x_BSD

  def _finish_encoding(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    """What the encoder ends with, as the parts that sit there leave it."""
    for name, _ in self.spec.modifiers.modifiers_at_embeddings("encoder"):
      x_BSD = getattr(self, name).encoded(x_BSD, view)
    return x_BSD

  def _with_shared_features(
    self, view: SentenceFeatures, place: str
  ) -> SentenceFeatures:
    """The view with what parts tell all layers of a place."""
    shared = {
      name: getattr(self, f"{place}_{name}").make_shared_features(view)
      for name, _ in self.spec.modifiers.shared_modifiers(place)
    }
    return dataclasses.replace(view, shared_features=shared)


def gather_beams(x: Array, where_BN: Array) -> Array:
  """Entries of the second axis, for each sentence its own: (B, N, ...)."""
  # By rows: 24 moves of 10 MB in a loop took 11.8 ms of processor time so, and
  # 14.6 by `take_along_axis`.
  B, N = x.shape[:2]
  row_BN = where_BN + N * jnp.arange(B)[:, None]
  rows = x.reshape(B * N, *x.shape[2:])
  return rows.at[row_BN].get(mode="promise_in_bounds")


def make(spec: ModelSpec) -> EncoderDecoder:
  """The module of the spec's family."""
  return spec.architecture.module(spec)


def sentence_features(
  batch: Mapping[str, Array], side: str
) -> SentenceFeatures:
  """The facts of one side of a batch.

  Args:
    batch: arrays named side_fact_LETTERS, as `jaxsyn.data.loader.loader` makes them.
    side: "source" or "target".
  """
  letter = "S" if side == "source" else "T"
  id_BS = batch[f"{side}_id_B{letter}"]
  facts: dict[str, Any] = {"real_BS": id_BS != PAD}
  # Arrays of SentenceFeatures bear their letters: tree_distance_BWW of the source is
  # source_tree_distance_BWW of the batch; parent_mid_BS of the target is
  # target_parent_mid_BT, as S is any side's own letter there.
  for field in dataclasses.fields(SentenceFeatures):
    if not field.name[-1].isupper() or field.name in facts:
      continue
    fact, letters = split(field.name)
    name = f"{side}_{fact}_{letters.replace('S', letter)}"
    if name in batch:
      facts[field.name] = batch[name]
  annotation_names = {name: f"{side}_{name}_BW" for name in ANNOTATIONS}
  annotations = {
    n: batch[key] for n, key in annotation_names.items() if key in batch
  }
  return SentenceFeatures(**facts, annotations=annotations)


def shift_right(id_BT: Array) -> Array:
  """The decoder's input: BOS first, the last subword dropped."""
  first_B1 = jnp.full_like(id_BT[:, :1], BOS)
  return jnp.concatenate([first_B1, id_BT[:, :-1]], axis=1)


def forward(
  model: EncoderDecoder, batch: Mapping[str, Array], *, train: bool
) -> Array:
  """logits_BTV of every target position, given the true past.

  Used as a method of a family: `model.apply(variables, batch, train=True,
  method=forward)`; it touches every parameter, so `init` uses it too.

  Args: as of `states`.
  """
  return model.logits(states(model, batch, train=train))


def states(
  model: EncoderDecoder,
  batch: Mapping[str, Array],
  *,
  train: bool,
  full_context: bool = False,
) -> Array:
  """state_BTD of every target position, which the model's `logits` reads.

  Used as `forward` is.

  Facts of the target side are told by the subword that a position predicts,
  while `real_BS` is of what it reads.

  Args:
    batch: see `jaxsyn.data.loader.loader`.
    train: dropout and training-only noise are on.
    full_context: the future is shown as well: for losses on attention.
  """
  source = dataclasses.replace(sentence_features(batch, "source"), train=train)
  encoded = model.encode(batch["source_id_BS"], source)
  # The decoder reads subwords one to the right of those it predicts.
  input_BT = shift_right(batch["target_id_BT"])
  target = dataclasses.replace(
    sentence_features(batch, "target"),
    real_BS=input_BT != PAD,
    full_context=full_context,
    train=train,
  )
  return model.decode(encoded, input_BT, target)
