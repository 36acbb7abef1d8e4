"""Translates many examples, grouped by length into a few static sizes."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.examples import Batcher, Batches, Example
from jaxsyn.decode.pool import CACHE_LENGTH, Pool
from jaxsyn.decode.prefix import (
  Automaton,
  OutputRequest,
  PrefixCompiler,
  batch_prefixes,
  padded_sizes,
)
from jaxsyn.decode.programs import (
  SMALL,
  DecodingPrograms,
  PoolSize,
  cache_sizes,
)
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.search import DecodeRequest, Hypotheses
from jaxsyn.decode.strategies import Decode
from jaxsyn.utils import progress

# Smallest padded source length; the next ones are doubled. Each length needs its
# own programs, and padding costs little: a source position is far cheaper than a
# step of the search.
SHORTEST = 16
ENCODE_ROWS = 32  # maximum sentences that are encoded together
ENTERING = 8  # maximum sentences that enter slots together

ProgressCallback = Callable[[int], None]  # number of further sentences


def ignore_progress(count: int) -> None:
  """Ignores progress; the default callback."""


@dataclasses.dataclass(frozen=True)
class Translation:
  """Translation hypothesis: text, score, subwords and word alignment.

  Attributes:
    text: Detokenized text.
    score: Log probability divided by the length penalty.
    log_p: Log probability of the subwords, EOS included.
    ids: Subwords without EOS.
    links: Word alignment, if requested: pairs (source word, target word) of
      whitespace-separated words, from 0; see `jaxsyn.session.alignments`.
  """

  text: str
  score: float
  log_p: float
  ids: tuple[int, ...]
  links: tuple[tuple[int, int], ...] = ()


# The translation of an empty line.
EMPTY_TRANSLATION = Translation("", score=0.0, log_p=0.0, ids=())


@dataclasses.dataclass(frozen=True)
class _Job:
  """Indices of the examples that are decoded together on one device."""

  size: PoolSize
  indices: list[int]
  device: jax.Device | None


class Translator:
  """Callable that translates examples; compiles programs for new sizes.

  Each device searches its own sentences with a copy of the parameters, without
  synchronization: sentences are independent.

  Attributes:
    compile_prefix: Function that compiles the text of a prefix.
    hypotheses: Number of hypotheses of a sentence.
  """

  def __init__(
    self,
    ensemble: Ensemble,
    vocabulary: Vocabulary,
    config: Decode,
    batcher: Batcher | None = None,
    *,
    devices: Sequence[jax.Device] = (),
  ):
    """Creates a translator; model parameters are arguments of each call.

    Args:
      ensemble: Models.
      vocabulary: Target vocabulary.
      config: Options of decoding.
      batcher: Function that makes batches of examples; None: of the ids for one
        model.
      devices: Devices of one kind that search; (): that of the parameters.
    """
    self._vocabulary, self._config = vocabulary, config
    self.hypotheses = config.search.hypotheses(config)
    self._batch_size = config.search.batch_size(config)
    self._batcher = batcher or Batcher()
    self._programs = DecodingPrograms(
      ensemble,
      config,
      lambda size: self._batch([], size),
      piece_rank=lambda: self.compile_prefix.rank_V,
    )
    # The loop of a search keeps one core busy: on a CPU one pool runs per core.
    is_cpu = jax.default_backend() == "cpu"
    self._devices = tuple(devices) or (None,)
    cores = min(os.cpu_count() or 1, 8) if is_cpu else 1
    self._threads = max(1, cores // len(self._devices))  # per device
    self._params_leaves: list[Any] = []  # of the last call,
    self._params_copies: dict[jax.Device, Any] = {}  # on each device in use

  @functools.cached_property
  def compile_prefix(self) -> PrefixCompiler:
    return PrefixCompiler(self._vocabulary)

  @property
  def compilations(self) -> int:
    """Number of compiled programs."""
    return self.programs[0]

  @property
  def programs(self) -> tuple[int, int]:
    """Pair (number of compiled programs, number compiled or to be compiled)."""
    return self._programs.counts

  def note(self) -> str:
    """Returns the progress of compilation as text; "" once it is complete."""
    return progress.compiling(self.programs)

  def subwords(self, example: Example) -> int:
    """Returns the number of source subwords of an example, EOS included."""
    return self._batcher.subwords(example)

  def __call__(
    self,
    params: Sequence[Any],
    examples: Sequence[Example],
    requests: Sequence[OutputRequest] | None = None,
    on_progress: ProgressCallback = ignore_progress,
    is_wanted: Callable[[int], bool] | None = None,
  ) -> list[list[Translation]]:
    """Returns the n-best translations of each example, in input order.

    Args:
      params: Parameters of each model.
      examples: Arrays of each model; targets are not read.
      requests: Requirements of each translation; None: no prefixes, and
        indices 0, 1, 2, ...
      on_progress: Called with the number of further translated sentences, from
        the threads that search.
      is_wanted: Whether the translation of an example is still wanted, by its
        index; called every few steps from the threads that search. An unwanted
        example is cancelled and has no translation. None: all are wanted.
    """
    if requests is None:
      requests = [OutputRequest(index) for index in range(len(examples))]

    def batch_of(
      indices: Sequence[int], size: PoolSize
    ) -> tuple[Batches, DecodeRequest]:
      return self._batch([(examples[i], requests[i]) for i in indices], size)

    def search(job: _Job, params: Any) -> list[tuple[int, Hypotheses]]:
      pool = Pool(
        self._programs,
        params,
        job.indices,
        size=job.size,
        batch_of=batch_of,
        is_wanted=is_wanted,
      )
      finished = []
      for pair in pool():
        finished.append(pair)
        on_progress(1)
      return finished

    jobs = list(self._jobs(examples, requests))
    translations = [[EMPTY_TRANSLATION] for _ in examples]
    try:
      for job in jobs:
        self._programs.need(job.size, params, job.device)
      on_progress(len(examples) - sum(len(job.indices) for job in jobs))
      for finished in self._run(search, jobs, params):
        for index, hypotheses in finished:
          translations[index] = self._nbest(hypotheses)
    finally:
      # A search that is cancelled or fails does not compile all programs.
      self._programs.forget_uncompiled()
    return translations

  def _run(
    self, search: Callable[..., Any], jobs: Sequence[_Job], params: Any
  ) -> Iterator[Any]:
    """Runs translation jobs on their devices; yields results in job order."""
    if len(jobs) == 1:  # threads took 2 of 20 ms for one sentence
      yield search(jobs[0], self._params_on(params, jobs[0].device))
      return
    executors = {d: ThreadPoolExecutor(self._threads) for d in self._devices}
    try:
      futures = [
        executors[job.device].submit(
          search, job, self._params_on(params, job.device)
        )
        for job in jobs
      ]
      for future in futures:
        yield future.result()
    finally:
      for executor in executors.values():
        executor.shutdown(cancel_futures=True)

  def _params_on(self, params: Any, device: jax.Device | None) -> Any:
    """Returns the parameters on a device; keeps the copy for later calls."""
    if device is None:
      return params
    # Compares the arrays: the caller may have replaced them in the same tree.
    leaves = jax.tree.leaves(params)
    if list(map(id, leaves)) != list(map(id, self._params_leaves)):
      self._params_leaves, self._params_copies = leaves, {}
    if device not in self._params_copies:
      self._params_copies[device] = jax.tree.map(
        functools.partial(_on_device, device), params
      )
    return self._params_copies[device]

  def forget_params(self) -> None:
    """Frees the parameter copies that `_params_on` keeps on devices."""
    self._params_leaves, self._params_copies = [], {}

  def sizes(self, examples: Sequence[Example]) -> set[PoolSize]:
    """Returns the array sizes with which decoding of the examples starts."""
    return {job.size for job in self._jobs(examples)}

  def compile(self, params: Sequence[Any], examples: Sequence[Example]) -> None:
    """Compiles the programs that are needed to translate some examples.

    Programs of smaller pools, for the last few sentences, are not included.

    Args:
      params: Parameters of each model, or their shapes.
      examples: Examples.
    """
    jobs = self._jobs(examples)
    for size, device in dict.fromkeys((job.size, job.device) for job in jobs):
      sharding = SingleDeviceSharding(device) if device else None
      shapes = jax.tree.map(
        lambda x, sharding=sharding: jax.ShapeDtypeStruct(
          x.shape, x.dtype, sharding=sharding
        ),
        params,
      )
      for larger in cache_sizes(self._programs, size, shapes):
        self._programs.compile(larger, shapes)

  def _jobs(
    self, examples: Sequence[Example], requests: Sequence[OutputRequest] = ()
  ) -> Iterator[_Job]:
    """Groups examples of similar length, and assigns the groups to devices."""
    requests = requests or [OutputRequest()] * len(examples)
    groups: dict[tuple[int, bool], list[int]] = collections.defaultdict(list)
    lengths = [self._batcher.subwords(example) for example in examples]
    for index, example in enumerate(examples):
      if lengths[index] > 1:  # otherwise an empty line
        # Grouped by words too, which are rarely more than the subwords.
        width = max(lengths[index], self._batcher.words(example))
        has_prefix = bool(requests[index].prefix)
        groups[doubled(width, SHORTEST), has_prefix].append(index)
    # The widest first, so that a lack of memory is reported at once.
    for (words, _), indices in sorted(groups.items(), reverse=True):
      indices.sort(key=lambda i: (-lengths[i], i))
      source = doubled(lengths[indices[0]], SHORTEST)
      # Fewer very wide sentences are searched together, in the same memory.
      max_slots = self._batch_size * 128 // words
      max_slots = max(1, min(self._batch_size, max_slots))
      entering = min(ENTERING if len(indices) > 1 else 1, max_slots)
      # The division is fixed, not by which pool is free: the neighbors of a
      # sentence, and so the last digit of its score, are the same in each run.
      # A device is used only if its slots are filled.
      devices = max(1, min(len(self._devices), len(indices) // max_slots))
      parts = max(1, min(devices * self._threads, len(indices) // entering))
      part = -(-len(indices) // parts)
      group_requests = [requests[i] for i in indices]
      length = max_output_length(self._config, source)
      needed = max(self._limit(source, request) for request in group_requests)
      length = length if needed <= length else doubled(needed, length)
      slots = min(doubled(part, entering), max_slots)
      size = PoolSize(
        source=source,
        words=words,
        length=length,
        slots=slots,
        # Small caches do not grow, because each length compiles a program.
        cache_length=length
        if slots * self.hypotheses <= SMALL
        else CACHE_LENGTH,
        encode_rows=min(doubled(part, entering), ENCODE_ROWS, max_slots),
        entering=entering,
        prefix=padded_sizes([request.prefix for request in group_requests])
        if group_requests[0].prefix
        else None,
      )
      for first in range(parts):
        # By length, so that small groups use different devices, and the same
        # device, which has the programs, in the next call.
        device = (words.bit_length() + first) % len(self._devices)
        yield _Job(size, indices[first::parts], self._devices[device])

  def _nbest(self, hypotheses: Hypotheses) -> list[Translation]:
    nbest = []
    for n in range(self._config.nbest):
      if hypotheses.score_BN[n] <= NEG_INF / 2:
        continue
      token_T = hypotheses.token_BNT[n]
      ids = tuple(int(t) for t in token_T[: np.count_nonzero(token_T) - 1])
      nbest.append(
        Translation(
          text=self._vocabulary.decode(ids),
          score=float(hypotheses.score_BN[n]),
          log_p=float(hypotheses.log_p_BN[n]),
          ids=ids,
        )
      )
    return nbest

  def _batch(
    self, chosen: Sequence[tuple[Example, OutputRequest]], size: PoolSize
  ) -> tuple[Batches, DecodeRequest]:
    """Pads examples to batches, and combines their limits and prefixes."""
    rows = size.encode_rows
    batches = self._batcher(
      [example for example, _ in chosen],
      subwords=size.source,
      words=size.words,
      rows=rows,
    )
    limit_B: Any = np.ones(rows, np.int32)
    index_B: Any = np.zeros(rows, np.int32)
    prefixes: list[Automaton] = [()] * rows
    for row, (example, request) in enumerate(chosen):
      limit_B[row] = self._limit(self.subwords(example), request)
      index_B[row], prefixes[row] = request.index, request.prefix
    prefix = batch_prefixes(prefixes, size.prefix) if size.prefix else None
    return batches, DecodeRequest(limit_B, index_B, prefix)

  def _limit(self, subwords: int, request: OutputRequest) -> int:
    """Returns the maximum output length for a sentence and its prefix."""
    limit = max_output_length(self._config, subwords)
    if not request.prefix:
      return limit
    return max(limit, request.positions + self._config.max_length_offset)


def _on_device(device: jax.Device, x: Any) -> jax.Array:
  """Places an array on a device without copying data that is already there."""
  if isinstance(x, jax.Array) and x.is_fully_replicated:
    for shard in x.addressable_shards:
      if shard.device == device:
        return shard.data
  return jax.device_put(x, device)


def max_output_length(config: Decode, subwords: int) -> int:
  """Returns the maximum output length in subwords, EOS included; at least 1.

  Args:
    config: Options of decoding: the factor and the offset.
    subwords: Number of source subwords; EOS and tags count.
  """
  factor, offset = config.max_length_factor, config.max_length_offset
  return max(1, math.ceil(factor * subwords) + offset)
