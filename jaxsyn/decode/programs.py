"""What a pool of sentences runs on the device, in few static sizes.

Before this file: `search`, and `searches`, a step of it. After it: `pool`.

Letters: P sentence that takes a place.
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
from jaxsyn.decode.search import DecodeRequest, Decoding, Search, sources_of
from jaxsyn.decode.strategy import Decode
from jaxsyn.models.contract import EncoderDecoder

# Steps between two looks at what is finished. With one, a loop copied all
# caches in each step: it gives memory back where it took it. Of few hypotheses
# they are small, and two steps compile half as long again.
NO_STEP_LIMIT = 2**30
STEPS = 2
SMALL = 64  # hypotheses


@dataclasses.dataclass(frozen=True)
class Size:
  """Static sizes of a pool.

  Attributes:
    source: padded subwords of a sentence.
    words: padded words of it.
    length: T, longest output.
    places: B, sentences that are searched together.
    room: outputs that the cache has room for.
    rows: R, sentences that are read together.
    few: P, sentences that take their places together.
    asked: of prefixes and of phrases, of `jaxsyn.decode.terms`.
  """

  source: int
  words: int
  length: int
  places: int
  room: int
  rows: int
  few: int
  constraints: tuple[tuple[int, int] | None, tuple[int, int] | None] = (
    None,
    None,
  )


class DecodingPrograms:
  """Functions of a model, compiled at first use of a size on a device.

  They run where the parameters are, and no device waits for another.

  Attributes:
    compilations: programs made so far.
    needed: programs that are made, are being made, or are known to be needed.
  """

  def __init__(
    self,
    model: EncoderDecoder | Ensemble,
    decode: Decode,
    nothing: Callable[[Size], tuple[Batches, DecodeRequest]],
    ranks: Callable[[], np.ndarray] | None = None,
  ):
    """Sets it up.

    Args:
      model: that translates.
      decode: how to search.
      nothing: a batch of padding of a size, and what is asked of it.
      ranks: of `Decoding`.
    """
    self._model, self._decode, self._nothing = model, decode, nothing
    self._ranks = ranks
    self._functions: dict[Any, Any] = {}
    self._programs: dict[Any, Any] = {}
    self._sizes: dict[Size, Any] = {}
    self._grows: bool | None = None
    self._locks: dict[Any, Any] = collections.defaultdict(threading.Lock)
    self._needed: set[Any] = set()

  @property
  def compilations(self) -> int:
    return len(self._programs)

  @property
  def needed(self) -> int:
    return len(self._needed)

  def need(self, size: Size, params: Any, device: jax.Device | None) -> None:
    """Counts the first programs of a search as needed; compiles nothing.

    Args:
      size: of the search.
      params: of the model.
      device: where it runs; None: where the parameters are.
    """
    device = device or _device(params)
    first = next(grown(self, size, params))
    self._needed |= {
      ("read", _read_size(size), device),
      ("search", first, device),
    }

  def forget_uncompiled(self) -> None:
    """Stops counting programs that no search compiled after all."""
    self._needed.intersection_update(list(self._programs))

  def read(
    self, size: Size, params: Any, batch: Batches, request: DecodeRequest
  ) -> Search:
    """Sentences, read by the model, with their first subwords."""
    return self._read_program(size, params, batch, request)(
      params, batch, request
    )

  def search(
    self,
    size: Size,
    params: Any,
    search: Search,
    read: Search,
    row_P: np.ndarray,
    place_P: np.ndarray,
    free: int,
    max_steps: int = NO_STEP_LIMIT,
  ) -> Search:
    """Searches on until enough places are free or the cache is nearly full.

    Args:
      size: of the search.
      params: of the model.
      search: all places; its memory is used again.
      read: of `read`; some of its sentences take places.
      row_P: which do.
      place_P: where; the number of places stands for nowhere.
      free: wanted number of places without an open sentence.
      max_steps: length in subwords of an open sentence beyond which it stops,
        too.
    """

    arguments = (
      *(params, search, read, row_P, place_P),
      *(np.int32(free), np.int32(max_steps)),
    )
    return self._search_program(size, *arguments)(*arguments)

  def empty(self, size: Size, params: Any) -> Search:
    """Places without sentences."""
    device = _device(params)
    return jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype, device=device),
      self._shapes(size, params),
    )

  def move(
    self, old: Size, new: Size, params: Any, search: Search, place_B: np.ndarray
  ) -> Search:
    """The search in another size.

    Args:
      old: its size.
      new: the other; it holds all open sentences.
      params: of the model.
      search: in the old size.
      place_B: for each place of the new size, which old one it continues; any
        number beyond these for none.
    """

    def move(search: Search, place_B: Array) -> Search:
      moved = jax.tree.map(
        lambda x, like: _fitted(x[place_B], like.shape),
        search,
        self._shapes(new, params),
      )
      open_B = moved.open_B & (place_B < old.places)
      return dataclasses.replace(moved, open_B=open_B)

    program = self._program("move", (old, new), move, (search, place_B))
    return program(search, place_B)

  def compile(self, size: Size, params: Any) -> tuple[Any, Any]:
    """The programs of a size, `read` and `search`; shapes of params will do."""
    batch = self._nothing(size)
    first = self._read_program(size, params, *batch)
    one = dataclasses.replace(size, room=1)
    read = jax.eval_shape(functools.partial(self._read, one), params, *batch)
    row_P = np.zeros(size.few, np.int32)
    search = self._shapes(size, params)
    return first, self._search_program(
      *(size, params, search, read, row_P, row_P),
      *(np.int32(0), np.int32(0)),
    )

  def caches_grow(self, size: Size, params: Any) -> bool:
    """Whether caches with more room are larger: a recurrent state is not."""
    if self._grows is None:
      small, large = (
        self._shapes(dataclasses.replace(size, room=room), params).cache
        for room in (1, 2)
      )
      self._grows = bool(small != large)
    return self._grows

  def _read(
    self,
    size: Size,
    params: Any,
    batch: Batches,
    request: DecodeRequest,
  ) -> Search:
    sources = sources_of(batch, request)
    decoding, decode = self._decoding(params), self._decode
    search = decoding.begin(
      sources,
      hypotheses=decode.search.hypotheses(decode),
      length=size.length,
      room=size.room,
      strategy_state=decode.search.begin(sources.request, decode),
    )
    return decode.search.step(decoding, search, decode)

  def _decoding(self, params: Any) -> Decoding:
    return Decoding(self._model, params, self._ranks)

  def _read_program(self, size: Size, *arguments: Any) -> Any:
    size = _read_size(size)
    read = functools.partial(self._read, size)
    return self._program("read", size, read, arguments)

  def _search_program(self, size: Size, *arguments: Any) -> Any:
    """See `search`."""

    def run(
      params: Any,
      search: Search,
      read: Search,
      row_P: Array,
      place_P: Array,
      free: Array,
      max_steps: Array,
    ) -> Search:
      search = jax.tree.map(
        lambda x, new: x.at[place_P].set(
          _fitted(new[row_P], x.shape), mode="drop"
        ),
        search,
        read,
      )
      decoding = self._decoding(params)

      def goes_on(search: Search) -> Array:
        # Limits end a sentence before the largest room is too small.
        filled = jnp.max(search.at_B * search.open_B) + STEPS
        is_full = (filled > size.room) & (size.room < size.length)
        is_full = is_full | (filled > max_steps)
        return (jnp.sum(~search.open_B) < free) & ~is_full

      decode = self._decode
      small = size.places * decode.search.hypotheses(decode) <= SMALL

      def steps(search: Search) -> Search:
        for _ in range(1 if small else STEPS):
          search = decode.search.step(decoding, search, decode)
        return search

      return jax.lax.while_loop(goes_on, steps, search)

    return self._program("search", size, run, arguments, donate=1)

  def _shapes(self, size: Size, params: Any) -> Any:
    """What a search of a size is made of."""
    if size not in self._sizes:
      read = functools.partial(self._read, size)
      rows = jax.eval_shape(read, params, *self._nothing(size))
      self._sizes[size] = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((size.places, *x.shape[1:]), x.dtype),
        rows,
      )
    return self._sizes[size]

  def _program(
    self,
    name: str,
    key: Any,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    donate: Any = (),
  ) -> Any:
    shared, device_key = (name, key), (name, key, _device(arguments[0]))
    # Of two threads that come to a size together one compiles it.
    with self._locks[device_key]:
      if device_key not in self._programs:
        self._needed.add(device_key)
        try:
          self._programs[device_key] = self._compiled(
            shared, function, arguments, donate
          )
        except BaseException:
          self._needed.discard(device_key)
          raise
    return self._programs[device_key]

  def _compiled(
    self,
    shared: Any,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    donate: Any,
  ) -> Any:
    # Traced once. Compiled by one device alone at first: GPUs after it find
    # the program in the folder that JAX keeps, others compile at one time.
    with self._locks[shared]:
      if is_first := shared not in self._functions:
        self._functions[shared] = jax.jit(function, donate_argnums=donate)
      lowered = self._functions[shared].lower(*arguments)
      if is_first:
        return lowered.compile()
    return lowered.compile()


def grown(
  programs: DecodingPrograms, size: Size, params: Any
) -> Iterator[Size]:
  """The sizes that a pool goes through while its cache grows.

  Args:
    programs: of the model.
    size: of the pool, as asked.
    params: of the model, or their shapes.
  """
  room = size.room if programs.caches_grow(size, params) else size.length
  while room < size.length:
    yield dataclasses.replace(size, room=room)
    room *= 2
  yield dataclasses.replace(size, room=size.length)


def _read_size(size: Size) -> Size:
  # With room for the first subword alone, whatever room they find then.
  return dataclasses.replace(size, places=0, room=1, few=0)


def _device(tree: Any) -> jax.Device:
  """Where the first of some arrays is, or of shapes is to be."""
  sharding = getattr(jax.tree.leaves(tree)[0], "sharding", None)
  return next(iter(sharding.device_set)) if sharding else jax.local_devices()[0]


def _fitted(x: Array, shape: tuple[int, ...]) -> Array:
  """Axes after the first cut at their end, or filled up with zeros."""
  x = x[:, *(slice(size) for size in shape[1:])]
  more = [(0, size - had) for size, had in zip(shape[1:], x.shape[1:])]
  return jnp.pad(x, [(0, 0), *more])
