"""The two settings of Omote, Tamura & Ninomiya 2019 (RANLP), as trained.

"Dependency-Based Relative Positional Encoding for Transformer NMT", sections
5.1 and 5.3: ASPEC, Japanese to English, whole words. What the paper leaves open
follows Vaswani et al. 2017, as it says. The corpus is not ours to give: put
the files named in `splits` into one folder, tokenised (theirs: KyTea and
Moses), and name it with --raw_dir. They took the first 1,500,000 lines of
train-1.txt and train-2.txt; the small setting has the first 100,000 pairs of
50 words or less.

Differs from the authors, for want of such an option or of the fact:
  vocabulary     they kept words seen 7 (Japanese) or 10 times (English), in
                 the small setting 2; how many that is they do not say. Here
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

Published, Table 2, test BLEU: absolute positions 25.91 (`transformer`),
relative 26.72 (`relative`), dependencies 26.10 (`dependency_relative`), both
27.22 (`dependency_relative_both`); k = 2 and l = 2.
"""

from __future__ import annotations

import dataclasses

import ml_collections

from configs import base, systems
from jaxsyn.errors import InputError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Task:
  """A setting.

  Attributes:
    train: what the names of the training files start with.
    pairs: to train on.
    epochs: over them.
    batch: pairs an update.
    words: a side's vocabulary; ours.
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


def get_config(task: str, system: str) -> ml_collections.ConfigDict:
  """The settings of a task for any system.

  Raises: InputError: unknown task or system.
  """
  if task not in TASKS:
    raise InputError(f"no task {task!r}. {did_you_mean(task, TASKS)}")
  config, facts = base.get_config(), TASKS[task]
  config.data.name = f"paper_dependency_relative_{task}"
  config.data.directory = f"data/paper_dependency_relative_{task}"
  config.data.source_language = "ja"
  config.data.target_language = "en"
  files = {"train": facts.train, "validation": "validation", "test": "test"}
  for split, name in files.items():
    config.prepare.splits[split] = (f"{name}.ja", f"{name}.en")
  config.prepare.clean.max_words = 50
  config.prepare.vocabulary.update(type="word", size=facts.words, joint=False)
  config.batch.tokens = facts.batch * TOKENS_A_PAIR
  config.model.update(width=512, tie_embeddings=False)
  config.model.transformer.update(
    encoder_layers=6,
    decoder_layers=6,
    feed_forward=2048,
    heads=8,
    norm="post",
    dropout=0.1,
  )
  config.optimiser.update(learning_rate=1.0, schedule="noam")
  config.optimiser.noam.update(warmup=4000)
  epoch = -(-facts.pairs // facts.batch)  # updates, the last one not full
  config.train.update(steps=facts.epochs * epoch, evaluate_every=epoch)
  config.decode.update(beam=1, checkpoint="best")
  systems.apply(config, system)
  for place in (config.parts.encoder, config.parts.decoder):
    if "relative" in place:
      place.relative.clip = 2  # k, section 5.1
  return config
