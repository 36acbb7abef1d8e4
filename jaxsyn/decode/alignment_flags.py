"""Flags of word alignments; this module does not load JAX."""

from __future__ import annotations

from absl import flags

from jaxsyn.options import Range
from jaxsyn.options.flags import number_flag

flags.disclaim_key_flags()  # they show in the help of the command


def define() -> None:
  """Defines --alignments and --alignment_layer."""
  flags.DEFINE_bool(
    "alignments",
    False,
    "Whether to append word alignments by cross-attention, such as 0-0 1-2: "
    "indices of words between blanks, of source and translation, from 0.",
  )
  number_flag(
    "alignment_layer",
    None,
    Range(-1000, 999),
    "Decoder layer of the alignments, from 0, or negative from the end; its "
    "heads are averaged. Default: the head of guided alignment, or else the last "
    "layer but one.",
  )
