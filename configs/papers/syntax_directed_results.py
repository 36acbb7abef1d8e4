"""Whether a window in the tree helps, alone and beside the whole sentence.

Chen et al. 2018, Tables 1 and 2, English to German. Published: BLEU on
newstest2012 (validation), on the test sets, and AVG, their mean ("average").
The one printed for "Chen et al. (2017)" alone, 20.31, is not the mean of its
three figures, 20.34. The text of section 4.4 names "+FlexibleAtt (34.81)" on
Chinese to English, but by Table 2 that is "+Chen et al. (2017)", and
+FlexibleAtt has 34.47.

Rows without "double" are Table 1 (one context), the others Table 2 (the global
context and another one). Which model of Chen et al. 2017 is meant is not said:
the encoder's is taken for Table 1, the one with an attention of its own for
Table 2.

Train:   python -m jaxsyn.train --workdir runs/syntax_directed_gru_syntax \
           --config configs/papers/syntax_directed_results.py:gru_syntax
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, syntax_directed

TASK = "wmt14_en_de"
COLUMNS = ("validation", *syntax_directed.TASKS[TASK].tests, "average")
FIGURES = {
  "gru_global": (17.09, 20.24, 18.67, 19.78, 19.56),
  "gru_sdr": (17.48, 21.03, 19.43, 20.56, 20.31),
  "gru_local": (17.19, 20.74, 19.00, 20.15, 19.96),
  "gru_flexible": (17.24, 20.57, 19.12, 20.03, 19.91),
  "gru_syntax": (17.86, 21.71, 20.36, 21.57, 21.21),
  "gru_double_sdr": (18.03, 21.44, 19.96, 21.07, 20.82),
  "gru_double_local": (17.78, 21.26, 19.87, 20.67, 20.6),
  "gru_double_flexible": (17.56, 21.10, 19.76, 20.74, 20.53),
  "gru_double_syntax": (18.65, 22.11, 20.75, 22.05, 21.64),
}


def published(system: str) -> dict[str, float]:
  """What the paper reports of a system: "task split" -> BLEU."""
  return {
    f"{TASK} {column}": bleu for column, bleu in zip(COLUMNS, FIGURES[system])
  }


TABLE = ablation.Table(
  source="Chen et al. 2018, Tables 1 and 2",
  question="Does a window in the tree help, alone and beside the global one?",
  rows=tuple(
    ablation.Row(name=system, system=system, published=published(system))
    for system in FIGURES
  ),
)


def get_config(row: str = "", task: str = TASK) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, syntax_directed.get_config, task)
