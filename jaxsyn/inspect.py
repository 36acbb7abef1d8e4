"""What a trained run looks at: trees, weightings, attention, and a probe.

  jaxsyn inspect --workdir runs/pascal --input sentences.txt

Each sentence is parsed and translated by the run, then read once more together
with its translation. Written to the output folder, N the line of the input from
0001 on:

  sentence_N.json                      all numbers, words, tree, translation
  sentence_N.tree.png                  the tree over the words
  sentence_N.tree_found.png            the parents that a supervised head finds
  sentence_N.PART.encoder_0.png        what a part does there, in subwords
  sentence_N.PART.KIND.encoder_embeddings.png   what it adds there, compared
  sentence_N.attention.encoder_0.png   all heads of a layer, between words
  sentence_N.attention.WINDOW.cross_0.png   a context of a recurrent decoder
  probe.json                           how often the strongest other word of a
                                       word is its parent, child or neighbour

Attention is word-pooled: a row is a querying word, the mean of its subwords;
a column a word that is looked at, the sum of its subwords; rows sum to 1. In
decoder and cross-attention a row is the word being predicted, and the words of
a translation are what stands between its blanks (where it has none: its
subwords). Input is raw text, or CoNLL-U.
"""

# The name is a contract, and the standard library's: a file of this folder that
# is run by its path, not with -m, would get this module for its `inspect`.

from __future__ import annotations

import sys

from absl import flags, logging

from jaxsyn import cli, exits
from jaxsyn.data.sentence import stream, text
from jaxsyn.errors import InputError
from jaxsyn.inspection.inspector import attention_of
from jaxsyn.inspection.probe import as_text
from jaxsyn.inspection.run import run
from jaxsyn.options import Range
from jaxsyn.options.flags import list_flag, number_flag
from jaxsyn.session import Session
from jaxsyn.training.mesh import set_up_jax
from jaxsyn.translating import run_flags

__all__ = ["attention_of", "run"]  # the calls for notebooks and programs


def _main(values: flags.FlagValues) -> None:
  for name, what in (
    ("workdir", "the folder of a trained run"),
    ("input", "a file of sentences, or - for standard input"),
  ):
    if not values[name].value:
      raise InputError(f"--{name} is missing: name {what}.")
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
  sources = text.whole(stream.sentences(values.input, trees))
  inspection = run(
    session, sources, values.output, limit=values.limit, layers=layers
  )
  probe = inspection.probe
  print(f"parameters: {session.chosen}")
  if probe["heads"]:
    print(as_text(probe))
  elif probe["sentences"]:
    print("no probe: this encoder has no heads that look at words")
  print(
    f"{inspection.pictures} sentences drawn, {probe['sentences']} in the probe: "
    f"{inspection.output}"
  )
  longest = session.sources.longest
  for why, lines in (
    ("empty", "empty lines were skipped"),
    ("too_long", f"lines of {longest} subwords or more were skipped"),
    ("no_tree", "lines could not be parsed; they are not in the probe"),
  ):
    if count := probe["skipped"][why]:
      print(f"{count} {lines}.", file=sys.stderr)


def define_flags() -> None:
  """Those of the command."""
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  flags.DEFINE_string("input", None, "Text or CoNLL-U, plain or .gz; -: stdin.")
  flags.DEFINE_string("output", None, "Folder of the files; WORKDIR/inspect.")
  flags.DEFINE_bool("conllu", False, "The input is CoNLL-U (see also .conllu).")
  number_flag(
    "limit", 20, Range(0, 1_000_000), "Sentences drawn; the probe is of all."
  )
  list_flag("layers", [], "Layers drawn, from 0, as in 0,2; all.")
  flags.DEFINE_string("checkpoint", "", '"best", "last" or a step.')
  run_flags.define_parser()


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
