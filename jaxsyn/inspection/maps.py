"""Runs a model on sentences and collects its attention and modifier outputs.

Attention and modifiers expose arrays with an address, see `jaxsyn.syntax.maps`.
The model runs in evaluation mode on batches of a few static shapes; each array is
then cut to its sentence.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from jaxsyn.arrays.shapes import split
from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.loader.collate import (
  BatchTransform,
  apply_batch_transform,
  pad,
  words_of,
)
from jaxsyn.data.schema import PAD
from jaxsyn.models.contract import EncoderDecoder, forward, sentence_features
from jaxsyn.syntax.maps import COLLECTION, Address, Maps
from jaxsyn.utils import progress

SHORTEST = 16  # padded lengths double: 16, 32, 64, ...
ROWS = 8  # sentences per batch, fewer where they are long
SIDES = {
  "encoder": ("source", "source"),
  "decoder": ("target", "target"),
  "cross": ("target", "source"),
}
# Letters of an array between two subwords, per head or shared by all heads.
BETWEEN_SUBWORDS = re.compile("B[H1]?[QST1][MST1]")


@dataclasses.dataclass(frozen=True)
class Map:
  """Attention or modifier output of one sentence, without padding.

  Attributes:
    place, layer, part: See `jaxsyn.syntax.maps.Address`.
    kind: "weight" (of attention), "weighting" (factor of the scores), "bias"
      (added to the scores), "near" (1 where attention is allowed), "turned" (what
      a rotation leaves of the product of two equal vectors), "alike" (cosine of
      vectors added to the embeddings), "parse" (probability of being the parent,
      from a supervised head), or another name chosen by the modifier.
    heads: Attention heads that it applies to, from 0; at embeddings, all.
    value_HQM: One matrix per entry of `heads`.
    parts: Names of the modifiers that are active on each of `heads`.
    rows, columns: Labels, set by `jaxsyn.inspection.inspector`: words of pooled
      attention, or subwords; EOS last. In decoder and cross-attention, a row is
      the word being predicted.
  """

  place: str
  layer: int
  part: str
  kind: str
  heads: tuple[int, ...]
  value_HQM: np.ndarray
  parts: tuple[tuple[str, ...], ...]
  rows: tuple[str, ...] = ()
  columns: tuple[str, ...] = ()

  @property
  def is_attention(self) -> bool:
    """Whether the values are attention weights."""
    return self.kind == "weight"

  @property
  def is_one(self) -> bool:
    """Whether the matrices of all heads are equal."""
    return bool((self.value_HQM == self.value_HQM[:1]).all())


class MapReader:
  """Function that computes attention maps and modifier outputs of sentences."""

  def __init__(
    self,
    model: EncoderDecoder,
    names: Sequence[str],
    *,
    batch_transform: BatchTransform | None = None,
  ):
    """Prepares a copy of the model that exposes its attention weights.

    Args:
      model: The model; parameters are arguments of each call.
      names: Features of the source side that the model reads.
      batch_transform: User-defined function of every host batch.
    """
    # Fused attention exposes no weights; the model is otherwise the same.
    einsum = dataclasses.replace(model.spec.model, attention="einsum")
    model = model.clone(spec=dataclasses.replace(model.spec, model=einsum))
    self._architecture = model.spec.architecture
    self._modifiers = model.spec.modifiers
    self._batch_transform = batch_transform
    self._names = tuple(dict.fromkeys(("source_id", *names)))
    self._counter = progress.CompileCounter()

    def published(params: Any, batch: Mapping[str, Array]) -> Maps:
      run = functools.partial(
        model.apply, {"params": params}, mutable=[COLLECTION]
      )
      if "target_id_BT" in batch:
        _, state = run(batch, train=False, method=forward)
      else:
        source = sentence_features(batch, "source")
        _, state = run(batch["source_id_BS"], source, method="encode")
      return Maps.of(state)

    self._published = jax.jit(published)

  @property
  def programs(self) -> tuple[int, int]:
    """Pair (number of programs compiled so far, number of programs called)."""
    return self._counter.programs

  def __call__(
    self,
    params: Any,
    examples: Sequence[Mapping[str, np.ndarray]],
    targets: Sequence[Sequence[int]] | None = None,
  ) -> Iterator[tuple[int, list[Map]]]:
    """Yields the index of each sentence and its maps, longest sentences first.

    Args:
      params: Parameters of the model.
      examples: Arrays of `jaxsyn.data.sentence.example.encode_all`.
      targets: Subwords of each translation, EOS last. None: only the encoder
        runs.
    """
    lengths = [len(example["source_id"]) for example in examples]
    outputs = [0] * len(examples) if targets is None else [*map(len, targets)]
    size = [max(pair) for pair in zip(lengths, outputs)]
    order = sorted(range(len(examples)), key=lambda i: -size[i])
    while order:
      width = doubled(size[order[0]], SHORTEST)
      # The arrays of a sentence grow with the square of its length.
      rows = max(1, min(ROWS, ROWS * 64 * 64 // width**2))
      indices, order = order[:rows], order[rows:]
      chunk = [examples[i] for i in indices]
      max_words = max(words_of(example, self._names) for example in chunk)
      words = doubled(max_words, width)
      batch = pad(chunk, self._names, subwords=width, words=words, rows=rows)
      if targets is not None:
        id_BT = np.full((rows, width), PAD, np.int32)
        for row, i in enumerate(indices):
          id_BT[row, : outputs[i]] = targets[i]
        batch["target_id_BT"] = id_BT
      batch = apply_batch_transform(batch, self._batch_transform)
      with self._counter.calls((rows, width, words, targets is None)):
        maps = jax.device_get(self._published(params, batch))
      for row, i in enumerate(indices):
        sides = {"source": lengths[i], "target": outputs[i]}
        yield (
          i,
          [
            self._map(one.address, np.asarray(one.value)[row], sides)
            for one in maps.published
            if BETWEEN_SUBWORDS.fullmatch(split(one.address.kind)[1])
          ],
        )

  def _map(
    self, address: Address, value: np.ndarray, sides: Mapping[str, int]
  ) -> Map:
    """Converts the array of one sentence to a map without padding."""
    place, layer, part = address.stack, address.layer, address.modifier
    kind = split(address.kind)[0]
    if kind.startswith("log_"):
      kind, value = kind.removeprefix("log_"), np.exp(value)
    value_HQM = np.asarray(value, np.float32)
    if value_HQM.ndim == 2:
      value_HQM = value_HQM[None]
    head_count = self._architecture.attention_heads()
    value_HQM = np.broadcast_to(value_HQM, (head_count, *value_HQM.shape[1:]))
    heads = self._heads(place, layer, part)
    rows, columns = (sides[side] for side in SIDES[place])
    parts = tuple(self._parts(place, layer, head) for head in heads)
    if part and kind == "weight":  # attention in a window
      parts = ((part,),) * len(heads)
    value_HQM = value_HQM[list(heads), :rows, :columns]
    return Map(place, layer, part, kind, heads, value_HQM, parts)

  def _parts(self, place: str, layer: int, head: int) -> tuple[str, ...]:
    """Returns the names of the modifiers that act on a head."""
    return tuple(
      name
      for name, _ in self._modifiers.modifiers_in_layer(place, layer)
      if head in self._heads(place, layer, name)
    )

  def _heads(self, place: str, layer: int, part: str) -> tuple[int, ...]:
    """Returns the attention heads that a modifier acts on.

    All heads for attention without a modifier, and at embeddings.
    """
    head_count = self._architecture.attention_heads()
    specs = dict(self._modifiers.modifiers_in(place))
    if part not in specs or layer < 0:
      return tuple(range(head_count))
    active = specs[part].active_heads(layer + 1, head_count)
    return tuple(sorted(head for at, head in active if at == layer))
