"""Which relation of two words in the tree to encode, and how far.

Ours: Omote, Tamura & Ninomiya 2019 tuned l, where relative depths are clipped,
on validation data and kept 2, but give no figures; they have no other label.
A depth difference is 0 for any two words of one depth, however far apart in
the tree; the label "distance" counts the edges between them instead, negative
for words that stand before. Absolute positions stay on, as in the paper's main
runs.

Train:   python -m jaxsyn.train --workdir runs/dependency_relative_distance_4 \
           --config configs/papers/dependency_relative_labels.py:distance_4
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, dependency_relative

PART = "parts.encoder.dependency_relative"
TABLE = ablation.Table(
  source="ours, after Omote et al. 2019, section 5.1",
  question="Which relation in the tree, clipped where?",
  rows=tuple(
    ablation.Row(
      name=f"{label}_{clip}",
      system="dependency_relative",
      overrides={f"{PART}.label": label, f"{PART}.clip": clip},
    )
    # The paper's own, depth_2, first.
    for label in ("depth", "distance")
    for clip in (2, 1, 4, 8)
  ),
)


def get_config(
  row: str = "", task: str = "wat_ja_en"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, dependency_relative.get_config, task)
