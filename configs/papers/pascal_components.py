"""What filtering, parent-scaled heads and parent ignoring each add.

Bugliarello & Okazaki 2020, Table 5: one component after the other, on each
task where its best model has it. Published: BLEU on the validation sets.

The learning rate changes with the heads (1e-3 to 7e-4), as in the authors'
scripts; on some tasks so does Adam's second decay. Rows "pascal" and "ignoring"
filter where the data set's file does: on another data set, set its
config.prepare.clean.language first. The probability of ignoring is the task's;
on another data set it is 0.4, that of NC11 English to German.

Train:   python -m jaxsyn.train --workdir runs/components_filtering \
           --config configs/papers/pascal_components.py:filtering
Another task: get_config("pascal", task="wmt18_en_tr"). The row "transformer"
is prepared in a folder of its own, with the same command of preprocess.build.
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, pascal

TABLE = ablation.Table(
  source="Bugliarello & Okazaki 2020, Table 5",
  question="What do filtering, PASCAL and parent ignoring each add?",
  rows=(
    ablation.Row(
      name="transformer",
      system="transformer",
      overrides={"prepare.clean.language": False},
      published={
        "nc11_en_de validation": 22.6,
        "nc11_de_en validation": 23.8,
        "wmt18_en_tr validation": 12.6,
        "wmt16_en_de validation": 29.0,
        "wmt17_en_de validation": 31.5,
        "wat_en_ja validation": 42.2,
      },
      folder="unfiltered",
    ),
    ablation.Row(
      name="filtering",
      system="transformer",
      overrides={"prepare.clean.language": True},
      published={
        "nc11_en_de validation": 22.8,
        "nc11_de_en validation": 24.0,
        "wmt16_en_de validation": 28.7,
      },
      folder="filtered",
    ),
    ablation.Row(
      name="pascal",
      system="pascal",
      published={
        "nc11_en_de validation": 23.0,
        "nc11_de_en validation": 24.6,
        "wmt18_en_tr validation": 13.6,
        "wmt16_en_de validation": 29.2,
        "wmt17_en_de validation": 31.6,
        "wat_en_ja validation": 43.5,
      },
    ),
    ablation.Row(
      name="ignoring",
      system="pascal_ignoring",
      published={
        "nc11_en_de validation": 23.2,
        "wmt18_en_tr validation": 13.7,
        "wmt17_en_de validation": 32.1,
      },
    ),
  ),
)


def get_config(
  row: str = "", task: str = "nc11_en_de"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, pascal.get_config, task)
