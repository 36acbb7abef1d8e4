"""small_parallel_enja: 50,000 short English-Japanese pairs (Tanaka corpus).

Prepare: python -m preprocess.build --config configs/enja.py --raw_dir DIR
Train:   python -m jaxsyn.train --config configs/enja.py:pascal \
           --workdir runs/enja
Data:    github.com/odashi/small_parallel_enja; both sides come tokenised, the
         English lower-cased. Score with a Japanese tokeniser or by character:
         python -m jaxsyn.score --tokenizer char ...
"""

from __future__ import annotations

import ml_collections

from configs import base, systems


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  config = base.get_config()
  config.data.name = "enja"
  config.data.directory = "data/enja"
  config.data.target_language = "ja"
  config.data.test = ()
  config.prepare.splits.train = ("train.en.gz", "train.ja.gz")
  config.prepare.splits.validation = ("dev.en.gz", "dev.ja.gz")
  config.prepare.vocabulary.character_coverage = 0.9995
  config.train.steps = 5000
  return systems.apply(config, system)
