"""Parallel UD treebanks: 1,000 sentence pairs with gold trees on both sides.

Prepare: jaxsyn prepare --config pud --raw_dir FOLDER
Train:   jaxsyn train --config pud:pascal \
           --workdir runs/pud
Sizes:   for fitting 800 pairs on a CPU in minutes, to test whether a system
         uses the trees. Too few pairs to learn translation.
Pairs:   English to German. For another pair of LANGUAGES, call `pud("fr", "ja")`
         in a file such as this one or in Python.

The Parallel Universal Dependencies treebanks contain the same news and
Wikipedia sentences in the same order in all languages. They are published as
test sets of 1,000 lines, divided here into splits of 800, 100 and 100 lines.
Sentences of an article are consecutive, so an article may span two splits.

Data:    github.com/UniversalDependencies/UD_LANGUAGE-PUD, the file named
         xx_pud-ud-test.conllu; compressed and renamed to xx_pud.conllu.gz.
         LANGUAGES lists the commits that were used.
License: CC BY-SA 3.0, Czech: 4.0; attribute the treebank and its authors.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import base, systems
from jaxsyn.errors import InputError, did_you_mean

LANGUAGES = {  # code -> treebank and commit
  "en": "UD_English-PUD f16eba4",
  "de": "UD_German-PUD ff80846",
  "fr": "UD_French-PUD c245786",
  "cs": "UD_Czech-PUD f68c66c",
  "tr": "UD_Turkish-PUD 63a134a",
  "zh": "UD_Chinese-PUD 2849afd",
  "ja": "UD_Japanese-PUD f992510",  # of 2019; later versions have other words
}
LINES = {"train": "1-800", "validation": "801-900", "test": "901-1000"}


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  return systems.apply(pud("en", "de"), system)


def pud(source: str, target: str) -> ml_collections.ConfigDict:
  """Returns the config for a pair of languages of the PUD treebanks.

  Raises:
    InputError: There is no treebank of a language.
  """
  for language in (source, target):
    if language not in LANGUAGES:
      raise InputError(
        f"no treebank of language {language!r}. "
        f"{did_you_mean(language, LANGUAGES)}"
      )
  config = base.data_set(f"pud_{source}_{target}", source, target)
  files = (f"{source}_pud.conllu.gz", f"{target}_pud.conllu.gz")
  for split, lines in LINES.items():
    config.prepare.splits[split] = (*files, lines)
  config.prepare.parse.sides = ("source", "target")
  config.prepare.vocabulary.size = 4000
  config.batch.update(tokens=2048, shapes=4)
  config.model.transformer.update(
    encoder_layers=2, decoder_layers=2, dropout=0.0
  )
  config.optimiser.learning_rate = 3e-3
  config.optimiser.inverse_sqrt.warmup = 200
  config.train.update(
    steps=600, evaluate_every=300, save_every=300, log_every=50
  )
  return config
