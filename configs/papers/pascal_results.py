"""PASCAL beside its rivals: label embeddings, a parsing head, a second task.

Bugliarello & Okazaki 2020, Tables 3 and 4. Published: BLEU on the test sets. In
the authors' scripts PASCAL's training text is filtered by language on News
Commentary 11 and WMT16, the others' is not: here all have what the task has.

The second task of "multitask" are constituents, as in the paper: give them in
config.prepare.parse.source_brackets.train and prepare.

Train:   python -m jaxsyn.train --workdir runs/pascal_results_sisa \
           --config configs/papers/pascal_results.py:sisa
Another task: get_config("sisa", task="wmt18_en_tr").
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, pascal

TABLE = ablation.Table(
  source="Bugliarello & Okazaki 2020, Tables 3 and 4",
  question="Which way of telling a Transformer about syntax helps?",
  rows=tuple(
    ablation.Row(
      name=name,
      system=system,
      overrides=overrides,
      published={
        f"{task} test": score for task, score in zip(pascal.TASKS, scores)
      },
    )
    for name, system, overrides, scores in (
      ("transformer", "transformer", {}, (25.0, 26.6, 13.1, 33.0, 25.5, 43.1)),
      (
        "label_embedding",
        "label_embedding",
        {},
        (25.5, 26.8, 13.0, 31.9, 25.1, 42.8),
      ),
      ("sisa", "sisa", {}, (25.5, 27.2, 13.6, 33.6, 25.9, 43.2)),
      (
        "multitask",
        "multitask",
        {"data.second.brackets": "constituency"},
        (24.8, 26.7, 14.0, 32.4, 24.6, 43.1),
      ),
      ("pascal", "pascal_ignoring", {}, (25.9, 27.4, 14.0, 33.9, 26.1, 44.0)),
    )
  ),
)


def get_config(
  row: str = "", task: str = "nc11_en_de"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, pascal.get_config, task)
