"""Many examples to translations: sorted by length, in few static sizes.

Before this file: `pool`. After it: the command
`jaxsyn.translate` and the validation during training, which both use it.
"""

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

from jaxsyn import progress
from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.examples import Batcher, Batches, Example
from jaxsyn.decode.pool import ROOM, Pool
from jaxsyn.decode.programs import SMALL, DecodingPrograms, Size, grown
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.search import DecodeRequest, Hypotheses
from jaxsyn.decode.strategy import Decode
from jaxsyn.decode.terms import Terms, Wording, batch_constraints, sizes_of
from jaxsyn.models.contract import EncoderDecoder

# Padded source lengths double: a program each, and little is lost, because a
# source position costs far less than a step of the search.
SHORTEST = 16
READ = 32  # sentences that are read together
FEW_SENTENCES = 8  # sentences that take places together

ProgressCallback = Callable[[int], None]  # how many more sentences are found


def ignore_progress(count: int) -> None:
  """Nobody looks."""


@dataclasses.dataclass(frozen=True)
class Translation:
  """One hypothesis.

  Attributes:
    text: detokenised.
    score: log probability divided by the length penalty.
    log_p: log probability of its subwords, EOS included.
    ids: its subwords, without EOS.
    links: (word of the source, word of the text) between blanks, from 0, where
      they were asked for: see `jaxsyn.translating.alignments`.
  """

  text: str
  score: float
  log_p: float
  ids: tuple[int, ...]
  links: tuple[tuple[int, int], ...] = ()


EMPTY_TRANSLATION = Translation(
  "", score=0.0, log_p=0.0, ids=()
)  # of an empty line


@dataclasses.dataclass(frozen=True)
class _Job:
  """Examples that are searched together, by number, and the device that does."""

  size: Size
  numbers: list[int]
  device: jax.Device | None


