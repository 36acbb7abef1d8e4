"""Computes checksums of checkpoint arrays; Orbax verifies only metadata.

A checksum belongs to a region of the complete array, not to the shard of a device,
so it can be verified on another number of devices. If no process has a complete
array, each computes the checksums of its regions, and verifies the regions that it
has.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import jax
import numpy as np

from jaxsyn.data.store.manifests import Crc32c, Number
from jaxsyn.options.bounds import TextPattern
from jaxsyn.storage import checksums

Tree = Any
# Name of an array -> fields of `ArrayChecksums`, as in JSON.
Checksums = dict[str, dict[str, Any]]
Region = Annotated[
  str,
  TextPattern(r"(\d{1,15}:\d{1,15}(,\d{1,15}:\d{1,15})*)?", "like 0:4,8:16"),
]
_Spans = list[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class ArrayChecksums:
  """Shape, type and checksums of an array in a checkpoint.

  Attributes:
    shape: Shape of the complete array.
    dtype: Name of its type.
    crc32c: Region ("" for the complete array) -> checksum.
  """

  shape: tuple[Number, ...]
  dtype: str
  crc32c: dict[Region, Crc32c]


def arrays_by_name(tree: Tree) -> dict[str, Any]:
  """Returns the arrays of a pytree by path, such as "encoder_0/norm/scale"."""
  leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
  return {
    jax.tree_util.keystr(path, simple=True, separator="/"): leaf
    for path, leaf in leaves
  }


def start_checksums(tree: Tree) -> Callable[[], Checksums]:
  """Starts copying arrays to the host; returns a checksum function.

  Returns:
    A function that computes the checksums. The devices may already change the
    arrays.
  """
  leaves = arrays_by_name(tree)
  for leaf in leaves.values():
    if isinstance(leaf, jax.Array) and leaf.is_fully_addressable:
      leaf.copy_to_host_async()  # start all copies before waiting for the first
  regions = {name: list(_local_regions(leaf)) for name, leaf in leaves.items()}
  formats = {n: (list(x.shape), str(x.dtype)) for n, x in leaves.items()}
  return functools.partial(_compute, formats, regions)


def _compute(
  formats: Mapping[str, tuple[list[int], str]],
  regions: Mapping[str, Sequence[tuple[str, np.ndarray]]],
) -> Checksums:
  """Returns the checksums of arrays, given their shapes, types and regions."""
  return {
    name: {
      "shape": shape,
      "dtype": dtype,
      "crc32c": {
        region: checksums.crc32c(data) for region, data in regions[name]
      },
    }
    for name, (shape, dtype) in formats.items()
  }


def merge(by_process: Sequence[Checksums]) -> Checksums:
  """Merges the checksums from all processes of a run."""
  merged, *others = by_process
  for other in others:
    for name, entry in other.items():
      merged[name]["crc32c"] |= entry["crc32c"]
  return merged


def first_difference(tree: Tree, expected: Checksums) -> str:
  """Describes the first array that differs from its checksums; "" if equal."""
  for name, leaf in arrays_by_name(tree).items():
    entry = expected[name]
    if (list(leaf.shape), str(leaf.dtype)) != (entry["shape"], entry["dtype"]):
      return f"{name} is {leaf.dtype} {leaf.shape}"
    for region, checksum in entry["crc32c"].items():
      data = _region(leaf, region)
      if data is not None and checksums.crc32c(data) != checksum:
        return f"{name} has another checksum than when it was saved"
  return ""


def _local_regions(leaf: Any) -> Iterator[tuple[str, np.ndarray]]:
  """Yields the array regions whose checksums this process computes."""
  if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
    yield "", np.asarray(leaf)
    return
  for shard in leaf.addressable_shards:
    if shard.replica_id == 0:
      spans = _spans(shard.index, leaf.shape)
      region = ",".join(f"{begin}:{end}" for begin, end in spans)
      yield region, np.asarray(shard.data)


def _region(leaf: Any, region: str) -> np.ndarray | None:
  """Returns a region of an array; None if no local shard contains it."""
  complete = [(0, size) for size in leaf.shape]
  wanted = complete
  if region:
    pairs = (span.split(":") for span in region.split(","))
    wanted = [(int(begin), int(end)) for begin, end in pairs]
  shards = [(complete, leaf)]
  if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
    shards = [
      (_spans(shard.index, leaf.shape), shard.data)
      for shard in leaf.addressable_shards
    ]
  for spans, data in shards:
    if all(b <= x and y <= e for (x, y), (b, e) in zip(wanted, spans)):
      cut = tuple(slice(x - b, y - b) for (x, y), (b, _) in zip(wanted, spans))
      index: Any = (*cut, ...)  # a scalar stays an array
      return np.asarray(data)[index]
  return None


def _spans(index: tuple[slice, ...], shape: tuple[int, ...]) -> _Spans:
  return [part.indices(size)[:2] for part, size in zip(index, shape)]
