"""Training configs for the two settings of Omote et al. 2019.

Omote, Tamura & Ninomiya 2019, "Dependency-Based Relative Positional Encoding
for Transformer NMT" (RANLP), sections 5.1 and 5.3: ASPEC, Japanese to English,
whole words. As the paper states, all else follows Vaswani et al. 2017. The
corpus is not included: put the files named in `splits` into one folder,
tokenized (in the paper by KyTea and Moses), and pass it as --raw_dir. The paper
uses the first 1,500,000 lines of train-1.txt and train-2.txt; the small setting
has the first 100,000 pairs of 50 words or less.

Differs from the authors; there is no option to select the checkpoint by
accuracy, or to limit a vocabulary by the count of its words:
  vocabulary     they kept words seen 7 (Japanese) or 10 times (English), in
                 the small setting 2; their number is not given. Here
                 the 50,000 most frequent words a side, or 30,000: our choice.
  batch          256 pairs, or 100; we count tokens. Here 32 a pair: our choice.
  length         30 epochs of 1,341,417 pairs, or 50 of 100,000, became as many
                 updates of 256 or 100 pairs.
  checkpoint     the best by validation BLEU instead of accuracy.
  output table   shared with the target embeddings, as in Vaswani et al.; two
                 vocabularies cannot share one table.
  parser         UDPipe unless CoNLL-U of another one (theirs: EDA) is given;
                 its words must then be those of the text.
Unknown: the tool that measured BLEU.
"""

from __future__ import annotations

import dataclasses
import itertools

import ml_collections

from jaxsyn.configs import systems
from jaxsyn.configs.papers import paper
from jaxsyn.configs.papers.ablation import Row, Table


@dataclasses.dataclass(frozen=True)
class Task:
  """Options of one translation task of the paper.

  Attributes:
    train: Beginning of the names of the training files.
    pairs: Number of training pairs.
    epochs: Number of epochs.
    batch: Pairs in an update.
    words: Vocabulary size of a side; ours.
  """

  train: str
  pairs: int
  epochs: int
  batch: int
  words: int


TASKS = {
  "wat_ja_en": Task("train", 1_341_417, 30, 256, 50_000),
  "wat_ja_en_100k": Task("train_100k", 100_000, 50, 100, 30_000),
}
TOKENS_A_PAIR = 32  # padding included


def settings(task: str, system: str) -> ml_collections.ConfigDict:
  """Returns the config to train a system on one of the paper's tasks."""
  facts = TASKS[task]
  config = paper.data_set(
    "dependency_relative",
    task,
    ("ja", "en"),
    files={**paper.SPLITS, "train": facts.train},
  )
  config.prepare.clean.max_words = 50
  config.prepare.vocabulary.update(type="word", size=facts.words, joint=False)
  config.batch.tokens = facts.batch * TOKENS_A_PAIR
  paper.base_transformer(config, dropout=0.1, tie_embeddings=False)
  paper.noam(config)
  epoch = -(-facts.pairs // facts.batch)  # updates, the last one not full
  config.train.update(steps=facts.epochs * epoch, evaluate_every=epoch)
  config.decode.update(beam=1, checkpoint="best")
  systems.apply(config, system)
  for place in (config.parts.encoder, config.parts.decoder):
    if "relative" in place:
      place.relative.clip = 2  # k, section 5.1
  return config


PART = "parts.encoder.dependency_relative"

# Table 2: absolute positions, relative ones, dependencies, both. Published:
# BLEU on the test set, large setting.
_TESTS = {
  "transformer": 25.91,
  "relative": 26.72,
  "dependency_relative": 26.10,
  "dependency_relative_both": 27.22,
}
RESULTS = Table(
  source="Omote et al. 2019, Table 2",
  question="Do relative depths in the tree help, alone and with positions?",
  rows=tuple(
    Row(system, system, published={"wat_ja_en test": bleu})
    for system, bleu in _TESTS.items()
  ),
)

# Table 3: whether relative depths help in the keys or in the values: absolute
# positions are off in all rows, trained on the first 100,000 pairs of ASPEC,
# Japanese to English (wat_ja_en_100k). Published: BLEU on the test set. In the
# row "none" the encoder knows no order of words.
_UNORDERED = {"model.transformer.positions": False}
KEYS_VALUES = Table(
  source="Omote et al. 2019, Table 3",
  question="Do relative depths help in the keys or in the values?",
  rows=(
    *(
      Row(
        name,
        "dependency_relative",
        {f"{PART}.keys": keys, f"{PART}.values": values, **_UNORDERED},
        published={"wat_ja_en_100k test": bleu},
      )
      for name, keys, values, bleu in (
        ("both", True, True, 16.71),
        ("keys", True, False, 16.60),
        ("values", False, True, 15.62),
      )
    ),
    Row(
      "none",
      "transformer",
      _UNORDERED,
      published={"wat_ja_en_100k test": 8.69},
    ),
  ),
)

# Which relation of two words in the tree to encode, and how far. Ours: the
# paper tuned l, where relative depths are clipped, on validation data and kept
# 2, but gives no figures; it has no other label. A depth difference is 0 for
# any two words of one depth, however far apart in the tree; the label
# "distance" counts the edges between them instead, negative for words that
# stand before. Absolute positions stay on, as in the paper's main runs.
LABELS = Table(
  source="ours, after Omote et al. 2019, section 5.1",
  question="Which relation in the tree, clipped where?",
  rows=tuple(
    Row(
      f"{label}_{clip}",
      "dependency_relative",
      {f"{PART}.label": label, f"{PART}.clip": clip},
    )
    # The paper's own, depth_2, first.
    for label, clip in itertools.product(("depth", "distance"), (2, 1, 4, 8))
  ),
)

TABLES = {"results": RESULTS, "keys_values": KEYS_VALUES, "labels": LABELS}

get_config = paper.addressed(TASKS, TABLES, settings)