class Translator:
  """A model at work. Programs are compiled at first use of a shape.

  Each device searches sentences of its own with a copy of the parameters, and
  waits for no other: nothing of a sentence depends on its neighbours.

  Attributes:
    compilations: programs made so far.
    wording: makes terms, of the vocabulary.
  """

  def __init__(
    self,
    model: EncoderDecoder | Ensemble,
    vocabulary: Vocabulary,
    config: Decode,
    *,
    features: Sequence[str] = (),
    members: Sequence[Sequence[str]] = (),
    batch_transform: BatchTransform | None = None,
    devices: Sequence[jax.Device] = (),
  ):
    """Sets it up; parameters are given with each call.

    Args:
      model: that translates.
      vocabulary: of the target side.
      config: how to search.
      features: of the source side that the model reads, beyond the ids.
      members: of an ensemble, those of each member instead.
      batch_transform: a caller's own function on every host batch.
      devices: that search, all of one kind; none: where the parameters are.
    """
    self._vocabulary, self._config = vocabulary, config
    self._hypotheses = config.search.hypotheses(config)
    self._batcher = Batcher(
      features, members=members, batch_transform=batch_transform
    )
    self.wording = Wording(vocabulary)
    self._programs = DecodingPrograms(
      *(model, config, lambda size: self._batch([], size)),
      ranks=lambda: self.wording.prefixes.rank_V,
    )
    # The loop of a search keeps one core busy, so on a CPU as many batches
    # run as there are cores.
    cpu = jax.default_backend() == "cpu"
    self._devices = tuple(devices) or (None,)
    cores = min(os.cpu_count() or 1, 8) if cpu else 1
    self._threads = max(1, cores // len(self._devices))  # of a device
    self._given: list[Any] = []  # the parameters of the last call,
    self._copies: dict[jax.Device, Any] = {}  # and on each device that had work

  @property
  def compilations(self) -> int:
    return self._programs.compilations

  @property
  def programs(self) -> tuple[int, int]:
    """How many programs are compiled and how many are needed."""
    return self.compilations, self._programs.needed

  def note(self) -> str:
    """Returns how many programs are compiled; "" while none is."""
    return progress.compiling(self.programs)

  def subwords(self, example: Example) -> int:
    """Of the source as the model reads it, EOS included."""
    return self._batcher.subwords(example)

  def __call__(
    self,
    params: Any,
    examples: Sequence[Example],
    terms: Sequence[Terms] | None = None,
    on_progress: ProgressCallback = ignore_progress,
    is_wanted: Callable[[int], bool] | None = None,
  ) -> list[list[Translation]]:
    """The n best translations of each example, in the order given.

    Args:
      params: of the model.
      examples: of `data.sentence.example.encode_all`; targets are not read.
      terms: what is asked of each, of `wording`; None: nothing, and they stand
        at 0, 1, 2, ...
      on_progress: called with how many more are found, by the threads that
        search.
      is_wanted: whether an example's translation is still wanted, by number;
        called every few steps by the threads that search. An example that is
        not is cancelled and has no translation. None: all are.
    """
    if terms is None:
      terms = [Terms(place) for place in range(len(examples))]

    def batch_of(
      numbers: Sequence[int], size: Size
    ) -> tuple[Batches, DecodeRequest]:
      chosen = [(examples[index], terms[index]) for index in numbers]
      return self._batch(chosen, size)

    def search(job: _Job, params: Any) -> list[tuple[int, Hypotheses]]:
      pool = Pool(
        *(self._programs, params, job.numbers),
        size=job.size,
        batch_of=batch_of,
        is_wanted=is_wanted,
      )
      nbests = []
      for one in pool():
        nbests.append(one)
        on_progress(1)
      return nbests

    jobs = list(self._jobs(examples, terms))
    translations = [[EMPTY_TRANSLATION] for _ in examples]
    try:
      for job in jobs:
        self._programs.need(job.size, params, job.device)
      on_progress(len(examples) - sum(len(job.numbers) for job in jobs))
      for finished in self._run(search, jobs, params):
        for index, hypotheses in finished:
          translations[index] = self._nbest(hypotheses)
    finally:
      # A search that is cancelled or fails compiles only some of them.
      self._programs.forget_uncompiled()
    return translations

  def _run(
    self, search: Callable[..., Any], jobs: Sequence[_Job], params: Any
  ) -> Iterator[Any]:
    """What comes of the jobs, in their order; each device does its own."""
    if len(jobs) == 1:  # for one sentence threads took 2 of 20 milliseconds
      yield search(jobs[0], self._placed(params, jobs[0].device))
      return
    executors = {d: ThreadPoolExecutor(self._threads) for d in self._devices}
    try:
      futures = [
        executors[job.device].submit(
          search, job, self._placed(params, job.device)
        )
        for job in jobs
      ]
      for future in futures:
        yield future.result()
    finally:
      for executor in executors.values():
        executor.shutdown(cancel_futures=True)

  def _placed(self, params: Any, device: jax.Device | None) -> Any:
    """The parameters on a device; copies are kept until others are given."""
    if device is None:
      return params
    # By the arrays: a caller may have put others into the same tree.
    leaves = jax.tree.leaves(params)
    if list(map(id, leaves)) != list(map(id, self._given)):
      self._given, self._copies = leaves, {}
    if device not in self._copies:
      self._copies[device] = jax.tree.map(
        functools.partial(_on_device, device), params
      )
    return self._copies[device]

  def forget_params(self) -> None:
    """Drops the parameters that are kept on each device for the next call."""
    self._given, self._copies = [], {}

  def sizes(self, examples: Sequence[Example]) -> set[Size]:
    """Those in which examples are searched: `compile` makes programs of them."""
    return {job.size for job in self._jobs(examples)}

  def compile(self, params: Any, examples: Sequence[Example]) -> None:
    """Makes the programs that these examples need; shapes of params will do.

    Not those of the last few, which move to fewer places.
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
      for larger in grown(self._programs, size, shapes):
        self._programs.compile(larger, shapes)

  def _jobs(
    self, examples: Sequence[Example], terms: Sequence[Terms] = ()
  ) -> Iterator[_Job]:
    """Which examples are searched together, where, and in which size."""
    terms = terms or [Terms()] * len(examples)
    alike: dict[tuple[int, tuple[bool, bool]], list[int]]
    alike = collections.defaultdict(list)
    lengths = [self._batcher.subwords(example) for example in examples]
    for index, example in enumerate(examples):
      if (length := lengths[index]) > 1:  # else an empty line
        # Seldom wider than its subwords, so that sizes stay few.
        width = max(length, self._batcher.words(example))
        alike[doubled(width, SHORTEST), terms[index].kind].append(index)
    # The widest first: what does not fit into memory is told at once.
    for (words, _), numbers in sorted(alike.items(), reverse=True):
      numbers.sort(key=lambda i: (-lengths[i], i))
      source = doubled(lengths[numbers[0]], SHORTEST)
      # Very wide sentences come fewer together, within the same memory.
      max_sentences = self._config.search.together(self._config)
      max_rows = max(1, min(max_sentences, max_sentences * 128 // words))
      few_rows = min(FEW_SENTENCES if len(numbers) > 1 else 1, max_rows)
      # Shares are fixed and not taken by who is first: a sentence keeps its
      # neighbours, and the last digit of its score, from run to run.
      # A device is worth its programs where its places are filled.
      devices = max(1, min(len(self._devices), len(numbers) // max_rows))
      shares = max(1, min(devices * self._threads, len(numbers) // few_rows))
      share = -(-len(numbers) // shares)
      job_terms = [terms[index] for index in numbers]
      length = longest_output(self._config, source)
      needed = max(self._limit(source, one) for one in job_terms)
      length = length if needed <= length else doubled(needed, length)
      places = min(doubled(share, few_rows), max_rows)
      size = Size(
        source=source,
        words=words,
        length=length,
        places=places,
        # Small caches are not worth a program for each room.
        room=length if places * self._hypotheses <= SMALL else ROOM,
        rows=min(doubled(share, few_rows), READ, max_rows),
        few=few_rows,
        constraints=sizes_of(job_terms),
      )
      for first in range(shares):
        # Few are searched by one device, for each width by another, and in the
        # next block by the same again, which has the programs.
        device = (words.bit_length() + first) % len(self._devices)
        yield _Job(size, numbers[first::shares], self._devices[device])

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
    self, chosen: Sequence[tuple[Example, Terms]], size: Size
  ) -> tuple[Batches, DecodeRequest]:
    """The facts of examples, and what is asked of them."""
    batch = self._batcher(
      [example for example, _ in chosen],
      subwords=size.source,
      words=size.words,
      rows=size.rows,
    )
    request = batch_constraints(
      [
        self._limit(self.subwords(example), example_terms)
        for example, example_terms in chosen
      ],
      [example_terms for _, example_terms in chosen],
      rows=size.rows,
      sizes=size.constraints,
    )
    return batch, request

  def _limit(self, subwords: int, terms: Terms) -> int:
    """Longest output; what is asked of a translation has room in it."""
    limit = longest_output(self._config, subwords)
    if not any(terms.kind):
      return limit
    return max(limit, terms.least + self._config.max_length_offset)


def _on_device(device: jax.Device, x: Any) -> jax.Array:
  """Returns an array on a device, as it is where each device has all of it."""
  if isinstance(x, jax.Array) and x.is_fully_replicated:
    for shard in x.addressable_shards:
      if shard.device == device:
        return shard.data
  return jax.device_put(x, device)


def longest_output(config: Decode, subwords: int) -> int:
  """Limit of a translation in subwords, EOS included; at least 1.

  Args:
    config: its factor and offset.
    subwords: of the source as the model reads it: EOS and tags count.
  """
  factor, offset = config.max_length_factor, config.max_length_offset
  return max(1, math.ceil(factor * subwords) + offset)
