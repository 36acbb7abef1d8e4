"""Datasets, systems and sizes of docs/experiment.md."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

METRICS = ("chrf", "bleu", "log_likelihood")  # the first is primary
MARGINS = {"bleu": 0.5, "chrf": 0.5}  # of equivalence, in points
TRIALS = {
  "default": "optimiser.learning_rate=0.01",
  "half_rate": "optimiser.learning_rate=0.005",
  "double_rate": "optimiser.learning_rate=0.02",
  "dropout_30": "model.transformer.dropout=0.3",
}
WITHOUT_TREES = ("linear_bias", "relative", "rotary")  # candidates for L
WITH_TREES = (  # candidates for T
  "pascal",
  "deps_san",
  "neighbour_heads",
  "dependency_relative_both",
)


@dataclasses.dataclass(frozen=True)
class Corpus:
  """Dataset used in the experiment.

  Attributes:
    config: Name of a file in configs/.
    raw: Folder of its text below --raw_dir; "" for a generated corpus.
    options: Options of the dataset by dotted name, without "config.".
  """

  config: str
  raw: str
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# Optional test sets are not used, since all runs need the same ones.
_EN_DE = {"data.test": ("test_2016", "test_2017")}
CORPORA = {
  "en_de_10k": Corpus(
    "multi30k_en_de",
    "multi30k",
    {
      **_EN_DE,
      "prepare.subset.pairs": 10_000,
      # Systems of block E7 read these.
      "prepare.parse.sides": ("source", "target"),
      "prepare.parse.annotations": ("upos", "feats", "lemma"),
    },
  ),
  "en_de": Corpus("multi30k_en_de", "multi30k", _EN_DE),
  "en_cs_10k": Corpus(
    "multi30k_en_cs",
    "multi30k",
    {"data.test": ("test_2016",), "prepare.subset.pairs": 10_000},
  ),
  "en_hau": Corpus("mafand_en_hau", "mafand"),
  "en_ibo": Corpus("mafand_en_ibo", "mafand"),
  "generated": Corpus("quickstart", ""),
}


@dataclasses.dataclass(frozen=True)
class Block:
  """Group of systems that are trained on the same dataset and compared.

  Attributes:
    corpus: Name in CORPORA. Blocks with the same corpus and number of updates
      share their runs.
    updates: Updates of each run.
    seeds: Number of runs of each system.
    systems: Names of configs/systems.py, or "NAME=SYSTEM,OPTION=VALUE,..." as
      in `jaxsyn compare --systems`. {T} and {L} are the best systems with and
      without trees.
    survey: Whether only H1 is tested, without pooling the error variance,
      since the systems differ too much.
  """

  corpus: str
  updates: int
  seeds: int
  systems: tuple[str, ...]
  survey: bool = False


# With the recipe of E0, validation improves until update 2,800 (docs/experiment.md).
UPDATES_10K = 3200
_RANDOM_T = "{T}_random_tree={T},data.tree=random"
_NEWS = ("transformer", "{L}", "{T}", _RANDOM_T, "pascal")
BLOCKS = {
  "E0": Block(
    "en_de_10k",
    2400,
    1,
    tuple(
      f"{system}_{name}={system},{option}"
      for system, (name, option) in itertools.product(
        ("transformer", "neighbour_heads"), TRIALS.items()
      )
    ),
  ),
  "E1a": Block(
    "en_de_10k",
    UPDATES_10K,
    8,
    (
      "transformer",
      "linear_bias",
      "pascal",
      "pascal_random_tree",
      "deps_san",
      "deps_san_random_tree",
      "neighbour_heads",
      "neighbour_heads_random_tree",
    ),
  ),
  "E1b": Block(
    "en_de_10k",
    UPDATES_10K,
    8,
    (
      "relative",
      "rotary",
      "dependency_relative_both",
      "dependency_relative_both_random_tree=dependency_relative_both,"
      "data.tree=random",
    ),
  ),
  "E5_hau": Block("en_hau", 2400, 8, _NEWS),
  "E5_ibo": Block("en_ibo", 2400, 8, _NEWS),
  "E3": Block(
    "en_cs_10k", UPDATES_10K, 5, ("transformer", "{L}", "{T}", _RANDOM_T)
  ),
  "E4": Block(
    "en_de_10k",
    UPDATES_10K,
    5,
    tuple(
      f"{{T}}_wrong_{percent}={{T}},data.tree=wrong_parents,"
      f"data.wrong_parents.rate={percent / 100}"
      for percent in (10, 30, 60)
    ),
  ),
  "E2": Block(
    "en_de", 4000, 5, ("transformer", "{L}", "pascal", "{T}", _RANDOM_T)
  ),
  "E6": Block("generated", 4000, 5, ("transformer", "{T}", _RANDOM_T)),
  "E7": Block(
    "en_de_10k",
    UPDATES_10K,
    3,
    (
      "pascal_ignoring",
      "label_embedding",
      "sisa",
      "dbsa",
      "sync_attention",
      "dependency_relative",
      "localness_query",
      "context_deep_global",
      "deps_san_rs",
      "gru_global",
      "gru_syntax",
      "gru_double_syntax",
      "tree_bias_edges",
      "graph_block",
      "factors",
    ),
    survey=True,
  ),
}
