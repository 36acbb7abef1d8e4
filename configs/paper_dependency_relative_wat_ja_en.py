"""WAT (ASPEC), Japanese to English, as in Omote, Tamura & Ninomiya 2019.

Paper:   both relative encodings 27.22 BLEU on the test set (their Table 2).
Prepare: python -m preprocess.build --raw_dir FOLDER \
           --config configs/paper_dependency_relative_wat_ja_en.py
Train:   python -m jaxsyn.train --workdir runs/wat_ja_en --config \
           configs/paper_dependency_relative_wat_ja_en.py:dependency_relative
Ours:    not run; see configs/papers/dependency_relative.py for the settings.
"""

from __future__ import annotations

import ml_collections

from configs.papers import dependency_relative


def get_config(
  system: str = "dependency_relative",
) -> ml_collections.ConfigDict:
  return dependency_relative.get_config("wat_ja_en", system)
