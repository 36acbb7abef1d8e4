"""A run beside CTranslate2 with the same parameters: translations, and speed.

  python -m benchmarks.ctranslate2_beside --workdir runs/transformer --input test.en.gz \\
    [--beam 5] [--turns 5] [--show 3]

The run is exported (jaxsyn.export --format ctranslate2), and both translate the
text with the same beam, length penalty and limit, in float32, with as many threads
as this process may use cores: `taskset -c 0` makes that one. Of each sentence whose
translations are not the same subwords both are scored by the run, teacher forced,
and counted:

  tie        the two scores are nearer than float32 tells apart (1e-4)
  ours       the run's is the better one by more than that
  theirs     CTranslate2's is
  limited    one of them was ended by the limit

`scores` is the largest difference of what the two say of a subword, teacher
forced. Then both translate the text again, in turns, and
each figure is the median of the turns: tokens are output subwords with EOS,
"/cpu-s" is per second of processor time of both cores, and what is timed
goes from subwords to subwords. One line a figure: name=value unit.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags, logging

from benchmarks.figures import Figures, processor_seconds, show
from jaxsyn import cli, export
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.training.mesh import set_up_jax

LIMIT = 100  # subwords of a translation, EOS included
NEAR = 1e-4  # of scores
BATCH = 64  # of CTranslate2, as config.decode.sentences

Ids = tuple[int, ...]


class Beside:
  """A run and its export."""

  def __init__(self, session: Session, folder: pathlib.Path, lines: list[str]):
    """Loads the export.

    Args:
      session: with a limit of LIMIT subwords, whatever the source.
      folder: the export of its run.
      lines: what is translated.
    """
    import ctranslate2

    self._session, self._lines = session, lines
    source, self._target = session.sources.vocabularies
    pieces = source.pieces(range(source.size))
    self._tokens = [[pieces[i] for i in source.ids(line)] for line in lines]
    self._examples = session.begin_examples(lines)()
    self._pieces = self._target.pieces(range(self._target.size))
    self._ids = {piece: i for i, piece in enumerate(self._pieces)}
    self._translator = ctranslate2.Translator(
      str(folder), compute_type="float32", intra_threads=_cores()
    )

  def ours(self) -> list[tuple[Ids, float]]:
    """The best translation of each line, and its score."""
    found = self._session.search(self._examples)
    return [(best[0].ids, best[0].score) for best in found]

  def theirs(self) -> list[tuple[Ids, float]]:
    """The same of CTranslate2."""
    decode = self._session.plan.config.decode
    found = self._translator.translate_batch(
      self._tokens,
      beam_size=decode.beam,
      length_penalty=decode.alpha,
      max_decoding_length=LIMIT - 1,  # without EOS
      min_decoding_length=0,  # an empty one is a hypothesis too
      max_batch_size=BATCH,
      return_scores=True,
      suppress_sequences=[["<pad>"], ["<s>"]],
    )
    return [
      (tuple(self._ids[piece] for piece in one.hypotheses[0]), one.scores[0])
      for one in found
    ]

  def differences(self, shown: int) -> Figures:
    """How many translations differ, and which are the better."""
    ours, theirs = self.ours(), self.theirs()
    forced = [
      self._session.force(self._lines, ids)
      for ids in ([ids for ids, _ in ours], [ids for ids, _ in theirs])
    ]
    counts = dict.fromkeys(("same", "tie", "ours", "theirs", "limited"), 0)
    for line, (own, _), (other, _), one, two in zip(
      self._lines, ours, theirs, *forced
    ):
      kind = _kind(own, other, one.score - two.score)
      counts[kind] += 1
      if kind != "same" and shown:
        shown -= 1
        print(f"{kind}: {line}")
        for ids, scored in ((own, one), (other, two)):
          print(f"  {scored.score:.6f} {self._target.decode(ids)}")
    # In its search it leaves out what is suppressed, and scores are of the rest.
    said = self._translator.score_batch(
      self._tokens, [[self._pieces[i] for i in ids] for ids, _ in ours]
    )
    apart = [
      abs(one - two)
      for own, other in zip(forced[0], said, strict=True)
      for one, two in zip(own.log_p, other.log_probs, strict=True)
    ]
    return {
      **{name: (float(n), "translations") for name, n in counts.items()},
      "scores": (max(apart), "apart at most"),
    }

  def speed(self, turns: int) -> Figures:
    """Both in turns."""
    sides = {"jaxsyn": self.ours, "ctranslate2": self.theirs}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for turn in range(turns):
      # Whoever comes first, nobody always does.
      for name in sorted(sides, reverse=bool(turn % 2)):
        found[name].append(_timed(sides[name]))
    figures = {}
    for name, rates in found.items():
      wall, processor = zip(*rates)
      figures[name] = statistics.median(wall), "tokens/s"
      figures[f"{name}_cpu"] = statistics.median(processor), "tokens/cpu-s"
    ratios = [
      own[1] / other[1]
      for own, other in zip(found["jaxsyn"], found["ctranslate2"])
    ]
    figures["ratio"] = statistics.median(ratios), "of its tokens/cpu-s"
    return figures


def _kind(own: Ids, other: Ids, gain: float) -> str:
  if own == other:
    return "same"
  if max(len(own), len(other)) >= LIMIT - 1:
    return "limited"
  if abs(gain) < NEAR:
    return "tie"
  return "ours" if gain > 0 else "theirs"


def _timed(
  translate: Callable[[], Sequence[tuple[Ids, float]]],
) -> tuple[float, float]:
  """Tokens a second of wall and of processor time."""
  began, busy = time.perf_counter(), processor_seconds()
  tokens = sum(len(ids) + 1 for ids, _ in translate())
  return (
    tokens / (time.perf_counter() - began),
    tokens / (processor_seconds() - busy),
  )


def _cores() -> int:
  return len(os.sched_getaffinity(0))


def run(
  workdir: str, lines: list[str], beam: int, turns: int, *, shown: int = 0
) -> Figures:
  """What the module says.

  Raises:
    InputError: CTranslate2 cannot hold the run, or is not installed.
  """
  session = Session(
    workdir, beam=beam, max_length_factor=0.0, max_length_offset=LIMIT
  )
  with tempfile.TemporaryDirectory() as parent:
    folder = pathlib.Path(parent) / "model"
    export.run(workdir, folder, "ctranslate2")
    beside = Beside(session, folder, lines)
    return {**beside.differences(shown), **beside.speed(turns)}


def _main(values: flags.FlagValues) -> Any:
  if not values.workdir or not values.input:
    raise InputError("--workdir and --input are needed: a run and a text.")
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  lines = read_lines(values.input)
  show(run(values.workdir, lines, values.beam, values.turns, shown=values.show))


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  flags.DEFINE_string("input", None, "Raw text, plain or .gz.")
  flags.DEFINE_integer("beam", 5, "Hypotheses a sentence.")
  flags.DEFINE_integer("turns", 5, "Times that each translates the text.")
  flags.DEFINE_integer("show", 0, "So many of those that differ are printed.")
  cli.main(_main)
