"""Translates raw text, or CoNLL-U, with a trained run.

  echo "Two young men are playing football." |
    jaxsyn translate --workdir runs/pascal

Lines are parsed with the run's own parser where the system reads trees, and
answered in order as plain text: those of a file in batches of similar length,
the next ones parsed meanwhile by processes of their own; those of a program or
a terminal as they come. Line N answers line N. Samples, ensembles, prefixes,
constraints and alignments: docs/translating.md.

All devices of a machine search. So do several machines, each a share of the lines
of a file that all can read, on an object store too; the first writes:

  jaxsyn translate --workdir runs/pascal --input a.en --output a.de \
    --coordinator HOST:PORT --processes 2 --process 0    # and 1 on the other
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
from absl import flags, logging

from jaxsyn import cli, exits, progress
from jaxsyn.data.sentence import stream, text
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.text import Faulty
from jaxsyn.decode.requests import Request, request
from jaxsyn.decode.strategies import Decode
from jaxsyn.decode.translator import (
  EMPTY_TRANSLATION,
  ProgressCallback,
  Translation,
  ignore_progress,
)
from jaxsyn.errors import InputError
from jaxsyn.options import Range
from jaxsyn.options.flags import field_flag, number_flag
from jaxsyn.session import Finish, Session
from jaxsyn.storage import files
from jaxsyn.training import hosts
from jaxsyn.training.mesh import set_up_jax
from jaxsyn.translating import (
  finishing,
  inputs,
  outputs,
  run_flags,
  search_flags,
)

# What several processes must agree on; the folder may be a copy.
_SAME = (
  *("conllu", "json", "scores", "buffer", "errors"),
  *(*run_flags.NAMES, *search_flags.NAMES, *finishing.NAMES),
)

Given = Source | Request | Faulty | None
Translate = Callable[[], list[list[Translation]]]


def run(
  session: Session,
  sources: Iterable[Given],
  buffer: int = 1000,
  finish: Finish | None = None,
  on_progress: ProgressCallback = ignore_progress,
) -> Iterator[list[Translation]]:
  """Translates a stream in order; the n best of each sentence.

  Args:
    session: an opened run.
    sources: raw lines, parses or requests, read as they are needed; of
      `jaxsyn.translating.inputs`, answered as they come.
    buffer: at most so many sentences for each device are sorted by length and
      translated together.
    finish: what is done with what was found; see `Session.begin`.
    on_progress: called with how many more are found, before they are in order.
  """
  buffer *= len(session.devices)
  for chunk_requests, translate in _start(
    session, sources, buffer, finish, on_progress
  ):
    on_progress(sum(one is None for one in chunk_requests))
    translations = iter(translate())
    yield from (
      [EMPTY_TRANSLATION] if s is None else next(translations)
      for s in chunk_requests
    )


def _start(
  session: Session,
  sources: Iterable[Given],
  buffer: int,
  finish: Finish | None,
  on_progress: ProgressCallback,
) -> Iterator[tuple[list[Request | None], Translate]]:
  """Blocks to be searched; one more is being parsed already, if it is there."""
  blocks: collections.deque[tuple[list[Request | None], Translate]]
  blocks, indices = collections.deque(), itertools.count()
  try:
    items: Iterable[Any] = sources
    for chunk in stream.chunks(items, buffer):
      chunk_requests = [_with_index(item, next(indices)) for item in chunk]
      real = [s for s in chunk_requests if s is not None]
      blocks.append((chunk_requests, session.begin(real, finish, on_progress)))
      # A writer that pauses waits for all answers.
      while len(blocks) > (len(chunk) == buffer):
        yield blocks.popleft()
  except Exception:  # what came before it is answered
    yield from blocks
    raise
  yield from blocks


def _with_index(item: Source | Request | Faulty, index: int) -> Request | None:
  """Returns an item as a request, with an index unless it has one."""
  source = item.text if isinstance(item, Faulty) else item
  if source is None:
    return None
  result = request(source)
  if result.index is not None:
    return result
  return dataclasses.replace(result, index=index)


def _main(values: flags.FlagValues) -> None:
  run_flags.check(values)
  logging.set_verbosity(logging.ERROR)
  hosts.join(values)
  set_up_jax()
  with hosts.shutdown_together(values.heartbeat):
    fault = _translate(values)
  if fault:
    raise fault


def _translate(values: flags.FlagValues) -> InputError | None:
  """Returns, for it raises what one process alone has met, what all have."""
  hosts.on_main_process(
    lambda: exits.check_target(values.output, "--output", store=True)
  )
  if jax.process_count() > 1:
    _check_files(values)
    options = {name: values[name].value for name in _SAME}
    with contextlib.suppress(OSError):  # told when it is read
      options["bytes of --input"] = files.size_of(values.input)
    hosts.check_same("command", options)
  session = search_flags.session_of(values)
  hosts.check_same(
    "checkpoint",
    {"it": session.chosen},
    advice="The run trains meanwhile: name one that stays (--checkpoint STEP).",
  )
  finish = finishing.of_flags(values, session)
  faults: list[str] = []
  sources = inputs.of_flags(values, faults, session.output_request)
  is_first = jax.process_index() == 0
  writer = text.writer(values.output) if is_first else null_writer()
  try:
    # Who types sentences sees the answers.
    typed = values.input == "-" and sys.stdin.isatty()
    share = "" if jax.process_count() == 1 else f" 1/{jax.process_count()}"
    bar = progress.Bar(
      f"translating{share}",
      unit="sentence",
      note=session.note,
      silent=typed or not is_first,
    )
    with contextlib.closing(bar), contextlib.closing(session), writer as write:
      for lines in _translations(session, sources, values, finish, bar):
        for line in lines:
          write(line)
  except _MetByAll as fault:
    return fault
  cut = sum(hosts.all_gather_json(session.cut))
  if is_first:
    _report(values, session, cut=cut, faults=faults)
  return None


class _MetByAll(InputError):
  """A fault of the input, told when all processes have come to it."""


@contextlib.contextmanager
def null_writer() -> Iterator[Callable[[str], None]]:
  yield lambda line: None


def _check_files(values: flags.FlagValues) -> None:
  """Several processes work on files: they read again, and libraries print."""
  if values.input == "-" or (
    os.path.exists(values.input) and not os.path.isfile(values.input)
  ):
    raise InputError(
      f"--input={values.input}: each of the {jax.process_count()} processes "
      "reads the input. Name a file that all of them see, no pipe."
    )
  if values.output == "-":
    # Gloo does: "[Gloo] Rank 0 is connected to 1 peer ranks."
    raise InputError(
      "--output=-: what connects several processes prints there too. Name a "
      "file."
    )


def _translations(
  session: Session,
  sources: Iterable[Given],
  values: flags.FlagValues,
  finish: Finish,
  bar: progress.Bar,
) -> Iterator[list[str]]:
  """What is written for each sentence, in order.

  Several processes take sentences in turn, and meet after so many.

  Raises:
    InputError: as the sources; of several processes in all at the same place.
  """
  me, processes = jax.process_index(), jax.process_count()
  local_sources = itertools.islice(sources, me, None, processes)
  translations = run(session, local_sources, values.buffer, finish, bar.advance)
  answers = (
    list(outputs.lines(me + index * processes, nbest, values))
    for index, nbest in enumerate(translations)
  )
  if processes == 1:
    yield from answers
    return
  # The same for all: one may have more devices than another.
  max_sentences = values.buffer * max(
    hosts.all_gather_json(len(session.devices))
  )
  while True:
    messages, fault = [], ""
    try:
      for answer in itertools.islice(answers, max_sentences):
        messages.append(answer)
    except InputError as error:
      fault = str(error)
    shares = hosts.all_gather_json([messages, fault])
    turns = itertools.zip_longest(*(messages for messages, _ in shares))
    in_order = itertools.chain.from_iterable(turns)
    yield from itertools.takewhile(
      lambda messages: messages is not None, in_order
    )
    if fault := next((fault for _, fault in shares if fault), ""):
      raise _MetByAll(fault)
    if len(shares[0][0]) < max_sentences:  # the longest
      return


def _report(
  values: flags.FlagValues, session: Session, *, cut: int, faults: list[str]
) -> None:
  """What the reader of the translations has to know, on standard error."""
  if cut:
    print(
      f"{cut} lines were longer than {session.sources.longest} subwords;"
      " only their beginning was translated.",
      file=sys.stderr,
    )
  if faults:
    print(
      f"{len(faults)} of the lines could not be translated (--errors "
      f"{values.errors}); the first: {faults[0]}",
      file=sys.stderr,
    )


def define_flags() -> None:
  """Those of the command."""
  run_flags.define()
  search_flags.define()
  finishing.define()
  flags.DEFINE_string("input", "-", "Text or CoNLL-U, plain or .gz; -: stdin.")
  flags.DEFINE_string("output", "-", "File of the translations; -: stdout.")
  flags.DEFINE_bool("conllu", False, "The input is CoNLL-U (see also .conllu).")
  flags.DEFINE_bool(
    "json",
    False,
    'The input is JSON lines (see also .jsonl): {"text": ..., '
    '"target_prefix": ...}.',
  )
  flags.DEFINE_string(
    "prefix", "", "File of what each translation begins with, a line each."
  )
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
  number_flag(
    "buffer",
    1000,
    Range(1, 1_000_000),
    "Lines translated together, for each device, at most: what is there is "
    "answered.",
  )
  flags.DEFINE_enum(
    "errors",
    "strict",
    text.ERRORS,
    "Handling of a line that cannot be read (not UTF-8, NUL, no tree, invalid "
    "JSON) or whose prefix cannot be written. strict: stop after the lines "
    "before it; replace: translate the readable part; skip: write an empty "
    "line.",
  )
  hosts.define_flags()


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
