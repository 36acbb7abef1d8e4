"""Maps: arrays that attention and parts publish, each with its address.

What a module makes on its way (attention weights, a weighting, a parse) losses
and pictures may want to see. It publishes the array where it is made, and whoever
runs the model asks for it by address:

  publish(self, "log_parse_BQM", log_p_BQM)

  output, state = model.apply(variables, ..., mutable=[COLLECTION])
  Maps.of(state).find(place="encoder", kind="log_parse_BQM")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from flax import linen as nn
from flax import struct, traverse_util
from jax import Array

from jaxsyn.errors import InputError
from jaxsyn.shapes import agree

COLLECTION = "maps"


@dataclasses.dataclass(frozen=True)
class Address:
  """Where an array was made, and which of those made there it is.

  Attributes:
    place: "encoder", "decoder" (their self-attention) or "cross".
    layer: from 0; -1 at the embeddings.
    part: name of the part, or of a recurrent decoder's window; "" for attention
      itself.
    kind: the array's name, with its letters, as in "weight_BHQM".
  """

  place: str
  layer: int
  part: str
  kind: str


@struct.dataclass
class Published:
  """An array and its address; of the tree that JAX sees only the array is."""

  address: Address = struct.field(pytree_node=False)
  value: Array


def publish(module: nn.Module, kind: str, value: Array) -> None:
  """Makes an intermediate readable by losses and pictures.

  The only use of Linen's `sow`. The last value wins; what nobody reads is
  dropped by the compiler. As with Linen's own intermediates, `init` keeps none.

  Args:
    module: with a `where`, see `jaxsyn.syntax.modifier.AttentionSite`.
    kind: name of the array, with its letters; one of each in a module. One
      between two subwords is a picture of `jaxsyn.inspect`, and one named log_
      is shown as what it is the log of.
    value: the array.
  """
  if module.is_initializing():
    return
  agree(**{kind: value})
  site = module.site
  address = Address(site.stack, site.layer, site.modifier, kind)
  module.sow(
    COLLECTION,
    kind,
    Published(address, value),
    reduce_fn=lambda _, new: new,
    init_fn=lambda: None,
  )


@struct.dataclass
class Maps:
  """What a model published in one run, in the order of publication.

  So layers come first layer first, and parts in the order of application.

  Attributes:
    published: the arrays.
    reader: who is given them, for messages.
  """

  published: tuple[Published, ...] = ()
  reader: str = struct.field(pytree_node=False, default="a reader")

  @classmethod
  def of(cls, state: Mapping[str, Any]) -> Maps:
    """What stands in the state that `apply` returns beside the output."""
    # Not the leaves as JAX has them, by the alphabet: layer 10 before layer 2.
    published = traverse_util.flatten_dict(state.get(COLLECTION, {}))
    return cls(tuple(published.values()))

  def find(self, **fields: str | int) -> tuple[Published, ...]:
    """All of an address: one or more.

    Args:
      **asked: fields of `Address`; those left out may be anything.

    Raises:
      InputError: there is none; the message says what there is.
    """
    matches = tuple(
      published
      for published in self.published
      if all(getattr(published.address, k) == v for k, v in fields.items())
    )
    if not matches:
      wanted = ", ".join(f"{name}={value!r}" for name, value in fields.items())
      raise InputError(
        f"{self.reader} reads the map {wanted}, which nothing in this model "
        f"publishes. There are: {self._listed() or 'none'}."
      )
    return matches

  def _listed(self) -> str:
    """All addresses in words, the layers of a kind together."""
    layers: dict[tuple[str, str, str], list[str]] = {}
    for address in (published.address for published in self.published):
      one = address.place, address.part, address.kind
      layers.setdefault(one, []).append(str(address.layer))
    return "; ".join(
      f"{place=}, {part=}, {kind=} of layer {', '.join(numbers)}"
      for (place, part, kind), numbers in layers.items()
    )

  def at(self, address: Address) -> Any:
    """The array of an address; raises as `find` does."""
    return self.find(**dataclasses.asdict(address))[0].value
