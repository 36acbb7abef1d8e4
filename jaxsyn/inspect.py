"""Draws the attention and trees of a trained run, and probes its attention.

  jaxsyn inspect --workdir runs/pascal --input sentences.txt

Parses and translates each sentence of the input (raw text or CoNLL-U). Writes to
the output folder, where N is the line of the input, e.g. 0001:

  index.html                           page with the sentences and their figures
  sentence_N.json                      all numbers, words, trees, translation
  sentence_N.tree.svg                  the parser's tree
  sentence_N.tree_read.svg             a control's own tree
  sentence_N.tree_found.svg            parents found by a supervised head
  sentence_N.PART.encoder_0.png        syntax weighting or bias of a modifier
  sentence_N.PART.KIND.encoder_embeddings.png   similarity of added vectors
  sentence_N.attention.encoder_0.png   all heads of a layer
  sentence_N.attention.WINDOW.cross_0.png   a window of a recurrent decoder
  probe.json                           how often a word's most attended other word is
                                       its parent, child or neighbor

Attention is pooled from subwords to words: a row is the mean of a word's subwords,
a column the sum; rows sum to 1. In decoder and cross-attention, a row is the word
being predicted. Words of a translation are separated by its spaces; without spaces,
each subword is a word. Modifiers' values are drawn for subword pairs.
"""

# This module has the name of one in the standard library: run other files of this
# folder with -m, not by path, so that `import inspect` does not find this one.

from __future__ import annotations

import sys

from absl import flags, logging

from jaxsyn import cli
from jaxsyn.data.sentence import stream, text
from jaxsyn.decode import run_flags
from jaxsyn.errors import InputError
from jaxsyn.inspection.inspector import attention_of
from jaxsyn.inspection.probe import as_text
from jaxsyn.inspection.run import run
from jaxsyn.options import Range
from jaxsyn.options.flags import list_flag, number_flag
from jaxsyn.session import Session
from jaxsyn.training.runtime import set_up_jax
from jaxsyn.utils import exits

__all__ = ["attention_of", "run"]  # the calls for notebooks and programs


def _main(values: flags.FlagValues) -> None:
  for name, meaning in (
    ("workdir", "the folder of a trained run"),
    ("input", "a file of sentences, or - for standard input"),
  ):
    if not getattr(values, name):
      raise InputError(f"--{name} is missing: name {meaning}.")
  try:
    layers = [int(layer) for layer in values.layers] or None
  except ValueError:
    raise InputError(
      f"--layers={','.join(values.layers)}: numbers from 0, as in 0,2."
    ) from None
  if values.output:
    exits.check_target(values.output, "--output", folder=True)
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  session = Session(
    values.workdir, checkpoint=values.checkpoint, parser=values.parser
  )
  trees = values.conllu or stream.is_conllu(values.input)
  sources = text.strict_items(stream.sentences(values.input, trees))
  inspection = run(
    session, sources, values.output, limit=values.limit, layers=layers
  )
  probe = inspection.probe
  print(f"parameters: {session.chosen}")
  if probe["heads"]:
    print(as_text(probe))
  elif probe["sentences"]:
    print("no probe: this encoder has no attention heads")
  print(
    f"{inspection.pictures} sentences drawn, {probe['sentences']} in the probe: "
    f"{inspection.output}"
  )
  longest = session.sources.longest
  for reason, message in (
    ("empty", "empty lines were skipped"),
    ("too_long", f"lines of {longest} subwords or more were skipped"),
    ("no_tree", "lines could not be parsed; they are not in the probe"),
  ):
    if count := probe["skipped"][reason]:
      print(f"{count} {message}.", file=sys.stderr)


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn inspect`."""
  run_flags.define_run()
  flags.DEFINE_string(
    "input",
    None,
    "File of text or CoNLL-U, plain or .gz; - for standard input.",
  )
  flags.DEFINE_string(
    "output", None, "Output folder; default: WORKDIR/inspect."
  )
  flags.DEFINE_bool(
    "conllu", False, "Whether the input is CoNLL-U; default for *.conllu."
  )
  number_flag(
    "limit",
    20,
    Range(0, 1_000_000),
    "Number of sentences to draw; the probe uses all sentences.",
  )
  list_flag("layers", [], "Layers to draw, from 0, as in 0,2; default: all.")
  run_flags.define_parser()


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
