"""Many examples to translations: sorted by length, in few static shapes.

Before this file: `beam` and `greedy`, one batch each. After it: the command
`jaxsyn.translate` and the validation during training, which both use it.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsyn.config import Decode
from jaxsyn.data.loader.batch_plan import doubled
from jaxsyn.data.loader.columns import Batch, pad, words_of
from jaxsyn.data.loader.split import Change, changed
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.decode.beam import beam_search
from jaxsyn.decode.greedy import greedy_search
from jaxsyn.decode.search import NEVER, Hypotheses, Sources
from jaxsyn.models.contract import EncoderDecoder, view_of

Example = Mapping[str, np.ndarray]

# Padded source lengths double: a program each, and little is lost, because a
# source position costs far less than a step of the search.
SHORTEST = 16
FEW = 8  # rows of a batch when there are no more sentences than this


@dataclasses.dataclass(frozen=True)
class Translation:
  """One hypothesis.

  Attributes:
    text: detokenised.
    score: log probability divided by the length penalty.
    log_p: log probability of its subwords, the end sign included.
    ids: its subwords, without the end sign.
  """

  text: str
  score: float
  log_p: float
  ids: tuple[int, ...]


NOTHING = Translation("", score=0.0, log_p=0.0, ids=())  # of an empty line


class _Size(NamedTuple):
  """Static sizes of a program: padded subwords and words, and rows."""

  source: int
  words: int
  rows: int


class Translator:
  """A model at work. Programs are compiled at first use of a shape.

  Attributes:
    compilations: programs made so far.
  """

  def __init__(
    self,
    model: EncoderDecoder,
    vocabulary: Vocabulary,
    config: Decode,
    *,
    features: Sequence[str] = (),
    change: Change | None = None,
  ):
    """Sets it up; parameters are given with each call.

    Args:
      model: that translates.
      vocabulary: of the target side.
      config: how to search.
      features: of the source side that the model reads, beyond the ids.
      change: a caller's own function on every host batch.
    """
    self._model, self._vocabulary, self._config = model, vocabulary, config
    self._features = tuple(dict.fromkeys(("source_id", *features)))
    self._change = change
    self._programs: dict[Any, Any] = {}
    # The loop of a search keeps one core busy, so on a CPU as many batches
    # run as there are cores.
    cpu = jax.default_backend() == "cpu"
    self._threads = min(os.cpu_count() or 1, 8) if cpu else 1

  @property
  def compilations(self) -> int:
    return len(self._programs)

  def __call__(
    self, params: Any, examples: Sequence[Example]
  ) -> list[list[Translation]]:
    """The n best translations of each example, in the order given.

    Args:
      params: of the model.
      examples: of `jaxsyn.data.sentence.example.encode`; targets are not read.
    """
    jobs = self._jobs(examples)
    # Before the threads: two of them would compile the same program.
    for size in dict.fromkeys(size for size, _ in jobs):
      self._program(params, size)
    translations = [[NOTHING] for _ in examples]

    def search(job: tuple[_Size, list[int]]) -> tuple[list[int], Any]:
      size, numbers = job
      batch, limit_B = self._batch([examples[i] for i in numbers], size)
      return numbers, jax.device_get(
        self._program(params, size)(params, batch, limit_B)
      )

    with ThreadPoolExecutor(self._threads) as pool:
      for numbers, hypotheses in pool.map(search, jobs):
        for row, number in enumerate(numbers):
          translations[number] = self._nbest(hypotheses, row)
    return translations

  def _jobs(self, examples: Sequence[Example]) -> list[tuple[_Size, list[int]]]:
    """Which examples are searched together, and in which size."""
    length = [len(example["source_id"]) for example in examples]
    words = [words_of(example, self._features) for example in examples]
    # An end sign alone is an empty line, whose translation is empty.
    order = [i for i in range(len(examples)) if length[i] > 1]
    # The longest first: what does not fit into memory is told at once.
    order.sort(key=lambda i: (-length[i], i))
    rows = self._config.sentences if len(order) > FEW else FEW

    def count(width: int) -> int:
      # Very long sentences come in smaller batches, within the same memory.
      return max(1, min(rows, rows * 128 // width))

    jobs = []
    while order:
      width = doubled(length[order[0]], SHORTEST)
      # Seldom wider than the subwords, so that programs stay few.
      across = doubled(max(words[i] for i in order[: count(width)]), width)
      number = count(across)
      jobs.append((_Size(width, across, number), order[:number]))
      order = order[number:]
    return jobs

  def _nbest(self, hypotheses: Hypotheses, row: int) -> list[Translation]:
    nbest = []
    for n in range(self._config.nbest):
      if hypotheses.score_BN[row, n] <= NEVER / 2:
        break
      token_T = hypotheses.token_BNT[row, n]
      ids = tuple(int(t) for t in token_T[: np.count_nonzero(token_T) - 1])
      nbest.append(
        Translation(
          text=self._vocabulary.decode(ids),
          score=float(hypotheses.score_BN[row, n]),
          log_p=float(hypotheses.log_p_BN[row, n]),
          ids=ids,
        )
      )
    return nbest

  def _batch(
    self, examples: Sequence[Example], size: _Size
  ) -> tuple[Batch, np.ndarray]:
    """The facts, and limit_B."""
    batch = pad(
      examples,
      self._features,
      subwords=size.source,
      words=size.words,
      rows=size.rows,
    )
    limit_B = np.ones(size.rows, np.int32)
    for row, example in enumerate(examples):
      limit_B[row] = longest_output(self._config, len(example["source_id"]))
    return changed(batch, self._change), limit_B

  def _program(self, params: Any, size: _Size) -> Any:
    if size not in self._programs:
      search = greedy_search if self._config.beam == 1 else beam_search
      length = longest_output(self._config, size.source)

      def run(
        params: Any, batch: Mapping[str, jax.Array], limit_B: jax.Array
      ) -> Hypotheses:
        view = view_of(batch, "source")
        sources = Sources(batch["source_id_BS"], view, limit_B)
        return search(
          self._model, params, sources, decode=self._config, length=length
        )

      shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype),
        (params, *self._batch([], size)),
      )
      self._programs[size] = jax.jit(run).lower(*shapes).compile()
    return self._programs[size]


def longest_output(config: Decode, subwords: int) -> int:
  """Limit of a translation in subwords, the end sign included; at least 1.

  Args:
    config: its factor and offset.
    subwords: of the source as the model reads it: the end sign and tags count.
  """
  factor, offset = config.max_length_factor, config.max_length_offset
  return max(1, math.ceil(factor * subwords) + offset)
