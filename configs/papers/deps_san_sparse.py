"""Whether leaving out parts of the tree helps Deps-SAN.

Peng et al., Table 1: RS-Sparse with q = 0.1 and k = 6, Wink-Sparse with k = 6
(section 3.3). Published: BLEU on the test sets of IWSLT14 and WMT16.

At σ = 1 the row "wink" changes nothing that float32 can see: beyond six edges
the weight is 9e-12 or less before it becomes 0. That the published figures of
"none" and "wink" differ by 0.75 BLEU thus says how far runs lie apart; use
several seeds. The rows marked ours do change something:
  rs_one             a dropped pair keeps its score, as in parent ignoring.
  wink_2             pairs three or more edges apart are dropped; at three the
                     weight was 0.0044.
  wink_mask          pairs seven or more edges apart are hidden in training.
  wink_mask_always   and in evaluation: the other reading of "a fixed variant"
                     (section 2.2).

Train:   python -m jaxsyn.train --workdir runs/deps_san_wink \
           --config configs/papers/deps_san_sparse.py:wink
Large task: get_config("wink", task="wmt16_de_en").
"""

from __future__ import annotations

import ml_collections

from configs.papers import ablation, deps_san

PART = "parts.encoder.tree_scaled"


def _published(iwslt14: float, wmt16: float) -> dict[str, float]:
  return {"iwslt14_de_en test": iwslt14, "wmt16_de_en test": wmt16}


TABLE = ablation.Table(
  source="Peng et al., Deps-SAN, Table 1",
  question="Does it help to leave out parts of the tree?",
  rows=(
    ablation.Row("none", "deps_san", published=_published(30.44, 27.94)),
    ablation.Row(
      "rs",
      "deps_san",
      {f"{PART}.random_sparse": 0.1, f"{PART}.random_distance": 6},
      _published(29.76, 27.63),
    ),
    ablation.Row(
      "wink", "deps_san", {f"{PART}.wink": 6}, _published(29.69, 27.53)
    ),
    # Ours.
    ablation.Row(
      "rs_one",
      "deps_san",
      {f"{PART}.random_sparse": 0.1, f"{PART}.fill": "one"},
    ),
    ablation.Row("wink_2", "deps_san", {f"{PART}.wink": 2}),
    ablation.Row(
      "wink_mask", "deps_san", {f"{PART}.wink": 6, f"{PART}.fill": "mask"}
    ),
    ablation.Row(
      "wink_mask_always",
      "deps_san",
      {
        f"{PART}.wink": 6,
        f"{PART}.fill": "mask",
        f"{PART}.wink_at_evaluation": True,
      },
    ),
  ),
)


def get_config(
  row: str = "", task: str = "iwslt14_de_en"
) -> ml_collections.ConfigDict:
  return ablation.of_task(TABLE, row, deps_san.get_config, task)
