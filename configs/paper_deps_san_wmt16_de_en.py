"""WMT16, German to English, as in Peng et al., Deps-SAN.

Paper:   Deps-SAN 27.94 BLEU on the test set (their Table 1).
Prepare: python -m preprocess.build --raw_dir FOLDER \
           --config configs/paper_deps_san_wmt16_de_en.py
Train:   python -m jaxsyn.train --workdir runs/wmt16_de_en \
           --config configs/paper_deps_san_wmt16_de_en.py:deps_san
Ours:    not run; see configs/papers/deps_san.py for the settings.
"""

from __future__ import annotations

import ml_collections

from configs.papers import deps_san


def get_config(system: str = "deps_san") -> ml_collections.ConfigDict:
  return deps_san.get_config("wmt16_de_en", system)
