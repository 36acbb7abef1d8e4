"""Whether heads that parse help, and whether it helps to synchronise them.

Deguchi et al. 2021, Table 1. Published: BLEU on the test sets.

Train:   python -m jaxsyn.train --workdir runs/dbsa_results_dbsa \
           --config configs/papers/dbsa_results.py:dbsa
Another task: get_config("sync_attention", task="wat_ja_en").
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, dbsa


def _row(system: str, en_de: float, en_ro: float, ja_en: float) -> ablation.Row:
  return ablation.Row(
    name=system,
    system=system,
    published={
      "wmt14_en_de test": en_de,
      "wmt16_en_ro test": en_ro,
      "wat_ja_en test": ja_en,
    },
  )


TABLE = ablation.Table(
  source="Deguchi et al. 2021, Table 1",
  question="Do heads that parse help, and does it help to synchronise them?",
  rows=(
    _row("transformer", 27.23, 23.83, 28.94),
    _row("dbsa", 27.31, 24.13, 29.57),
    _row("sync_attention", 27.69, 24.33, 29.84),
  ),
)


def get_config(
  row: str = "", task: str = "wmt14_en_de"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, dbsa.get_config, task)
