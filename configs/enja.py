"""small_parallel_enja: 50,000 short English-Japanese pairs (Tanaka corpus).

Prepare: python -m preprocess.build --config configs/enja.py --raw_dir DIR
Train:   python -m jaxsyn.train --config configs/enja.py:pascal \
           --workdir runs/enja
Data:    github.com/odashi/small_parallel_enja; both sides come tokenised, the
         English lower-cased. Scores are of MeCab's words where the extra "ja" is
         installed, else of characters: python -m jaxsyn.score --language ja ...
Test:    the published dev part, so that no score is of what the checkpoint was
         chosen by; for that the last 500 pairs of train are left out. 77 of
         the 500 test sources stand in train too, otherwise translated.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import base, systems


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  config = base.data_set("enja", "en", "ja")
  config.data.homepage = "https://github.com/odashi/small_parallel_enja"
  train = ("train.en.gz", "train.ja.gz")
  config.prepare.splits.train = (*train, "1-49500")
  config.prepare.splits.validation = (*train, "49501-50000")
  config.prepare.splits.test = ("dev.en.gz", "dev.ja.gz")
  config.prepare.vocabulary.character_coverage = 0.9995
  base.small_corpus(config)
  config.train.steps = 10_000
  return systems.apply(config, system)
