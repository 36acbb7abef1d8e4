"""Compilation of the programs for common sizes before the first request."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxsyn import progress
from jaxsyn.data.schema import EOS
from jaxsyn.data.sentence.conllu import unparsed
from jaxsyn.decode.translator import SHORTEST
from jaxsyn.serving.batching import RequestQueue
from jaxsyn.session import Session


def prepare(
  queues: Sequence[RequestQueue],
  longest: int,
  on_progress: Callable[[int, int], None] = lambda compiled, sizes: None,
) -> None:
  """Compiles the programs for sentences up to a length.

  The programs for one short sentence come first, for every run.

  Args:
    queues: Queues of the runs.
    longest: Subwords of a sentence, including EOS; 0: compile nothing.
    on_progress: Called with the numbers of compiled sizes and of all sizes, first
      with 0. Not called if there are no sizes.
  """
  sizes = [size for queue in queues for size in _sizes(queue, longest)]
  sizes.sort(key=lambda size: (size.width, size.sentences))
  if sizes:
    on_progress(0, len(sizes))
  # Sizes take very different times: no remaining time is shown.
  with progress.bar(
    "compiling programs", total=len(sizes), unit="size", speed=False
  ) as bar:
    for compiled, size in enumerate(sizes, 1):
      size.compile()
      on_progress(compiled, len(sizes))
      bar.advance()


@dataclasses.dataclass(frozen=True)
class _Size:
  """A batch size: padded subwords per sentence, and sentences."""

  width: int
  sentences: int
  compile: Callable[[], Any]


def _sizes(queue: RequestQueue, longest: int) -> Iterator[_Size]:
  session, most = queue.run.session, queue.max_sentences
  width = SHORTEST
  while width <= longest:
    examples = _examples(session, width)
    known: set[Any] = set()
    for count in range(1, most + 1):
      batch = examples[:1] * count
      sizes = session.sizes(batch)
      if not sizes <= known:
        yield _Size(width, count, functools.partial(session.compile, batch))
      known |= sizes
    # A search of sentences of different lengths also compiles the programs that
    # move the remaining sentences to a smaller batch.
    mixed = list(itertools.islice(itertools.cycle(examples), most))
    yield _Size(width, most, functools.partial(session.search, mixed))
    if len(session.members) == 1:
      inspect = functools.partial(_inspect, queue, examples[0])
      yield _Size(width, 1, inspect)
    width *= 2


def _examples(session: Session, width: int) -> list[Any]:
  """Returns a sentence of each length that is padded to a width."""
  parses = []
  for words in range(1, width):
    text = " ".join("a" * words)
    length = len(session.reader.fit(text).pieces.id) + 1  # with EOS
    if width // 2 < length <= width:
      parses.append(unparsed(text))
  return [example for example, _ in session.reader.read_all(parses)]


def _inspect(queue: RequestQueue, example: Any) -> None:
  list(queue.run.inspector.maps(queue.run.session.params, [example], [(EOS,)]))
