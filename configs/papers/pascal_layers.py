"""In which encoder layer the parent-scaled heads work best.

Bugliarello & Okazaki 2020, Table 7a: one layer at a time, on News Commentary
11. Published: BLEU on the validation set newstest2015.

As in its best models parents are ignored, with the task's probability: 0.4
English to German, 0 the other way. On another data set it is 0.4; for none,
dataclasses.replace(row, system="pascal").

Train:   python -m jaxsyn.train --workdir runs/pascal_layer_3 \
           --config configs/papers/pascal_layers.py:layer_3
German to English: get_config("layer_3", task="nc11_de_en").
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, pascal

FIGURES = (  # English to German, German to English
  (23.2, 24.6),
  (22.5, 20.1),
  (22.5, 23.8),
  (22.6, 23.8),
  (22.9, 23.8),
  (22.4, 23.9),
)
TABLE = ablation.Table(
  source="Bugliarello & Okazaki 2020, Table 7a",
  question="In which encoder layer do parent-scaled heads work best?",
  rows=tuple(
    ablation.Row(
      name=f"layer_{layer + 1}",  # the paper counts from 1
      system="pascal_ignoring",
      overrides={"parts.encoder.parent_scaled.layers": (layer,)},
      published={
        "nc11_en_de validation": en_de,
        "nc11_de_en validation": de_en,
      },
    )
    for layer, (en_de, de_en) in enumerate(FIGURES)
  ),
)


def get_config(
  row: str = "", task: str = "nc11_en_de"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, pascal.get_config, task)
