"""WMT14, English to German, as in Deguchi et al. 2021.

Paper:   synchronous syntactic attention 27.69 BLEU on the test set (Table 1).
Prepare: python -m preprocess.build --raw_dir FOLDER \
           --config configs/paper_dbsa_wmt14_en_de.py
Train:   python -m jaxsyn.train --workdir runs/wmt14_en_de \
           --config configs/paper_dbsa_wmt14_en_de.py:sync_attention
Ours:    not run; see configs/papers/dbsa.py for the settings.
"""

from __future__ import annotations

import ml_collections

from configs.papers import dbsa


def get_config(system: str = "sync_attention") -> ml_collections.ConfigDict:
  return dbsa.get_config("wmt14_en_de", system)
