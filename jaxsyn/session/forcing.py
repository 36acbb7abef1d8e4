"""Forced decoding of given translations (`jaxsyn score --force`).

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
from collections.abc import Iterable, Iterator, Sequence

from absl import flags

from jaxsyn.data.sentence import stream, text
from jaxsyn.data.sentence.alignments import Links, pharaoh
from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode import run_flags
from jaxsyn.decode.forced import Scored
from jaxsyn.decode.translator import (
  ProgressCallback,
  Translation,
  ignore_progress,
)
from jaxsyn.errors import InputError
from jaxsyn.session.alignments import Aligner
from jaxsyn.session.session import Session
from jaxsyn.training.runtime import set_up_jax
from jaxsyn.utils import progress

BLOCK = 2000  # hypotheses scored together


@dataclasses.dataclass(frozen=True)
class Hypothesis:
  """A translation to score, with the index of its source sentence.

  Attributes:
    line: Index of the source sentence, from 0.
    text: Text of the translation.
  """

  line: int
  text: str


@dataclasses.dataclass(frozen=True)
class ForcedHypothesis:
  """Hypothesis with its log probability and, if requested, word alignment."""

  hypothesis: Hypothesis
  scored: Scored
  links: Links | None

  def as_text(self) -> str:
    """Formats the result as a line of tab-separated columns."""
    one = self.scored
    numbers = f"{one.total:.6f}\t{one.score:.6f}\t{len(one.log_p)}"
    links = "" if self.links is None else f"\t{pharaoh(self.links)}"
    return f"{self.hypothesis.line}\t{numbers}{links}"

  def as_json(self) -> str:
    """Formats the result as a JSON object on one line."""
    one = self.scored
    content = {
      **dataclasses.asdict(self.hypothesis),
      "log_p": round(one.total, 6),
      "score": round(one.score, 6),
    }
    if self.links is not None:
      content["alignments"] = pharaoh(self.links)
    content["subwords"] = [
      [piece, round(log_p, 6)]
      for piece, log_p in zip(one.subwords, one.log_p, strict=True)
    ]
    return json.dumps(content, ensure_ascii=False)


def run(
  session: Session,
  sources: Sequence[Source],
  hypotheses: Iterable[Hypothesis],
  *,
  aligner: Aligner | None = None,
  on_progress: ProgressCallback = ignore_progress,
) -> Iterator[ForcedHypothesis]:
  """Computes log probabilities of translations; yields them in input order.

  Args:
    session: Opened run or ensemble.
    sources: Raw lines or parses.
    hypotheses: Translations of the sources.
    aligner: Function that aligns words; None: no alignments.
    on_progress: Called with the number of further hypotheses.

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
    block_sources = [sources[one.line] for one in block]
    scored = session.force(
      block_sources, [one.text for one in block], on_progress
    )
    links: list[Links | None] = [None] * len(block)
    if aligner is not None:
      translations = [
        Translation(one.text, 0.0, 0.0, tuple(session.subwords(one.text)))
        for one in block
      ]
      examples = session.read(block_sources)
      aligned = aligner(block_sources, examples, translations)
      links = [alignment.links for alignment in aligned]
    yield from map(ForcedHypothesis, block, scored, links)


def read(path: str, *, nbest: bool) -> list[Hypothesis]:
  """Reads the translations to score from a text file or an n-best list.

  Args:
    path: Text file with one translation per line; plain or .gz.
    nbest: Whether the file is an n-best list in the format of Moses.

  Raises:
    InputError: The file cannot be read, or a line is not of an n-best list.
  """
  lines = text.lines_of(path)
  if not nbest:
    return [Hypothesis(index, line) for index, line in enumerate(lines)]
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
  sources = list(text.strict_items(stream.sentences(values.source, trees)))
  if not values.nbest_list and len(hypotheses) != len(sources):
    raise InputError(
      f"{path} has {len(hypotheses)} lines, but {values.source} has "
      f"{len(sources)}: line N of one must translate line N of the other."
    )
  session = Session(**run_flags.session_arguments(values))
  aligner = None
  if values.alignments:
    aligner = Aligner(session, values.alignment_layer)
  with progress.bar(
    "scoring", len(hypotheses), unit="line", note=session.note
  ) as bar:
    for one in run(
      session, sources, hypotheses, aligner=aligner, on_progress=bar.advance
    ):
      print(f"{one.as_json() if values.json else one.as_text()}\n", end="")
  session.close()
