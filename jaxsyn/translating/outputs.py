"""The lines that `jaxsyn.translate` writes of a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from absl import flags

from jaxsyn.data.sentence.alignments import pharaoh
from jaxsyn.decode.translator import EMPTY_TRANSLATION, Translation


def lines(
  index: int, nbest: Sequence[Translation], values: flags.FlagValues
) -> Iterator[str]:
  """One line, or with --nbest one of each hypothesis.

  Args:
    index: place of the sentence in the input, from 0.
    nbest: what was found, best first.
    values: of --nbest, --scores and --alignments.
  """
  if values.nbest:  # Moses' n-best format
    for one in nbest or [EMPTY_TRANSLATION]:
      yield f"{index} ||| {one.text} ||| {one.score:.4f}" + _links(one, values)
    return
  best = nbest[0] if nbest else EMPTY_TRANSLATION
  score = f"\t{best.score:.4f}" if values.scores else ""
  yield best.text + score + _links(best, values)


def _links(one: Translation, values: flags.FlagValues) -> str:
  return f" ||| {pharaoh(one.links)}" if values.alignments else ""
