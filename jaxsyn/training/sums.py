"""Checksums of arrays.

What was saved is compared with what is read back, array by array, so that a
flipped bit shows wherever it happened on the way. A sum is of a region of the
whole array, not of a device's part: it can be checked on another number of
devices. Of arrays that no process sees whole, each enters the regions that it
holds, and checks those it can see.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import jax
import numpy as np

from jaxsyn.data.store.manifest_format import Crc32c, Number
from jaxsyn.options.bounds import TextPattern
from jaxsyn.storage import checksums

Tree = Any
# Name of an array -> fields of `ArraySums`.
Sums = dict[str, dict[str, Any]]
Region = Annotated[
  str,
  TextPattern(r"(\d{1,15}:\d{1,15}(,\d{1,15}:\d{1,15})*)?", "like 0:4,8:16"),
]


@dataclasses.dataclass(frozen=True)
class ArraySums:
  """Shape and checksums of an array, as JSON has them.

  Attributes:
    shape: of the whole array.
    dtype: name of its type.
    crc32c: region, "" for the whole array -> checksum.
  """

  shape: tuple[Number, ...]
  dtype: str
  crc32c: dict[Region, Crc32c]


def named(tree: Tree) -> dict[str, Any]:
  """The leaves of a tree by their path, as in "params/encoder/kernel"."""
  leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
  return {
    jax.tree_util.keystr(path, simple=True, separator="/"): leaf
    for path, leaf in leaves
  }


def local_sums(tree: Tree) -> Callable[[], Sums]:
  """What this process holds of a tree, on the host; its sums when called.

  Nothing here waits but for the copies to the host, so that the sums can be
  taken while the devices go on with other things.
  """
  leaves = named(tree)
  for leaf in leaves.values():
    if isinstance(leaf, jax.Array) and leaf.is_fully_addressable:
      leaf.copy_to_host_async()  # all of them, before the first is waited for
  parts = {name: list(_local_shards(leaf)) for name, leaf in leaves.items()}
  facts = {n: (list(x.shape), str(x.dtype)) for n, x in leaves.items()}

  def sums() -> Sums:
    return {
      name: {
        "shape": shape,
        "dtype": dtype,
        "crc32c": {
          region: checksums.crc32c(data) for region, data in parts[name]
        },
      }
      for name, (shape, dtype) in facts.items()
    }

  return sums


def merged(each: Sequence[Sums]) -> Sums:
  """The sums of several processes of one run as one."""
  first, *other_sums = each
  for other in other_sums:
    for name, entry in other.items():
      first[name]["crc32c"] |= entry["crc32c"]
  return first


def differing(tree: Tree, sums: Sums) -> str:
  """The first array that is not as its sums say, and how; "" where all are."""
  for name, leaf in named(tree).items():
    entry = sums[name]
    if (list(leaf.shape), str(leaf.dtype)) != (entry["shape"], entry["dtype"]):
      return f"{name} is {leaf.dtype} {leaf.shape}"
    for region, expected in entry["crc32c"].items():
      data = _region(leaf, region)
      if data is not None and checksums.crc32c(data) != expected:
        return f"{name} has another checksum than when it was saved"
  return ""


def _local_shards(leaf: Any) -> Iterator[tuple[str, np.ndarray]]:
  """The regions of an array that this process answers for."""
  if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
    yield "", np.asarray(leaf)
    return
  for shard in leaf.addressable_shards:
    if shard.replica_id == 0:
      spans = _spans(shard.index, leaf.shape)
      text = ",".join(f"{begin}:{end}" for begin, end in spans)
      yield text, np.asarray(shard.data)


def _region(leaf: Any, region: str) -> np.ndarray | None:
  """A region of an array, if this process holds all of it."""
  full_region = [(0, size) for size in leaf.shape]
  wanted, parts = full_region, [(full_region, leaf)]
  if region:
    pairs = (span.split(":") for span in region.split(","))
    wanted = [(int(begin), int(end)) for begin, end in pairs]
  if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
    parts = [
      (_spans(shard.index, leaf.shape), shard.data)
      for shard in leaf.addressable_shards
    ]
  for spans, data in parts:
    if all(b <= x and y <= e for (x, y), (b, e) in zip(wanted, spans)):
      cut = tuple(slice(x - b, y - b) for (x, y), (b, _) in zip(wanted, spans))
      index: Any = (*cut, ...)  # an array also where it has no axes
      return np.asarray(data)[index]
  return None


def _spans(
  index: tuple[slice, ...], shape: tuple[int, ...]
) -> list[tuple[int, int]]:
  return [part.indices(size)[:2] for part, size in zip(index, shape)]
