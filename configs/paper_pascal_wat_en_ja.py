"""WAT (ASPEC), English to Japanese, as in Bugliarello & Okazaki 2020.

Paper:   PASCAL 44.0 BLEU on the test set (their Tables 3 to 5).
Prepare: python -m preprocess.build --config configs/paper_pascal_wat_en_ja.py \
           --raw_dir FOLDER
Train:   python -m jaxsyn.train --workdir runs/wat_en_ja \
           --config configs/paper_pascal_wat_en_ja.py:pascal
Ours:    not run; see configs/papers/pascal.py for the settings.
"""

from __future__ import annotations

import ml_collections

from configs.papers import pascal


def get_config(system: str = "pascal") -> ml_collections.ConfigDict:
  return pascal.get_config("wat_en_ja", system)
