"""WMT14, English to German, as in Chen et al. 2018.

Paper:   syntax-directed attention 21.21 BLEU, with two contexts 21.64: means
         of newstest2013, 2014 and 2015, case-insensitive (Tables 1 and 2).
Prepare: python -m preprocess.build --raw_dir FOLDER \
           --config configs/paper_syntax_directed_wmt14_en_de.py
Train:   python -m jaxsyn.train --workdir runs/wmt14_en_de \
           --config configs/paper_syntax_directed_wmt14_en_de.py:gru_syntax
Ours:    not run; see configs/papers/syntax_directed.py for the settings.
"""

from __future__ import annotations

import ml_collections

from configs.papers import syntax_directed


def get_config(system: str = "gru_syntax") -> ml_collections.ConfigDict:
  return syntax_directed.get_config("wmt14_en_de", system)
