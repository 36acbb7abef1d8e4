"""Forced decoding (`jaxsyn score --force`): log probabilities of given translations.

It serves to rerank n-best lists of any system, and to compare minimal pairs. The
output has one line for each hypothesis, in order. LINE counts from 0, as in n-best
lists:

  LINE <tab> log p <tab> log p over the length penalty <tab> subwords

With --json, each line is an object with all subwords and their log probabilities.
EOS is one of the subwords. With --alignments, word alignments come last.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from absl import flags

from jaxsyn import progress
from jaxsyn.data.sentence import stream, text
from jaxsyn.data.sentence.alignments import Links, pharaoh
from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode import run_flags
from jaxsyn.decode.forced import Scored
from jaxsyn.decode.requests import request
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.session.alignments import Aligner
from jaxsyn.training.runtime import set_up_jax

BLOCK = 2000  # hypotheses scored together


@dataclasses.dataclass(frozen=True)
class Hypothesis:
  """A translation to score.

  Attributes:
    line: Index of its source sentence, from 0.
    text: Text of the translation.
  """

  line: int
  text: str


def run(
  session: Session,
  sources: Sequence[Source],
  hypotheses: Iterable[Hypothesis],
  on_progress: Callable[[int], None] = lambda scored: None,
) -> Iterator[tuple[Hypothesis, Scored]]:
  """Yields the hypotheses in order, each with its log probability.

  Args:
    session: Opened run or ensemble.
    sources: Raw lines or parses.
    hypotheses: Translations of the sources.
    on_progress: Function that is called with the number of newly scored hypotheses.

  Raises:
    InputError: A hypothesis has a source index that does not exist.
  """
  hypotheses = iter(hypotheses)
  while block := list(itertools.islice(hypotheses, BLOCK)):
    for one in block:
      if not 0 <= one.line < len(sources):
        raise InputError(
          f"a hypothesis is of line {one.line}, but there are {len(sources)} "
          "sources, from 0."
        )
    scored = session.force(
      [sources[one.line] for one in block],
      [one.text for one in block],
      on_progress,
    )
    yield from zip(block, scored, strict=True)


def aligned(
  session: Session,
  sources: Sequence[Source],
  hypotheses: Sequence[Hypothesis],
  layer: int | None = None,
) -> Iterator[Links]:
  """Yields the word alignment of each hypothesis with its source.

  Args:
    session: Opened run or ensemble.
    sources: Raw lines or parses.
    hypotheses: Translations of the sources.
    layer: Decoder layer, as in `Aligner`.
  """
  aligner = Aligner(session, layer)
  for begin in range(0, len(hypotheses), BLOCK):
    block = hypotheses[begin : begin + BLOCK]
    block_sources = [sources[one.line] for one in block]
    examples = session.begin_examples(block_sources)()
    translations = [
      Translation(one.text, 0.0, 0.0, tuple(session.subwords(one.text)))
      for one in block
    ]
    requests = [request(source) for source in block_sources]
    for alignment in aligner(requests, examples, translations):
      yield alignment.links


def read(path: str, *, nbest: bool) -> list[Hypothesis]:
  """Returns the hypotheses of a file.

  Args:
    path: Text file with one translation per line; plain or .gz.
    nbest: Whether the file is an n-best list in the format of Moses.

  Raises:
    InputError: The file cannot be read, or a line is not of an n-best list.
  """
  lines = text.lines_of(path)
  if not nbest:
    return [Hypothesis(*pair) for pair in enumerate(lines)]
  hypotheses = []
  for line_number, line in enumerate(lines, start=1):
    fields = line.split(" ||| ")
    if len(fields) < 2 or not fields[0].strip().isdecimal():
      raise InputError(
        f"{path}:{line_number}: {line[:60]!r} is no line of an n-best list, as in "
        "0 ||| ein Text ||| -0.5."
      )
    hypotheses.append(Hypothesis(int(fields[0]), fields[1]))
  return hypotheses


def main(values: flags.FlagValues) -> None:
  """Runs `jaxsyn score --force` with parsed flags."""
  run_flags.check(values)
  if values.reference:
    raise InputError(
      "--force scores with a run; it has no use for --reference."
    )
  if not values.source or len(values.hypothesis) != 1:
    raise InputError(
      "--force needs --source and one --hypothesis, each a file."
    )
  set_up_jax()
  (path,) = values.hypothesis
  hypotheses = read(path, nbest=values.nbest_list)
  trees = values.conllu or stream.is_conllu(values.source)
  sources = list(text.whole(stream.sentences(values.source, trees)))
  if not values.nbest_list and len(hypotheses) != len(sources):
    raise InputError(
      f"{path} has {len(hypotheses)} lines, but {values.source} has "
      f"{len(sources)}: line N of one must translate line N of the other."
    )
  session = Session(**run_flags.session_arguments(values))
  links: Iterable[Links | None] = itertools.repeat(None)
  if values.alignments:
    links = aligned(session, sources, hypotheses, values.alignment_layer)
  format_line = as_json if values.json else as_text
  with progress.bar(
    "scoring", len(hypotheses), unit="line", note=session.note
  ) as bar:
    results = run(session, sources, hypotheses, bar.advance)
    for (one, scored), line_links in zip(results, links):
      print(f"{format_line(one, scored, line_links)}\n", end="")
  session.close()


def as_text(one: Hypothesis, scored: Scored, links: Links | None = None) -> str:
  """Returns the tab-separated line of a scored hypothesis."""
  numbers = f"{scored.total:.6f}\t{scored.score:.6f}\t{len(scored.log_p)}"
  links_column = "" if links is None else f"\t{pharaoh(links)}"
  return f"{one.line}\t{numbers}{links_column}"


def as_json(one: Hypothesis, scored: Scored, links: Links | None = None) -> str:
  """Returns the JSON line of a scored hypothesis."""
  subwords = [
    [piece, round(log_p, 6)]
    for piece, log_p in zip(scored.subwords, scored.log_p, strict=True)
  ]
  content = {"line": one.line, "text": one.text}
  content |= {"log_p": round(scored.total, 6), "score": round(scored.score, 6)}
  if links is not None:
    content["alignments"] = pharaoh(links)
  return json.dumps(content | {"subwords": subwords}, ensure_ascii=False)
