"""Post-processes translations: minimum Bayes risk, alignment, unknown words.

Letters: A candidate; E reference.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from absl import flags

from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode import run_flags
from jaxsyn.decode.examples import Example
from jaxsyn.decode.strategies import Decode
from jaxsyn.decode.translator import Translation
from jaxsyn.options import range_of
from jaxsyn.options.flags import number_flag
from jaxsyn.scoring import pairwise
from jaxsyn.session.alignments import Aligner, replace_unknown
from jaxsyn.session.session import Session

flags.disclaim_key_flags()  # they show in the help of the command

NAMES = ("mbr", "alignments", "alignment_layer", "replace_unknowns")


def define() -> None:
  """Defines --mbr, --replace_unknowns and the word-alignment flags."""
  number_flag(
    "mbr",
    None,
    range_of(Decode, "nbest"),
    "Number of samples for minimum Bayes risk decoding (--search sample): the "
    "sample with the highest mean chrF against all samples is selected. Scores "
    "are this mean, from 0 to 100.",
  )
  run_flags.define_alignments()
  flags.DEFINE_bool(
    "replace_unknowns",
    False,
    "Whether to replace unknown words (⁇) with the aligned source words.",
  )


class Finish:
  """Function that applies post-processing steps to translations."""

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
    """Selects the post-processing steps to apply to translations.

    Args:
      session: Opened run.
      mbr: Whether to order samples by their Bayes risk.
      max_hypotheses: Maximum number of translations of a sentence to return.
      links: Whether to align translations with their sources.
      unknowns: Whether to replace unknown words by source words.
      layer: Decoder layer of the alignments; see `Aligner`.
    """
    self._mbr, self._max_hypotheses = mbr, max_hypotheses
    self._unknowns = unknowns
    self._aligner = Aligner(session, layer) if links or unknowns else None

  def __call__(
    self,
    sources: Sequence[Source],
    examples: Sequence[Example],
    nbests: Sequence[Sequence[Translation]],
  ) -> list[list[Translation]]:
    """Returns the post-processed translations of each sentence."""
    chosen = [
      (by_risk(nbest) if self._mbr else list(nbest))[: self._max_hypotheses]
      for nbest in nbests
    ]
    if self._aligner is None:
      return chosen
    rows = np.repeat(range(len(chosen)), [len(nbest) for nbest in chosen])
    translations = list(itertools.chain.from_iterable(chosen))
    aligned = self._aligner(
      [sources[row] for row in rows],
      [examples[row] for row in rows],
      translations,
    )
    finished: list[list[Translation]] = [[] for _ in chosen]
    for row, translation, alignment in zip(
      rows, translations, aligned, strict=True
    ):
      text = translation.text
      if self._unknowns:
        text = replace_unknown(text, alignment.unknown)
      finished[row].append(
        dataclasses.replace(translation, text=text, links=alignment.links)
      )
    return finished


def of_flags(values: flags.FlagValues, session: Session) -> Finish:
  """Returns the post-processing that command-line flags select."""
  return Finish(
    session,
    mbr=values.mbr is not None,
    max_hypotheses=values.nbest or 1,
    links=values.alignments,
    unknowns=values.replace_unknowns,
    layer=values.alignment_layer,
  )


def by_risk(samples: Sequence[Translation]) -> list[Translation]:
  """Ranks a sentence's distinct samples by expected chrF, best first.

  This is minimum Bayes risk decoding (Kumar & Byrne 2004). Samples are both
  candidates and references (Eikema & Aziz 2020, section 6.2): the expected
  utility of a candidate is its mean chrF over all samples, from 0 to 100, and
  becomes its `score`. Ties are in the order of the samples.

  Letters: A candidate; E reference.

  Args:
    samples: Samples of one sentence; repeated ones count repeatedly.
  """
  if not samples:
    return []
  counts = collections.Counter(sample.text for sample in samples)
  first = {sample.text: sample for sample in reversed(samples)}
  texts = list(counts)
  probability_E = np.array(list(counts.values())) / len(samples)
  utility_A = pairwise.chrf(texts) @ probability_E
  order = np.argsort(-utility_A, kind="stable")
  return [
    dataclasses.replace(first[texts[i]], score=float(utility_A[i]))
    for i in order
  ]
