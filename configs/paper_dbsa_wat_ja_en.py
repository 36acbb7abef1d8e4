"""WAT (ASPEC), Japanese to English, as in Deguchi et al. 2021.

Paper:   synchronous syntactic attention 29.84 BLEU on the test set (Table 1).
Prepare: python -m preprocess.build --raw_dir FOLDER \
           --config configs/paper_dbsa_wat_ja_en.py
Train:   python -m jaxsyn.train --workdir runs/wat_ja_en \
           --config configs/paper_dbsa_wat_ja_en.py:sync_attention
Ours:    not run; see configs/papers/dbsa.py for the settings.
"""

from __future__ import annotations

import ml_collections

from configs.papers import dbsa


def get_config(system: str = "sync_attention") -> ml_collections.ConfigDict:
  return dbsa.get_config("wat_ja_en", system)
