"""Whether relative depths help in the keys or in the values.

Omote, Tamura & Ninomiya 2019, Table 3: absolute positions are off in all rows,
trained on the first 100,000 pairs of ASPEC, Japanese to English. Published:
BLEU on the test set. In the row "none" the encoder knows no order of words.

Train:   python -m jaxsyn.train --workdir runs/dependency_relative_keys \
           --config configs/papers/dependency_relative_keys_values.py:keys
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, dependency_relative

PART = "parts.encoder.dependency_relative"
UNORDERED = {"model.positions": False}


def _row(name: str, keys: bool, values: bool, bleu: float) -> ablation.Row:
  return ablation.Row(
    name=name,
    system="dependency_relative",
    overrides={f"{PART}.keys": keys, f"{PART}.values": values, **UNORDERED},
    published={"wat_ja_en_100k test": bleu},
  )


TABLE = ablation.Table(
  source="Omote et al. 2019, Table 3",
  question="Do relative depths help in the keys or in the values?",
  rows=(
    _row("both", True, True, 16.71),
    _row("keys", True, False, 16.60),
    _row("values", False, True, 15.62),
    ablation.Row(
      name="none",
      system="transformer",
      overrides=UNORDERED,
      published={"wat_ja_en_100k test": 8.69},
    ),
  ),
)


def get_config(
  row: str = "", task: str = "wat_ja_en_100k"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, dependency_relative.get_config, task)
