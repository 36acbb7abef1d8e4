"""How the predicted position should read the tree.

Chen et al. 2018, Eqs. 5 and 10: a real position p names a row of the matrix of
tree distances. How it becomes an index is not said; taken as one ("hard": ⌊p⌋)
it passes no gradient on, and what predicts it stays as it was drawn. The others
are ours: "interp" mixes the rows of ⌊p⌋ and ⌈p⌉ and so learns; "expected" takes
the mean of all rows by the global weights and predicts no position.

Published, BLEU on English to German: of the paper's SDAtt (Table 1), whatever
it did; it stands at "hard", which is Eq. 10 to the letter.

Train:   python -m jaxsyn.train --workdir runs/syntax_directed_expected \
           --config configs/papers/syntax_directed_position.py:expected
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, syntax_directed, syntax_directed_results

TABLE = ablation.Table(
  source="Chen et al. 2018, Eq. 10",
  question="How should the predicted position read the tree?",
  rows=tuple(
    ablation.Row(
      name=position,
      system="gru_syntax",
      overrides={"model.gru.windows.syntax.position": position},
      published=syntax_directed_results.published("gru_syntax")
      if position == "hard"
      else None,
    )
    for position in ("hard", "interp", "expected")
  ),
)


def get_config(
  row: str = "", task: str = syntax_directed_results.TASK
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, syntax_directed.get_config, task)
