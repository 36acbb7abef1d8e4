"""What a model publishes while it reads a sentence: attention, weightings.

Attention and parts publish arrays with an address (`jaxsyn.syntax.maps`); here
a model runs once over sentences, and translations, in evaluation mode, in few
static shapes, and every array is cut to its sentence.
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

from jaxsyn import progress
from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.loader.collate import (
  BatchTransform,
  apply_batch_transform,
  pad,
  words_of,
)
from jaxsyn.data.schema import PAD
from jaxsyn.models.contract import EncoderDecoder, forward, sentence_features
from jaxsyn.shapes import split
from jaxsyn.syntax.maps import COLLECTION, Maps

SHORTEST = 16  # padded lengths double: 16, 32, 64, ...
ROWS = 8  # sentences in a batch, fewer where they are very long
SIDES = {
  "encoder": ("source", "source"),
  "decoder": ("target", "target"),
  "cross": ("target", "source"),
}
# Letters of an array between two subwords, of all heads or one for all.
BETWEEN_SUBWORDS = re.compile("B[H1]?[QST1][MST1]")


@dataclasses.dataclass(frozen=True)
class Map:
  """One published array of one sentence, without pads.

  Attributes:
    place, layer, part: of its `jaxsyn.syntax.maps.Address`.
    kind: what it is: "weight" (of attention), "weighting" (times the scores),
      "bias" (added to them), "near" (1: looked at), "turned" (what is left of the
      product of two equal vectors), "alike" (cosine of what is added to the two),
      "parse" (how likely each is another's parent, as a supervised head has it), or
      as the part calls it.
    heads: which of the layer's heads it is for, from 0; all, at embeddings.
    value_HQM: one matrix for each of `heads`.
    parts: names of the parts that work on each of `heads`.
    rows, columns: their names, once it is gathered (`sentence`): words of
      attention, whose values are then pooled, or subwords, and signs. In decoder
      and cross-attention a row is the word being predicted.
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
    """Whether its weights are those under which values are summed."""
    return self.kind == "weight"

  @property
  def where(self) -> str:
    """Its place and layer, in the name of a file."""
    return f"{self.place}_{'embeddings' if self.layer < 0 else self.layer}"

  @property
  def is_one(self) -> bool:
    """Whether all heads have the same matrix."""
    return bool((self.value_HQM == self.value_HQM[:1]).all())


class MapReader:
  """A model that tells what it looks at."""

  def __init__(
    self,
    model: EncoderDecoder,
    names: Sequence[str],
    *,
    batch_transform: BatchTransform | None = None,
  ):
    """Sets it up; parameters are given with each call.

    Args:
      names: features of the source side that it reads.
      batch_transform: a caller's own function on every host batch.
    """
    # Fused attention shows no weights; with scores it is the same model.
    einsum = dataclasses.replace(model.spec.model, attention="einsum")
    model = model.clone(spec=dataclasses.replace(model.spec, model=einsum))
    self._spec, self._change = model.spec, batch_transform
    self._names = tuple(dict.fromkeys(("source_id", *names)))

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
    self._counter = progress.CompileCounter()

  @property
  def programs(self) -> tuple[int, int]:
    """How many programs are compiled and how many are needed."""
    return self._counter.programs

  def __call__(
    self,
    params: Any,
    examples: Sequence[Mapping[str, np.ndarray]],
    targets: Sequence[Sequence[int]] | None = None,
  ) -> Iterator[tuple[int, list[Map]]]:
    """What is published for each sentence, sentences of a length together.

    Args:
      params: of the model.
      examples: of `jaxsyn.data.sentence.example.encode_all`.
      targets: subwords of a translation of each, EOS last; None: the
        encoder alone is run.

    Yields: the number of the sentence, from 0, and its maps.
    """
    lengths = [len(example["source_id"]) for example in examples]
    outputs = [0] * len(examples) if targets is None else [*map(len, targets)]
    size = [max(pair) for pair in zip(lengths, outputs)]
    order = sorted(range(len(examples)), key=lambda i: -size[i])
    while order:
      width = doubled(size[order[0]], SHORTEST)
      # The arrays of a sentence grow with the square of its length.
      rows = max(1, min(ROWS, ROWS * 64 * 64 // width**2))
      chunk, order = order[:rows], order[rows:]
      chosen = [examples[i] for i in chunk]
      max_words = max(words_of(example, self._names) for example in chosen)
      words = doubled(max_words, width)
      batch = pad(chosen, self._names, subwords=width, words=words, rows=rows)
      if targets is not None:
        id_BT = np.full((rows, width), PAD, np.int32)
        for row, i in enumerate(chunk):
          id_BT[row, : outputs[i]] = targets[i]
        batch["target_id_BT"] = id_BT
      batch = apply_batch_transform(batch, self._change)
      with self._counter.calls((rows, width, words, targets is None)):
        maps = jax.device_get(self._published(params, batch))
      for row, i in enumerate(chunk):
        sides = {"source": lengths[i], "target": outputs[i]}
        yield i, list(self._cut(maps, row, sides))

  def _cut(self, maps: Maps, row: int, sides: dict[str, int]) -> Iterator[Map]:
    """One row of a batch: its matrices between two subwords."""
    head_count = self._spec.architecture.attention_heads()
    for published in maps.published:
      address, array = published.address, np.asarray(published.value)
      kind, letters = split(address.kind)
      if not BETWEEN_SUBWORDS.fullmatch(letters):
        continue
      if kind.startswith("log_"):  # of a probability, as losses read it
        kind, array = kind.removeprefix("log_"), np.exp(array)
      value_HQM = np.asarray(array[row], np.float32)
      if value_HQM.ndim == 2:
        value_HQM = value_HQM[None]
      value_HQM = np.broadcast_to(value_HQM, (head_count, *value_HQM.shape[1:]))
      place, layer, part = address.place, address.layer, address.part
      heads = self._heads(place, layer, part)
      rows, columns = (sides[side] for side in SIDES[place])
      parts = tuple(self._parts(place, layer, head) for head in heads)
      if part and kind == "weight":  # attention in a window
        parts = ((part,),) * len(heads)
      yield Map(
        place,
        layer,
        part,
        kind=kind,
        heads=heads,
        value_HQM=value_HQM[list(heads), :rows, :columns],
        parts=parts,
      )

  def _parts(self, place: str, layer: int, head: int) -> tuple[str, ...]:
    """Names of the parts that work on a head."""
    return tuple(
      name
      for name, _ in self._spec.modifiers.modifiers_in_layer(place, layer)
      if head in self._heads(place, layer, name)
    )

  def _heads(self, place: str, layer: int, part: str) -> tuple[int, ...]:
    """Heads that a part works on; all for attention itself, and at embeddings."""
    head_count = self._spec.architecture.attention_heads()
    specs = dict(self._spec.modifiers.modifiers_in(place))
    if part not in specs or layer < 0:
      return tuple(range(head_count))
    active = specs[part].active_heads(layer + 1, head_count)
    return tuple(sorted(head for at, head in active if at == layer))
