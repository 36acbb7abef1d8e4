"""Flags of links between a source and its translation; without loading JAX."""

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
    "Append links by cross-attention, as in 0-0 1-2: words between blanks, of "
    "the source and of the translation, from 0.",
  )
  number_flag(
    "alignment_layer",
    None,
    Range(-1000, 999),
    "Layer of the decoder that links come from, from 0, or from the end, the "
    "mean of its heads. Else the head that was taught alignments, or the layer "
    "before the last.",
  )
