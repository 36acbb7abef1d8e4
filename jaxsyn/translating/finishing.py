"""What is done with translations once they are found: risk, links, unknowns."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from absl import flags

from jaxsyn.decode.examples import Example
from jaxsyn.decode.requests import Request
from jaxsyn.decode.strategies import Decode
from jaxsyn.decode.translator import Translation
from jaxsyn.options import range_of
from jaxsyn.options.flags import number_flag
from jaxsyn.session import Session
from jaxsyn.translating import alignment_flags
from jaxsyn.translating.alignments import Aligner, replaced
from jaxsyn.translating.risk import by_risk

flags.disclaim_key_flags()  # they show in the help of the command

NAMES = ("mbr", "alignments", "alignment_layer", "replace_unknowns")


def define() -> None:
  """Flags of what is done with translations."""
  number_flag(
    "mbr",
    None,
    range_of(Decode, "nbest"),
    "Draw N samples (--search sample) and take the one that is most like all "
    "of them by chrF: minimum Bayes risk. Scores are then this likeness, from 0 "
    "to 100.",
  )
  alignment_flags.define()
  flags.DEFINE_bool(
    "replace_unknowns",
    False,
    "Put the linked source word where the vocabulary has none (⁇).",
  )


class Finish:
  """What flags ask for, done with the translations of a block."""

  def __init__(
    self,
    session: Session,
    *,
    mbr: bool = False,
    max_hypotheses: int = 1,
    links: bool = False,
    unknowns: bool = False,
    layer: int | None = None,
  ):
    """Sets it up.

    Args:
      session: that translates.
      mbr: order translations, which are samples, by their risk.
      max_hypotheses: translations of a sentence that are kept.
      links: whether they are linked with the source.
      unknowns: whether source words replace unknown ones.
      layer: of `Aligner`.
    """
    self._mbr, self._most, self._unknowns = mbr, max_hypotheses, unknowns
    self._aligner = Aligner(session, layer) if links or unknowns else None

  def __call__(
    self,
    requests: Sequence[Request],
    examples: Sequence[Example],
    nbests: Sequence[Sequence[Translation]],
  ) -> list[list[Translation]]:
    """The translations that are left of each sentence.

    Args:
      requests, examples: of each sentence.
      nbests: what was found.
    """
    chosen = [
      (by_risk(nbest) if self._mbr else list(nbest))[: self._most]
      for nbest in nbests
    ]
    if self._aligner is None:
      return chosen
    which = [row for row, nbest in enumerate(chosen) for _ in nbest]
    flat = list(itertools.chain.from_iterable(chosen))
    aligned = self._aligner(
      [requests[row] for row in which], [examples[row] for row in which], flat
    )
    done: list[list[Translation]] = [[] for _ in chosen]
    for row, one, alignment in zip(which, flat, aligned, strict=True):
      text = (
        replaced(one.text, alignment.unknown) if self._unknowns else one.text
      )
      done[row].append(
        dataclasses.replace(one, text=text, links=alignment.links)
      )
    return done


def of_flags(values: flags.FlagValues, session: Session) -> Finish:
  """What the flags ask for."""
  return Finish(
    session,
    mbr=values.mbr is not None,
    max_hypotheses=values.nbest or 1,
    links=values.alignments,
    unknowns=values.replace_unknowns,
    layer=values.alignment_layer,
  )
