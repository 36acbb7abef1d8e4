"""small_parallel_enja: 50,000 short English-Japanese pairs (Tanaka corpus).

Prepare: jaxsyn prepare --config enja --raw_dir DIR
Train:   jaxsyn train --config enja:pascal \
           --workdir runs/enja
Data:    github.com/odashi/small_parallel_enja; both sides are tokenized, and
         English is lowercased. Scores are computed on MeCab's words if the extra
         "ja" is installed, or else on characters: jaxsyn score --language ja ...
Results: 1,000 updates with batches of 1,024 tokens, two seeds: 16.4 BLEU on MeCab's
         words for both transformer and pascal (docs/results.md). Longer runs were
         not measured.
Test:    the published dev split. The last 500 pairs of train are held out for
         validation, so that the checkpoint is not selected on test data. 77 of
         the 500 test sources also occur in train, with other translations.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import base, systems


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  config = base.data_set("enja", "en", "ja")
  train = ("train.en.gz", "train.ja.gz")
  config.prepare.splits.train = (*train, "1-49500")
  config.prepare.splits.validation = (*train, "49501-50000")
  config.prepare.splits.test = ("dev.en.gz", "dev.ja.gz")
  config.prepare.vocabulary.character_coverage = 0.9995
  base.small_corpus(config)
  config.train.steps = 10_000
  return systems.apply(config, system)
