"""Maps: intermediate arrays that modules expose to losses and figures.

A module publishes an array, such as its attention weights, where it computes
it; the caller of the model finds it by its address:

  publish(self, "log_parse_BQM", log_p_BQM)

  output, state = model.apply(variables, ..., mutable=[COLLECTION])
  Maps.of(state).find(stack="encoder", kind="log_parse_BQM")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from flax import linen as nn
from flax import struct, traverse_util
from jax import Array

from jaxsyn.arrays.shapes import agree
from jaxsyn.errors import InputError

COLLECTION = "maps"


@dataclasses.dataclass(frozen=True)
class Address:
  """Address of an array that a module exposes, such as attention weights.

  Attributes:
    stack: "encoder", "decoder" (their self-attention) or "cross".
    layer: Index from 0; -1 at the embeddings.
    modifier: Name of the modifier, or of a recurrent decoder's window; "" for
      attention itself.
    kind: Name of the array, with its letters, such as "weight_BHQM".
  """

  stack: str
  layer: int
  modifier: str
  kind: str


@struct.dataclass
class Published:
  """An array that a module exposes, with its address.

  The address is static under `jit`.
  """

  address: Address = struct.field(pytree_node=False)
  value: Array


def publish(module: nn.Module, kind: str, value: Array) -> None:
  """Sows an array into the Flax collection "maps", for losses and figures.

  The compiler drops arrays that are not read, and `init` does not store any.
  If an array is published twice, the last value counts.

  Args:
    module: Module with a `site` (`jaxsyn.syntax.modifier.AttentionSite`).
    kind: Name of the array, with its letters. `jaxsyn.inspect` draws maps with
      the letters QM, and the exponential of maps named log_*.
    value: The array.
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
  """Arrays that one call of a model exposes, in order of computation.

  Layers come in ascending order, and modifiers in the order of the table.

  Attributes:
    published: The arrays.
    reader: Name of the loss or command that reads them, for error messages.
  """

  published: tuple[Published, ...] = ()
  reader: str = struct.field(pytree_node=False, default="a reader")

  @classmethod
  def of(cls, state: Mapping[str, Any]) -> Maps:
    """Extracts the exposed arrays from the state returned by Flax's `apply`."""
    # Not by jax.tree.leaves, which sorts layer 10 before layer 2.
    published = traverse_util.flatten_dict(state.get(COLLECTION, {}))
    return cls(tuple(published.values()))

  def find(self, **fields: str | int) -> tuple[Published, ...]:
    """Returns the exposed arrays with the given stack, layer, modifier or kind.

    Raises:
      InputError: There is no match; the message lists the published maps.
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

  def at(self, address: Address) -> Any:
    """Returns the array that a module has published under an `Address`."""
    return self.find(**dataclasses.asdict(address))[0].value

  def _listed(self) -> str:
    layers: dict[tuple[str, str, str], list[str]] = {}
    for address in (published.address for published in self.published):
      key = address.stack, address.modifier, address.kind
      layers.setdefault(key, []).append(str(address.layer))
    return "; ".join(
      f"{stack=}, {modifier=}, {kind=} of layer {', '.join(indices)}"
      for (stack, modifier, kind), indices in layers.items()
    )
