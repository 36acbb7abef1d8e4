"""The lines that `jaxsyn.translate` writes of a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from absl import flags

from jaxsyn.decode.translator import NOTHING, Translation


def lines(
  number: int, nbest: Sequence[Translation], values: flags.FlagValues
) -> Iterator[str]:
  """One line, or with --nbest one of each hypothesis.

  Args:
    number: place of the sentence in the input, from 0.
    nbest: what was found, best first.
    values: of --nbest and --scores.
  """
  if values.nbest:  # Moses' n-best format
    for one in nbest:
      yield f"{number} ||| {one.text} ||| {one.score:.4f}"
    return
  best = nbest[0] if nbest else NOTHING
  yield f"{best.text}\t{best.score:.4f}" if values.scores else best.text
