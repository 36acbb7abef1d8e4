"""What a model publishes while it reads a sentence: attention, weightings.

Attention modules and parts publish as "maps" (`jaxsyn.syntax.part.publish`);
here a model runs once over sentences, and translations, in evaluation mode, in
few static shapes, and every array is cut to its sentence and given its name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax import traverse_util

from jaxsyn.data.loader.batches import Change, changed, doubled, pad, words_of
from jaxsyn.data.schema import PAD
from jaxsyn.models.contract import forward, view_of
from jaxsyn.models.spec import ModelSpec

SHORTEST = 16  # padded lengths double: 16, 32, 64, ...
ROWS = 8  # sentences in a batch, fewer where they are very long
SIDES = {
  "encoder": ("source", "source"),
  "decoder": ("target", "target"),
  "cross": ("target", "source"),
}


@dataclasses.dataclass(frozen=True)
class Published:
  """One published array of one sentence, in subwords, without pads.

  Attributes:
    place: "encoder", "decoder" (self-attention) or "cross".
    layer: from 0.
    part: name of the part, or of a recurrent decoder's window, that published
      it; "" for attention itself.
    kind: what it is: "weight" (of attention), "weighting" (times the scores),
      "bias" (added to them), "parse" (how likely each is another's parent, as
      a supervised head has it), or as the part calls it.
    heads: which of the layer's heads it is for, from 0.
    value_HQM: one matrix for each of `heads`.
    parts: names of the parts that work on each of `heads`.
  """

  place: str
  layer: int
  part: str
  kind: str
  heads: tuple[int, ...]
  value_HQM: np.ndarray
  parts: tuple[tuple[str, ...], ...]


class Maps:
  """A model that tells what it looks at."""

  def __init__(
    self,
    model: nn.Module,
    spec: ModelSpec,
    names: Sequence[str],
    change: Change | None = None,
  ):
    """Sets it up; parameters are given with each call.

    Args:
      model: of `jaxsyn.models.contract.make`.
      spec: what it was made from.
      names: features of the source side that it reads.
      change: a caller's own function on every host batch.
    """
    self._spec, self._change = spec, change
    self._names = tuple(dict.fromkeys(("source_id", *names)))

    def whole(params, batch):
      return model.apply(
        {"params": params},
        batch,
        train=False,
        method=forward,
        mutable=["maps"],
      )[1]

    def encoder(params, batch):
      return model.apply(
        {"params": params},
        batch["source_id_BS"],
        view_of(batch, "source"),
        train=False,
        method="encode",
        mutable=["maps"],
      )[1]

    self._whole, self._encoder = jax.jit(whole), jax.jit(encoder)

  def __call__(
    self,
    params: Any,
    examples: Sequence[Mapping[str, np.ndarray]],
    targets: Sequence[Sequence[int]] | None = None,
  ) -> Iterator[tuple[int, list[Published]]]:
    """What is published for each sentence, sentences of a length together.

    Args:
      params: of the model.
      examples: of `jaxsyn.data.sentence.example.encode`.
      targets: subwords of a translation of each, the end sign last; None: the
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
      taken, order = order[:rows], order[rows:]
      chosen = [examples[i] for i in taken]
      most = max(words_of(example, self._names) for example in chosen)
      words = doubled(most, width)
      batch = pad(chosen, self._names, width, words, rows)
      run = self._encoder
      if targets is not None:
        run = self._whole
        id_BT = np.full((rows, width), PAD, np.int32)
        for row, i in enumerate(taken):
          id_BT[row, : outputs[i]] = targets[i]
        batch["target_id_BT"] = id_BT
      batch = changed(batch, self._change)
      maps = jax.device_get(run(params, batch)).get("maps", {})
      for row, i in enumerate(taken):
        sides = {"source": lengths[i], "target": outputs[i]}
        yield i, list(self._published(maps, row, width, sides))

  def _published(
    self, maps: dict, row: int, width: int, sides: dict[str, int]
  ) -> Iterator[Published]:
    """Names and cuts the arrays of one row of a batch."""
    number = self._spec.family.attention_heads()
    for path, array in traverse_util.flatten_dict(maps).items():
      *modules, name = path
      where = re.fullmatch(r"(encoder|decoder)_(\d+)", modules[0])
      kind, _, letters = name.rpartition("_")
      if where is None or not re.fullmatch("B[H1]?[QST1][MST1]", letters):
        continue  # nothing between two subwords
      if kind.startswith("log_"):  # of a probability, as losses read it
        kind, array = kind.removeprefix("log_"), np.exp(array)
      layer, place = int(where[2]), where[1]
      if len(modules) > 1 and modules[1] == "cross":
        place = "cross"
      part = modules[2] if len(modules) > 2 else ""
      value_HQM = np.asarray(array[row], np.float32)
      if value_HQM.ndim == 2:
        value_HQM = value_HQM[None]
      value_HQM = np.broadcast_to(value_HQM, (number, width, width))
      heads = self._heads(place, layer, part)
      rows, columns = (sides[side] for side in SIDES[place])
      yield Published(
        place,
        layer,
        part,
        kind,
        heads,
        value_HQM[list(heads), :rows, :columns],
        tuple(self._parts(place, layer, head, part) for head in heads),
      )

  def _parts(
    self, place: str, layer: int, head: int, part: str
  ) -> tuple[str, ...]:
    """Names of the parts that work on a head; of a window, its own."""
    if part in dict(getattr(self._spec.family, "windows", ())):
      return (part,)
    return tuple(
      name
      for name, _ in self._spec.parts.at_layer(place, layer)
      if head in self._heads(place, layer, name)
    )

  def _heads(self, place: str, layer: int, part: str) -> tuple[int, ...]:
    """Heads that a part works on; all for attention itself."""
    number = self._spec.family.attention_heads()
    specs = dict(self._spec.parts.at(place))
    if part not in specs:
      return tuple(range(number))
    cells = specs[part].cells(layer + 1, number)
    return tuple(sorted(head for at, head in cells if at == layer))
