"""Which encoder layers Deps-SAN should scale.

Peng et al., Table 2a, on IWSLT14 German to English. Published: BLEU on their
validation and test sets.

Train:   python -m jaxsyn.train --workdir runs/deps_san_layers_1_6 \
           --config configs/papers/deps_san_layers.py:layers_1_6
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, deps_san

FIGURES = {  # first and last layer, from 1 as in the paper: validation, test
  (1, 3): (31.42, 30.44),
  (1, 1): (30.71, 29.83),
  (1, 2): (30.82, 30.00),
  (1, 4): (30.82, 29.89),
  (4, 6): (30.41, 29.46),
  (1, 6): (29.20, 28.79),
}
TABLE = ablation.Table(
  source="Peng et al., Deps-SAN, Table 2a",
  question="Which encoder layers should the tree scale?",
  rows=tuple(
    ablation.Row(
      name=f"layers_{first}_{last}",
      system="deps_san",
      overrides={
        "parts.encoder.tree_scaled.layers": tuple(range(first - 1, last))
      },
      published={
        "iwslt14_de_en validation": validation,
        "iwslt14_de_en test": test,
      },
    )
    for (first, last), (validation, test) in FIGURES.items()
  ),
)


def get_config(
  row: str = "", task: str = "iwslt14_de_en"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, deps_san.get_config, task)
