"""Translates raw text, or CoNLL-U, with a trained run.

  echo "Two young men are playing football." |
    python -m jaxsyn.translate --workdir runs/pascal

Lines are parsed with the run's own parser where the system reads trees, and
answered in order as plain text: those of a file in batches of similar length,
the next ones parsed meanwhile by processes of their own; those of a program or
a terminal as they come. Line N answers line N.
"""

from __future__ import annotations

import collections
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from absl import flags, logging

from jaxsyn import cli, exits, workdir
from jaxsyn.config import Decode
from jaxsyn.data.sentence import stream, text
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.text import Faulty
from jaxsyn.decode.translator import NOTHING, Translation
from jaxsyn.errors import InputError
from jaxsyn.options import Range
from jaxsyn.options.flags import field_flag, number_flag
from jaxsyn.session import Session
from jaxsyn.training.mesh import set_up_jax

Given = Source | Faulty | None
Translate = Callable[[], list[list[Translation]]]


def run(
  session: Session, sources: Iterable[Given], buffer: int = 1000
) -> Iterator[list[Translation]]:
  """Translates a stream in order; the n best of each sentence.

  Args:
    session: an opened run.
    sources: raw lines or parses, read as they are needed; of
      `jaxsyn.data.sentence.stream.sentences`, answered as they come.
    buffer: at most so many sentences are sorted by length and translated
      together.
  """
  for given, translate in _begun(session, sources, buffer):
    translations = iter(translate())
    yield from ([NOTHING] if s is None else next(translations) for s in given)


def _begun(
  session: Session, sources: Iterable[Given], buffer: int
) -> Iterator[tuple[list[Source | None], Translate]]:
  """Blocks to be searched; one more is being parsed already, if it is there."""
  blocks: collections.deque[tuple[list[Source | None], Translate]]
  blocks = collections.deque()
  try:
    for chunk in stream.chunks(sources, buffer):
      given = [s.text if isinstance(s, Faulty) else s for s in chunk]
      real = [s for s in given if s is not None]
      blocks.append((given, session.begin(real)))
      # A writer that pauses waits for all answers.
      while len(blocks) > (len(chunk) == buffer):
        yield blocks.popleft()
  except Exception:  # what came before it is answered
    yield from blocks
    raise
  yield from blocks


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name the folder of a trained run.")
  exits.check_target(values.output, "--output")
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  names = ("beam", "alpha", "nbest")
  decode: dict[str, Any] = {
    n: values[n].value for n in names if values[n].value is not None
  }
  if values.nbest and values.beam is None:
    beam = workdir.open_run(values.workdir).config.decode.beam
    decode["beam"] = max(beam, values.nbest)
  session = Session(
    values.workdir,
    checkpoint=values.checkpoint,
    parser=values.parser,
    **decode,
  )
  faults: list[str] = []
  sources = _sources(values, faults)
  with (
    contextlib.closing(session),
    text.writer(values.output) as write,
  ):
    for number, nbest in enumerate(run(session, sources, values.buffer)):
      for line in _lines(number, nbest, values):
        write(line)
  if session.cut:
    print(
      f"{session.cut} lines were longer than {session.sources.longest} subwords;"
      " only their beginning was translated.",
      file=sys.stderr,
    )
  if faults:
    print(
      f"{len(faults)} of the lines could not be read (--errors "
      f"{values.errors}); the first: {faults[0]}",
      file=sys.stderr,
    )


def _sources(values: flags.FlagValues, faults: list[str]) -> Iterator[Given]:
  """The input; what cannot be read of it ends it, or is told in the list."""
  trees = values.conllu or stream.is_conllu(values.input)
  strict = values.errors == "strict"
  errors = "skip" if strict else values.errors
  for item in stream.sentences(values.input, trees, errors):
    if isinstance(item, Faulty):
      if strict:
        raise InputError(
          f"{item.message} Or go on: with --errors skip it is an empty line, "
          "with replace what can be read of it."
        )
      faults.append(item.message)
    yield item


def _lines(
  number: int, nbest: list[Translation], values: flags.FlagValues
) -> Iterator[str]:
  if values.nbest:  # Moses' n-best format
    for one in nbest:
      yield f"{number} ||| {one.text} ||| {one.score:.4f}"
    return
  best = nbest[0] if nbest else NOTHING
  yield f"{best.text}\t{best.score:.4f}" if values.scores else best.text


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  flags.DEFINE_string("input", "-", "Text or CoNLL-U, plain or .gz; -: stdin.")
  flags.DEFINE_string("output", "-", "File of the translations; -: stdout.")
  flags.DEFINE_bool("conllu", False, "The input is CoNLL-U (see also .conllu).")
  field_flag(
    Decode,
    "nbest",
    "Print N hypotheses a line: LINE ||| text ||| score, LINE from 0.",
  )
  flags.DEFINE_bool(
    "scores",
    False,
    "Append a tab and the score: log probability over the length penalty.",
  )
  field_flag(Decode, "beam", "Beam size, instead of the config's.")
  field_flag(Decode, "alpha", "Length penalty, instead of the config's.", float)
  flags.DEFINE_string("checkpoint", "", '"best", "last" or a step.')
  flags.DEFINE_string("parser", "", "UDPipe model, if it is not in the folder.")
  number_flag(
    "buffer",
    1000,
    Range(1, 1_000_000),
    "Lines translated together, at most: what is there is answered.",
  )
  flags.DEFINE_enum(
    "errors",
    "strict",
    text.ERRORS,
    "What to do with a line that cannot be read (no UTF-8, NUL, no tree): strict: "
    "the end, once the lines before it are answered; replace: what can be read "
    "of it; skip: an empty line.",
  )
  cli.main(_main)
