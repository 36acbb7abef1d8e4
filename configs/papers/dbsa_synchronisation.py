"""How much the synchronisation of both parses should weigh.

Deguchi et al. 2021, appendix C: λ_sync was chosen of these values on each
development set, 0.5 for WMT14 En-De, 0.1 for WMT16 En-Ro and 10 for ASPEC
Ja-En; published are only the test figures of what was chosen (BLEU, Table 1).

Train:   python -m jaxsyn.train --workdir runs/dbsa_weight_5 \
           --config configs/papers/dbsa_synchronisation.py:weight_5
Another task: get_config("weight_5", task="wmt16_en_ro").
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, dbsa

CHOSEN = {
  0.5: {"wmt14_en_de test": 27.69},
  0.1: {"wmt16_en_ro test": 24.33},
  10.0: {"wat_ja_en test": 29.84},
}
TABLE = ablation.Table(
  source="Deguchi et al. 2021, appendix C",
  question="How much should the synchronisation weigh?",
  rows=tuple(
    ablation.Row(
      name=f"weight_{weight:g}",
      system="sync_attention",
      overrides={"losses.synchronisation.weight": weight},
      published=CHOSEN.get(weight),
    )
    # The choice for the first task stands first.
    for weight in (0.5, 0.01, 0.05, 0.1, 1.0, 5.0, 10.0)
  ),
)


def get_config(
  row: str = "", task: str = "wmt14_en_de"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, dbsa.get_config, task)
