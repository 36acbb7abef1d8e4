"""Programs of the usual sizes, made before anybody waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxsyn import progress
from jaxsyn.data.sentence.conllu_text import unparsed
from jaxsyn.decode.translator import SHORTEST
from jaxsyn.serving.batching import Desk


def prepare(desks: list[Desk], longest: int) -> None:
  """Compiles what translates and inspects sentences up to a length.

  Args:
    desks: of the runs.
    longest: subwords of a sentence, the end sign included; 0: nothing.
  """
  work = [
    (desk, examples)
    for desk in desks
    for example in _examples(desk, longest)
    for examples in _numbers(desk.most, example)
  ]
  with progress.bar("compiling", total=len(work), unit="size") as bar:
    for desk, examples in work:
      desk.run.session.compile(examples)
      bar.advance()


def _examples(desk: Desk, longest: int) -> Iterator[Any]:
  """A sentence of each padded length."""
  width = SHORTEST
  session = desk.run.session
  while width <= longest:
    words, found = 0, 0
    while found <= width // 2:
      words += 1
      found = len(session.sources.fit(" ".join("a" * words)).pieces.id) + 1
    ((example, _),) = session.read([unparsed(" ".join("a" * words))])
    yield example
    width *= 2


def _numbers(most: int, example: Any) -> Iterator[list[Any]]:
  """One sentence, and more of them, up to so many."""
  number = 1
  while number < most:
    yield [example] * number
    number *= 2
  yield [example] * most
