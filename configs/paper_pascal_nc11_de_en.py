"""News Commentary 11, German to English, as in Bugliarello & Okazaki 2020.

Paper:   PASCAL 27.4 BLEU on the test set (their Tables 3 to 5).
Prepare: python -m preprocess.build --config configs/paper_pascal_nc11_de_en.py \
           --raw_dir FOLDER
Train:   python -m jaxsyn.train --workdir runs/nc11_de_en \
           --config configs/paper_pascal_nc11_de_en.py:pascal
Ours:    not run; see configs/papers/pascal.py for the settings.
"""

from __future__ import annotations

import ml_collections

from configs.papers import pascal


def get_config(system: str = "pascal") -> ml_collections.ConfigDict:
  return pascal.get_config("nc11_de_en", system)
