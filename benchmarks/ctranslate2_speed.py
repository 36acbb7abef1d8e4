"""Compares a run with CTranslate2, which has the same parameters.

  python -m benchmarks.ctranslate2_speed --workdir runs/transformer \\
    --input test.en.gz [--beam 5] [--turns 5] [--show 3]

The run is exported, and both translate the text with the same beam, length penalty
and maximum length, in float32, with one thread for each core that this process may
use. Where the translations differ, the run scores both by forced decoding:

  tie        the difference of the scores is within float32 rounding (1e-4)
  ours       the translation of the run is better
  theirs     the translation of CTranslate2 is better
  limited    a translation reached the maximum length

`scores` is the largest difference of the log-probabilities of a subword in forced
decoding. Then both translate the text in turns, from subwords to subwords, and
speeds are medians over the turns. Tokens are output subwords with EOS. "/cpu-s" is
per second of processor time.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import tempfile
from collections.abc import Sequence

from absl import flags, logging

from benchmarks.figures import Figures, Timer, show
from jaxsyn import cli, export
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.training.runtime import set_up_jax

MAX_LENGTH = 100  # subwords of a translation with EOS
TIE = 1e-4  # difference of scores
BATCH = 64  # sentences, as config.decode.sentences

Ids = tuple[int, ...]


class Comparison:
  """A run and its export, with a text to translate."""

  def __init__(self, session: Session, folder: pathlib.Path, lines: list[str]):
    import ctranslate2

    self._session, self._lines = session, lines
    source, self._target = session.sources.vocabularies
    pieces = source.pieces(range(source.size))
    self._tokens = [[pieces[i] for i in source.ids(line)] for line in lines]
    self._examples = session.read(lines)
    self._pieces = self._target.pieces(range(self._target.size))
    self._ids = {piece: i for i, piece in enumerate(self._pieces)}
    self._translator = ctranslate2.Translator(
      str(folder),
      compute_type="float32",
      intra_threads=len(os.sched_getaffinity(0)),
    )

  def ours(self) -> list[Ids]:
    """Translates with the run."""
    return [best[0].ids for best in self._session.search(self._examples)]

  def theirs(self) -> list[Ids]:
    """Translates with CTranslate2."""
    decode = self._session.plan.config.decode
    results = self._translator.translate_batch(
      self._tokens,
      beam_size=decode.beam,
      length_penalty=decode.alpha,
      max_decoding_length=MAX_LENGTH - 1,  # without EOS
      min_decoding_length=0,  # an empty translation is a hypothesis, too
      max_batch_size=BATCH,
      suppress_sequences=[["<pad>"], ["<s>"]],
    )
    return [
      tuple(self._ids[piece] for piece in result.hypotheses[0])
      for result in results
    ]

  def differences(self, shown: int) -> Figures:
    """Counts the translations that differ, and prints some of them."""
    ours, theirs = self.ours(), self.theirs()
    our_scores = self._session.force(self._lines, ours)
    their_scores = self._session.force(self._lines, theirs)
    counts = dict.fromkeys(("same", "tie", "ours", "theirs", "limited"), 0)
    for i, line in enumerate(self._lines):
      gain = our_scores[i].score - their_scores[i].score
      kind = _kind(ours[i], theirs[i], gain)
      counts[kind] += 1
      if kind != "same" and shown:
        shown -= 1
        print(f"{kind}: {line}")
        print(f"  {our_scores[i].score:.6f} {self._target.decode(ours[i])}")
        print(f"  {their_scores[i].score:.6f} {self._target.decode(theirs[i])}")
    # The scores of its search are normalized without the suppressed subwords.
    forced = self._translator.score_batch(
      self._tokens, [[self._pieces[i] for i in ids] for ids in ours]
    )
    largest = 0.0
    for one, other in zip(our_scores, forced, strict=True):
      pairs = zip(one.log_p, other.log_probs, strict=True)
      largest = max(largest, *(abs(p - q) for p, q in pairs))
    return {
      **{name: (float(n), "translations") for name, n in counts.items()},
      "scores": (largest, "maximum difference"),
    }

  def speed(self, turns: int) -> Figures:
    """Translates in turns, each one first in every second turn."""
    sides = {"jaxsyn": self.ours, "ctranslate2": self.theirs}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for turn in range(turns):
      for name in sorted(sides, reverse=bool(turn % 2)):
        with Timer() as timer:
          translations = sides[name]()
        tokens = sum(len(ids) + 1 for ids in translations)
        rates[name].append((tokens / timer.wall, tokens / timer.cpu))
    figures = {}
    for name, pairs in rates.items():
      wall, cpu = zip(*pairs)
      figures[name] = statistics.median(wall), "tokens/s"
      figures[f"{name}_cpu"] = statistics.median(cpu), "tokens/cpu-s"
    ratios = [
      ours[1] / theirs[1]
      for ours, theirs in zip(rates["jaxsyn"], rates["ctranslate2"])
    ]
    figures["ratio"] = statistics.median(ratios), "of its tokens/cpu-s"
    return figures


def _kind(ours: Sequence[int], theirs: Sequence[int], gain: float) -> str:
  if ours == theirs:
    return "same"
  if max(len(ours), len(theirs)) >= MAX_LENGTH - 1:
    return "limited"
  if abs(gain) < TIE:
    return "tie"
  return "ours" if gain > 0 else "theirs"


def _main(values: flags.FlagValues) -> None:
  if not values.workdir or not values.input:
    raise InputError("--workdir and --input are needed: a run and a text.")
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  lines = read_lines(values.input)
  session = Session(
    values.workdir,
    beam=values.beam,
    max_length_factor=0.0,
    max_length_offset=MAX_LENGTH,
  )
  with tempfile.TemporaryDirectory() as parent:
    folder = pathlib.Path(parent) / "model"
    export.run(values.workdir, folder, "ctranslate2")
    comparison = Comparison(session, folder, lines)
    show(comparison.differences(values.show))
    show(comparison.speed(values.turns))


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Run directory.")
  flags.DEFINE_string("input", None, "Raw text, plain or .gz.")
  flags.DEFINE_integer("beam", 5, "Beam size.")
  flags.DEFINE_integer("turns", 5, "Turns of measuring the speed.")
  flags.DEFINE_integer("show", 0, "Number of different translations to print.")
  cli.main(_main)
