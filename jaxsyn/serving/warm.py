"""Programs of the usual sizes, made before anybody waits for them.

Before this file: `runs`, `batching`. After it: the command `jaxsyn.serve`.
"""

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
  desks: Sequence[RequestQueue],
  longest: int,
  on_progress: Callable[[int, int], None] = lambda compiled, sizes: None,
) -> None:
  """Compiles what translates and inspects sentences up to a length.

  Short sentences come first, and one alone before several: what a short sentence
  needs of every run is there before anything else.

  Args:
    desks: of the runs.
    longest: subwords of a sentence, EOS included; 0: nothing.
    on_progress: called with how many sizes are compiled, and how many will be:
      at the beginning, and after each. Not called where there are none.
  """
  sizes = [size for queue in desks for size in _sizes(queue, longest)]
  sizes.sort(key=lambda size: (size.width, size.sentences))
  if sizes:
    on_progress(0, len(sizes))
  # Sizes take very different times: no remaining time is shown.
  with progress.bar(
    "compiling programs", total=len(sizes), unit="size", speed=False
  ) as bar:
    for compiled, size in enumerate(sizes, 1):
      size.make()
      on_progress(compiled, len(sizes))
      bar.advance()


@dataclasses.dataclass(frozen=True)
class _Size:
  """A size of a batch: padded subwords of a sentence, sentences; who makes it."""

  width: int
  sentences: int
  make: Callable[[], Any]


def _sizes(queue: RequestQueue, longest: int) -> Iterator[_Size]:
  """What a run needs."""
  session, width = queue.run.session, SHORTEST
  while width <= longest:
    example = _example(session, width)
    known: set[Any] = set()
    for count in range(1, queue.max_sentences + 1):
      new = session.sizes([example] * count)
      if not new <= known:
        make = functools.partial(session.compile, [example] * count)
        yield _Size(width, count, make)
      known |= new
    # Of several lengths: programs that move them to fewer places are made too.
    mixed = _mixed(session, width, queue.max_sentences)
    yield _Size(
      width, queue.max_sentences, functools.partial(session.search, mixed)
    )
    if len(session.members) == 1:
      yield _Size(width, 1, functools.partial(_inspect, queue, example))
    width *= 2


def _example(session: Session, width: int) -> Any:
  """A sentence of a padded length."""
  words = 1
  while _subwords(session, words) <= width // 2:
    words += 1
  ((example, _),) = session.reader.read_all([unparsed(_text(words))])
  return example


def _mixed(session: Session, width: int, sentence_count: int) -> list[Any]:
  """So many sentences of a padded length, some shorter than others."""
  words = [
    count
    for count in range(1, width)
    if width // 2 < _subwords(session, count) <= width
  ]
  parses = [unparsed(_text(count)) for count in words]
  examples = [example for example, _ in session.reader.read_all(parses)]
  return list(itertools.islice(itertools.cycle(examples), sentence_count))


def _subwords(session: Session, words: int) -> int:
  return len(session.reader.fit(_text(words)).pieces.id) + 1


def _text(words: int) -> str:
  return " ".join("a" * words)


def _inspect(queue: RequestQueue, example: Any) -> None:
  list(queue.run.inspector.maps(queue.run.session.params, [example], [(EOS,)]))
