"""WMT16, English to Romanian, as in Deguchi et al. 2021.

Paper:   synchronous syntactic attention 24.33 BLEU on the test set (Table 1).
Prepare: python -m preprocess.build --raw_dir FOLDER \
           --config configs/paper_dbsa_wmt16_en_ro.py
Train:   python -m jaxsyn.train --workdir runs/wmt16_en_ro \
           --config configs/paper_dbsa_wmt16_en_ro.py:sync_attention
Ours:    not run; see configs/papers/dbsa.py for the settings.
"""

from __future__ import annotations

import ml_collections

from configs.papers import dbsa


def get_config(system: str = "sync_attention") -> ml_collections.ConfigDict:
  return dbsa.get_config("wmt16_en_ro", system)
