"""Translates raw text, CoNLL-U or JSON lines with a trained run.

  echo "Two young men are playing football." |
    jaxsyn translate --workdir runs/pascal

Lines are parsed with the parser of the run if the system reads trees. Line N of
the output translates line N of the input. The lines of a file are translated in
batches of similar length, while worker processes parse the next ones; lines from
a program or a terminal are translated as they arrive. For samples, ensembles,
prefixes and alignments see docs/translating.md.

All local devices are used. Several hosts can translate a file that they can
all read; the main process writes the output:

  jaxsyn translate --workdir runs/pascal --input a.en --output a.de \\
    --coordinator HOST:PORT --processes 2 --process 0    # and 1 on the other
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from absl import flags, logging

from jaxsyn import cli
from jaxsyn.data.sentence import stream, text
from jaxsyn.data.sentence.alignments import pharaoh
from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode import run_flags
from jaxsyn.decode.requests import Request, as_request
from jaxsyn.decode.sources import Pending
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
from jaxsyn.session import Session, finishing, inputs, search_flags
from jaxsyn.session.finishing import Finish
from jaxsyn.storage import files
from jaxsyn.training import hosts
from jaxsyn.training.runtime import set_up_jax
from jaxsyn.utils import exits, progress

# Flags that must be equal on all hosts; --workdir may be a copy.
_SAME = (
  "conllu",
  "json",
  "scores",
  "buffer",
  "errors",
  *run_flags.NAMES,
  *search_flags.NAMES,
  *finishing.NAMES,
)


# Sentences that are translated together, and their arrays.
_Block = tuple[list[Request], Pending]


def run(
  session: Session,
  sources: Iterable[Source | Request | None],
  buffer: int = 1000,
  finish: Finish | None = None,
  on_progress: ProgressCallback = ignore_progress,
) -> Iterator[list[Translation]]:
  """Yields the n-best translations of the sentences in a stream, in order.

  One block is parsed, by worker processes, while another is searched.

  Args:
    session: Opened run.
    sources: Raw lines, parses or requests, read when they are needed. Those of
      `jaxsyn.session.inputs` are translated as they arrive.
    buffer: Maximum number of sentences per device that are sorted by length and
      translated together.
    finish: Steps after the search.
    on_progress: Called with the number of further translated sentences.
  """
  for requests, read in _blocks(
    session, sources, buffer * len(session.devices)
  ):
    examples = session.examples(read)
    output_requests = [session.output_request(one) for one in requests]
    nbests = session.search(examples, output_requests, on_progress)
    if finish is not None:
      nbests = finish([one.source for one in requests], examples, nbests)
    yield from nbests


def _blocks(
  session: Session,
  sources: Iterable[Source | Request | None],
  buffer: int,
) -> Iterator[_Block]:
  """Yields blocks of sentences, while workers already parse the next block."""
  blocks: collections.deque[_Block] = collections.deque()
  indices = itertools.count()
  items: Iterable[Any] = sources
  try:
    for chunk in stream.chunks(items, buffer):
      requests = [as_request(item, next(indices)) for item in chunk]
      read = session.reader.read_async([one.source for one in requests])
      blocks.append((requests, read))
      # A short chunk: the input has paused, and its writer may wait for answers.
      while len(blocks) > (len(chunk) == buffer):
        yield blocks.popleft()
  except Exception:  # the lines before it are translated
    yield from blocks
    raise
  yield from blocks


class _ErrorOnAllHosts(InputError):
  """InputError that every host of a distributed translation raises."""


def _main(values: flags.FlagValues) -> None:
  run_flags.check(values)
  logging.set_verbosity(logging.ERROR)
  hosts.join(values)
  set_up_jax()
  fault: InputError | None = None
  with hosts.shutdown_together(values.heartbeat):
    try:
      _translate(values)
    except _ErrorOnAllHosts as error:
      fault = error  # any other error of a host stops the other hosts
  if fault is not None:
    raise fault


def _translate(values: flags.FlagValues) -> None:
  """Translates the input given by --input and writes the translations."""
  hosts.on_main_process(
    lambda: exits.check_target(values.output, "--output", store=True)
  )
  _check_hosts(values)
  session = search_flags.session_of(values)
  hosts.check_same(
    "checkpoint",
    {"it": session.chosen},
    advice="The run is being trained: select one checkpoint (--checkpoint STEP).",
  )
  finish = finishing.of_flags(values, session)
  faults: list[str] = []
  sources = inputs.of_flags(values, faults, session.output_request)
  is_first, processes = jax.process_index() == 0, jax.process_count()
  # A progress bar would disturb someone who types sentences.
  is_typed = values.input == "-" and sys.stdin.isatty()
  bar = progress.Bar(
    "translating" if processes == 1 else f"translating 1/{processes}",
    unit="sentence",
    note=session.note,
    silent=is_typed or not is_first,
  )
  writer: contextlib.AbstractContextManager[Callable[[str], None]]
  writer = contextlib.nullcontext(lambda line: None)
  if is_first:
    writer = text.writer(values.output)
  with contextlib.closing(bar), contextlib.closing(session), writer as write:
    for lines in _translations(session, sources, values, finish, bar):
      for line in lines:
        write(line)
  cut = sum(hosts.all_gather_json(session.cut))
  if cut and is_first:
    print(
      f"{cut} lines were longer than {session.sources.longest} subwords;"
      " they were truncated.",
      file=sys.stderr,
    )
  if faults and is_first:
    print(
      f"{len(faults)} lines could not be translated (--errors skip); the first: "
      f"{faults[0]}",
      file=sys.stderr,
    )


def _check_hosts(values: flags.FlagValues) -> None:
  """Raises InputError if several hosts cannot share the translation work."""
  if jax.process_count() == 1:
    return
  if values.input == "-" or (
    os.path.exists(values.input) and not os.path.isfile(values.input)
  ):
    raise InputError(
      f"--input={values.input}: each of the {jax.process_count()} processes "
      "reads the input. Name a file that all of them can read, not a pipe."
    )
  if values.output == "-":
    # Gloo prints "[Gloo] Rank 0 is connected to 1 peer ranks."
    raise InputError(
      "--output=-: with several processes the network library also prints to "
      "standard output. Name a file."
    )
  options = {name: values[name].value for name in _SAME}
  with contextlib.suppress(OSError):  # reported when it is read
    options["bytes of --input"] = files.size_of(values.input)
  hosts.check_same("command", options)


def _translations(
  session: Session,
  sources: Iterable[Request | None],
  values: flags.FlagValues,
  finish: Finish,
  bar: progress.Bar,
) -> Iterator[list[str]]:
  """Yields the output lines of each sentence, in order.

  Several hosts translate every n-th sentence, and exchange their lines after
  each block.

  Raises:
    InputError: A line of the input cannot be read; with several hosts, on all of
      them.
  """
  host, processes = jax.process_index(), jax.process_count()
  local_sources = itertools.islice(sources, host, None, processes)
  translations = run(session, local_sources, values.buffer, finish, bar.advance)
  answers = (
    list(output_lines(host + index * processes, nbest, values))
    for index, nbest in enumerate(translations)
  )
  if processes == 1:
    yield from answers
    return
  # Equal on all hosts, which may have different numbers of devices.
  max_sentences = values.buffer * max(
    hosts.all_gather_json(len(session.devices))
  )
  while True:
    block, message = [], ""
    try:
      for lines in itertools.islice(answers, max_sentences):
        block.append(lines)
    except InputError as error:
      message = str(error)
    blocks = hosts.all_gather_json([block, message])
    rounds = itertools.zip_longest(*(block for block, _ in blocks))
    in_order = itertools.chain.from_iterable(rounds)
    yield from itertools.takewhile(lambda lines: lines is not None, in_order)
    for _, message in blocks:
      if message:
        raise _ErrorOnAllHosts(message)
    if len(blocks[0][0]) < max_sentences:  # host 0 has the longest block
      return


def output_lines(
  index: int, nbest: Sequence[Translation], values: flags.FlagValues
) -> Iterator[str]:
  """Yields the output line of a sentence, or one per hypothesis with --nbest.

  Args:
    index: Index of the sentence in the input.
    nbest: Translations of the sentence, best first.
    values: Flags --nbest, --scores and --alignments.
  """
  for hypothesis in nbest[: values.nbest or 1] or [EMPTY_TRANSLATION]:
    if values.nbest:  # the format of Moses
      line = f"{index} ||| {hypothesis.text} ||| {hypothesis.score:.4f}"
    else:
      line = hypothesis.text
      line += f"\t{hypothesis.score:.4f}" if values.scores else ""
    if values.alignments:
      line += f" ||| {pharaoh(hypothesis.links)}"
    yield line


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn translate`."""
  run_flags.define()
  search_flags.define()
  finishing.define()
  flags.DEFINE_string(
    "input", "-", "Input file, plain or .gz; -: standard input."
  )
  flags.DEFINE_string("output", "-", "Output file; -: standard output.")
  flags.DEFINE_bool(
    "conllu", False, "Whether the input is CoNLL-U; default for *.conllu."
  )
  flags.DEFINE_bool(
    "json",
    False,
    'Whether the input is JSON lines, {"text": ..., "target_prefix": ...}; '
    "default for *.jsonl.",
  )
  field_flag(
    Decode,
    "nbest",
    "Number of hypotheses to print for each line, in the format of Moses: LINE "
    "||| text ||| score, with LINE from 0.",
  )
  flags.DEFINE_bool(
    "scores",
    False,
    "Whether to append a tab and the score (log probability divided by the "
    "length penalty).",
  )
  number_flag(
    "buffer",
    1000,
    Range(1, 1_000_000),
    "Maximum number of lines per device that are sorted by length together.",
  )
  flags.DEFINE_enum(
    "errors",
    "strict",
    ["strict", "skip"],
    "Handling of a line that cannot be read (not UTF-8, NUL, no tree, invalid "
    "JSON) or whose prefix cannot be encoded. strict: stop after the lines "
    "before it; skip: write an empty line.",
  )
  hosts.define_flags()


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
