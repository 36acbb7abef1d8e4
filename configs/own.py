"""Config for your own parallel text: two line-aligned files.

Prepare: jaxsyn prepare --config own --raw_dir FOLDER
Train:   jaxsyn train --config own:pascal --workdir runs/own
Files:   FOLDER contains corpus.en and corpus.de. For other names and languages,
         write a config such as mine.py (`jaxsyn new` writes a longer one):

           from jaxsyn.configs import own

           def get_config(system="transformer"):
             return own.get_config(system, files=("corpus.en", "corpus.fr"))

Sizes:   Transformer-Tiny, trained as in base.small_corpus, for tens of
         thousands of pairs. For more text, increase config.model,
         config.batch.tokens, config.train.steps and config.prepare.vocabulary.
"""

from __future__ import annotations

import pathlib
import re

import ml_collections

from jaxsyn.configs import base, systems
from jaxsyn.errors import InputError

HELD_OUT = 1000  # pairs in the validation split, and in the test split


def get_config(
  system: str = "transformer",
  files: tuple[str, str] = ("corpus.en", "corpus.de"),
  held_out: int = HELD_OUT,
) -> ml_collections.ConfigDict:
  return systems.apply(corpus(files, held_out), system)


def corpus(
  files: tuple[str, str], held_out: int = HELD_OUT
) -> ml_collections.ConfigDict:
  """Returns the config for two parallel files; the first pairs are held out.

  Args:
    files: Source and target file, NAME.LANGUAGE or NAME.LANGUAGE.gz, in the
      folder of the raw files; the dataset is called NAME_LANGUAGE_LANGUAGE.
    held_out: Number of first pairs for validation, and of the next for testing.

  Raises:
    InputError: A name does not end in a language.
  """
  names = [pathlib.PurePath(file).name.removesuffix(".gz") for file in files]
  stems, _, languages = zip(*(name.rpartition(".") for name in names))
  for file, stem in zip(files, stems):
    if not stem:
      raise InputError(
        f"{file}: call it NAME.LANGUAGE, as in corpus.en or corpus.en.gz; its "
        "language selects the parser and the tokenizer of BLEU."
      )
  name = "_".join([stems[0], *languages]).lower()
  config = base.data_set(re.sub("[^a-z0-9]+", "_", name), *languages)
  base.small_corpus(config)
  config.train.patience = 10
  config.prepare.splits.train = (*files, f"{2 * held_out + 1}-")
  config.prepare.splits.validation = (*files, f"1-{held_out}")
  config.prepare.splits.test = (*files, f"{held_out + 1}-{2 * held_out}")
  return config
