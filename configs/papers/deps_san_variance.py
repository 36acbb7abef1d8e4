"""How wide the Gaussian of the tree distance should be.

Peng et al., Table 2b, on IWSLT14 German to English. Published: BLEU on their
validation and test sets.

The table is headed "variance" and runs over 1, 2, 4 ... 32; the text names
σ = 1 the best "variance", and the option of the authors' code is a standard
deviation. Whether the figures are of σ or of σ² is unknown except at 1, where
it is the same. Row "sigma_8" reads the figures of 8 as those of σ = 8, row
"variance_8" as those of σ² = 8; only one reading is what was trained. By the
second, the figures of 4 are those of σ = 2 (30.64, 29.82) and those of 16 of
σ = 4 (30.86, 30.08), so these need no rows of their own.

A wider density is also a lower one, as in pascal_variance.py; normalise=peak1
keeps the height.

Train:   python -m jaxsyn.train --workdir runs/deps_san_sigma_4 \
           --config configs/papers/deps_san_variance.py:sigma_4
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, deps_san

FIGURES = {  # the paper's "variance": validation, test
  1: (31.42, 30.44),
  2: (30.77, 29.84),
  4: (30.64, 29.82),
  8: (30.60, 30.03),
  16: (30.86, 30.08),
  32: (30.46, 29.64),
}


def _row(reading: str, width: int, sigma: float) -> ablation.Row:
  validation, test = FIGURES[width]
  return ablation.Row(
    name=f"{reading}_{width}",
    system="deps_san",
    overrides={"parts.encoder.tree_scaled.sigma": sigma},
    published={
      "iwslt14_de_en validation": validation,
      "iwslt14_de_en test": test,
    },
  )


TABLE = ablation.Table(
  source="Peng et al., Deps-SAN, Table 2b",
  question="How wide should the Gaussian of the tree distance be?",
  rows=(
    *(_row("sigma", width, float(width)) for width in FIGURES),
    *(_row("variance", width, width**0.5) for width in (2, 8, 32)),
  ),
)


def get_config(
  row: str = "", task: str = "iwslt14_de_en"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, deps_san.get_config, task)
