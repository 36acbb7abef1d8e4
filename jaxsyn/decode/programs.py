"""Compiled JAX programs for continuous batching, in a few static sizes.

Letters: P sentence that enters a slot.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.examples import Batches
from jaxsyn.decode.search import DecodeRequest, Decoding, Search
from jaxsyn.decode.strategies import Decode

NO_STEP_LIMIT = 2**30
# Search steps between two checks whether sentences are finished. With one, the
# loop copied all caches in each step, because a buffer is reused within one
# iteration only. Small caches are cheap to copy, and two steps compile 50 %
# longer.
STEPS = 2
SMALL = 64  # hypotheses
# Factor by which a full decoder cache grows. Every length is another program, and
# compiling it takes longer than the attention to empty positions in most inputs.
CACHE_GROWTH = 4


@dataclasses.dataclass(frozen=True)
class PoolSize:
  """Static array sizes for which decoding programs are compiled.

  Attributes:
    source: Padded number of source subwords.
    words: Padded number of source words.
    length: T, maximum output length.
    slots: B, number of sentences that are searched together.
    cache_length: Output length that the decoder cache has room for.
    encode_rows: R, number of sentences that are encoded together.
    entering: P, number of sentences that enter slots together.
    prefix: X and E of the prefixes; None without prefixes.
  """

  source: int
  words: int
  length: int
  slots: int
  cache_length: int
  encode_rows: int
  entering: int
  prefix: tuple[int, int] | None = None


class DecodingPrograms:
  """Decoding programs of an ensemble, compiled on first use per size and device.

  They run on the device of the parameters.
  """

  def __init__(
    self,
    ensemble: Ensemble,
    decode: Decode,
    padding_batch: Callable[[PoolSize], tuple[Batches, DecodeRequest]],
    piece_rank: Callable[[], np.ndarray] | None = None,
  ):
    """Stores the models and the decoding options, without compiling.

    Args:
      ensemble: Models.
      decode: Options of decoding.
      padding_batch: Returns batches of padding of a size, and their request.
      piece_rank: See `Decoding`.
    """
    self._ensemble, self._decode = ensemble, decode
    self._padding_batch, self._piece_rank = padding_batch, piece_rank
    self._functions: dict[Any, Any] = {}
    self._programs: dict[Any, Any] = {}
    self._search_shapes: dict[PoolSize, Any] = {}
    self._cache_grows: bool | None = None
    self._locks: dict[Any, Any] = collections.defaultdict(threading.Lock)
    self._needed: set[Any] = set()

  @property
  def counts(self) -> tuple[int, int]:
    """Pair (number of compiled programs, number compiled or to be compiled).

    The second number includes programs being compiled or added by `need`.
    """
    return len(self._programs), len(self._needed)

  def need(
    self, size: PoolSize, params: Any, device: jax.Device | None
  ) -> None:
    """Counts a pool's encode and first search program as programs to compile.

    The device None is that of the parameters.
    """
    device = device or _device(params)
    first = next(cache_sizes(self, size, params))
    self._needed |= {
      ("encode", _encode_size(size), device),
      ("search", first, device),
    }

  def forget_uncompiled(self) -> None:
    """Excludes programs that are not compiled yet from `counts`."""
    self._needed.intersection_update(list(self._programs))

  def encode(
    self,
    size: PoolSize,
    params: Any,
    batches: Batches,
    request: DecodeRequest,
  ) -> Search:
    """Encodes sentences and decodes one subword; returns the search state."""
    return self._encode_program(size, params, batches, request)(
      params, batches, request
    )

  def search(
    self,
    size: PoolSize,
    params: Any,
    search: Search,
    encoded: Search,
    row_P: np.ndarray,
    slot_P: np.ndarray,
    free: int,
    max_position: int = NO_STEP_LIMIT,
  ) -> Search:
    """Decodes until enough slots are free or the cache is nearly full.

    Args:
      size, params: Size of the pool, and parameters of the models.
      search: Search of all slots; its buffers are donated.
      encoded: Result of `encode`, of which sentences enter slots.
      row_P: Rows of the sentences that enter.
      slot_P: Their slots; the number of slots means no slot.
      free: Number of slots without an open sentence at which the search stops.
      max_position: Output length of an open sentence at which it also stops.
    """
    arguments = (
      params,
      search,
      encoded,
      row_P,
      slot_P,
      np.int32(free),
      np.int32(max_position),
    )
    return self._search_program(size, *arguments)(*arguments)

  def empty(self, size: PoolSize, params: Any) -> Search:
    """Returns the search state of a pool without sentences."""
    device = _device(params)
    return jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype, device=device),
      self._shapes(size, params),
    )

  def move(
    self,
    old: PoolSize,
    new: PoolSize,
    params: Any,
    search: Search,
    slot_B: np.ndarray,
  ) -> Search:
    """Moves a pool's unfinished sentences to a pool of another size.

    `slot_B` is the old slot of each new slot, or at least `old.slots` if the
    new slot is empty.
    """

    def move(search: Search, slot_B: Array) -> Search:
      moved = jax.tree.map(
        lambda x, like: _resize(x[slot_B], like.shape),
        search,
        self._shapes(new, params),
      )
      open_B = moved.open_B & (slot_B < old.slots)
      return dataclasses.replace(moved, open_B=open_B)

    program = self._program("move", (old, new), move, (search, slot_B))
    return program(search, slot_B)

  def compile(self, size: PoolSize, params: Any) -> tuple[Any, Any]:
    """Compiles and returns the programs for `encode` and `search`.

    Shapes of the parameters suffice.
    """
    padding = self._padding_batch(size)
    encode_program = self._encode_program(size, params, *padding)
    encode = functools.partial(self._encode, _encode_size(size))
    encoded = jax.eval_shape(encode, params, *padding)
    index_P = np.zeros(size.entering, np.int32)
    return encode_program, self._search_program(
      size,
      params,
      self._shapes(size, params),
      encoded,
      index_P,
      index_P,
      np.int32(0),
      np.int32(0),
    )

  def cache_grows(self, size: PoolSize, params: Any) -> bool:
    """Returns whether the decoder cache grows with the output length."""
    if self._cache_grows is None:
      small, large = (
        self._shapes(
          dataclasses.replace(size, cache_length=length), params
        ).cache
        for length in (1, 2)
      )
      self._cache_grows = bool(small != large)
    return self._cache_grows

  def _encode(
    self,
    size: PoolSize,
    params: Any,
    batches: Batches,
    request: DecodeRequest,
  ) -> Search:
    decoding, decode = self._decoding(params), self._decode
    search = decoding.begin(
      batches,
      request,
      hypotheses=decode.search.hypotheses(decode),
      length=size.length,
      cache_length=size.cache_length,
      strategy_state=decode.search.begin(request, decode),
    )
    return decode.search.step(decoding, search, decode)

  def _decoding(self, params: Any) -> Decoding:
    return Decoding(self._ensemble, params, self._piece_rank)

  def _encode_program(self, size: PoolSize, *arguments: Any) -> Any:
    size = _encode_size(size)
    encode = functools.partial(self._encode, size)
    return self._program("encode", size, encode, arguments)

  def _search_program(self, size: PoolSize, *arguments: Any) -> Any:
    search = functools.partial(self._search, size)
    return self._program("search", size, search, arguments, donate=1)

  def _search(
    self,
    size: PoolSize,
    params: Any,
    search: Search,
    encoded: Search,
    row_P: Array,
    slot_P: Array,
    free: Array,
    max_position: Array,
  ) -> Search:
    search = jax.tree.map(
      lambda x, new: _enter(x, slot_P, new[row_P]), search, encoded
    )
    decoding, decode = self._decoding(params), self._decode
    is_small = size.slots * decode.search.hypotheses(decode) <= SMALL

    def is_running(search: Search) -> Array:
      # A full-length cache cannot overflow: the limits end sentences before.
      filled = jnp.max(search.position_B * search.open_B) + STEPS
      is_full = (filled > size.cache_length) & (size.cache_length < size.length)
      is_full = is_full | (filled > max_position)
      return (jnp.sum(~search.open_B) < free) & ~is_full

    def steps(search: Search) -> Search:
      for _ in range(1 if is_small else STEPS):
        search = decode.search.step(decoding, search, decode)
      return search

    return jax.lax.while_loop(is_running, steps, search)

  def _shapes(self, size: PoolSize, params: Any) -> Any:
    """Returns the array shapes of the search state for a pool size."""
    if size not in self._search_shapes:
      encode = functools.partial(self._encode, size)
      rows = jax.eval_shape(encode, params, *self._padding_batch(size))
      self._search_shapes[size] = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((size.slots, *x.shape[1:]), x.dtype),
        rows,
      )
    return self._search_shapes[size]

  def _program(
    self,
    name: str,
    key: Any,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    donate: Any = (),
  ) -> Any:
    program_key = (name, key, _device(arguments[0]))
    # One of several threads compiles a program; the others wait for it.
    with self._locks[program_key]:
      if program_key not in self._programs:
        self._needed.add(program_key)
        try:
          self._programs[program_key] = self._compile(
            (name, key), function, arguments, donate
          )
        except BaseException:
          self._needed.discard(program_key)
          raise
    return self._programs[program_key]

  def _compile(
    self,
    key: Any,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    donate: Any,
  ) -> Any:
    # The function is traced once for all devices. The first device compiles
    # alone, so that later GPUs find the program in the compilation cache.
    with self._locks[key]:
      is_first = key not in self._functions
      if is_first:
        self._functions[key] = jax.jit(function, donate_argnums=donate)
      lowered = self._functions[key].lower(*arguments)
      if is_first:
        return lowered.compile()
    return lowered.compile()


def cache_sizes(
  programs: DecodingPrograms, size: PoolSize, params: Any
) -> Iterator[PoolSize]:
  """Yields the successive sizes of a pool while its decoder cache grows."""
  length = size.cache_length
  if not programs.cache_grows(size, params):
    length = size.length
  while length < size.length:
    yield dataclasses.replace(size, cache_length=length)
    length *= CACHE_GROWTH
  yield dataclasses.replace(size, cache_length=size.length)


def _encode_size(size: PoolSize) -> PoolSize:
  # The cache has room for the first subword, whatever the pool's cache has.
  return dataclasses.replace(size, slots=0, cache_length=1, entering=0)


def _device(tree: Any) -> jax.Device:
  """Returns the device of the first array (or array shape) in a pytree."""
  sharding = getattr(jax.tree.leaves(tree)[0], "sharding", None)
  return next(iter(sharding.device_set)) if sharding else jax.local_devices()[0]


def _enter(x: Array, slot_P: Array, new: Array) -> Array:
  """Writes new rows into slots of an array and zeros where they are shorter."""
  # A NaN of the slot's last sentence would spread even where it is masked. Writing
  # zeros first is faster than padding the new rows.
  if new.shape[1:] != x.shape[1:]:
    x = x.at[slot_P].set(0, mode="drop")
  at = (slot_P, *(slice(size) for size in new.shape[1:]))
  return x.at[at].set(new, mode="drop")


def _resize(x: Array, shape: tuple[int, ...]) -> Array:
  """Truncates or zero-pads all axes except the first to a given shape."""
  x = x[:, *(slice(size) for size in shape[1:])]
  padding = [(0, size - old) for size, old in zip(shape[1:], x.shape[1:])]
  return jnp.pad(x, [(0, 0), *padding])
