"""Generated corpus of 8,000 pairs: English to an invented language.

Write:   python -m jaxsyn.preprocess.quickstart --output data/quickstart/raw
Prepare: jaxsyn prepare --config quickstart
Train:   jaxsyn train --config quickstart:pascal \
           --workdir runs/quickstart/pascal
Results: three seeds, about a minute each on two CPU cores: transformer 59.9 BLEU,
         pascal 74.8, pascal_random_tree 62.1 (docs/results.md). This shows the
         effect of trees if words depend on their parents by construction
         (preprocess/toy); the effect may differ for natural languages.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import base, systems

RAW = "data/quickstart/raw"


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  config = base.data_set("quickstart", "en", "qaa")  # the code for private use
  config.prepare.raw_dir = RAW
  for split in ("train", "validation", "test"):
    config.prepare.splits[split] = (f"{split}.en", f"{split}.qaa")
    config.prepare.parse.target_conllu[split] = f"{split}.qaa.conllu"
    config.prepare.alignments[split] = (f"{split}.align",)
  # The source is parsed, as real text is; the target, which has trees in
  # training only, has those of the grammar.
  config.prepare.parse.sides = ("source", "target")
  # In the folder of the text, also if raw_dir is set later.
  config.prepare.parse.source.udpipe.model = (
    config.prepare.get_ref("raw_dir") + "/quickstart.udpipe"
  )
  config.prepare.parse.annotations = ("upos", "feats", "lemma")
  config.prepare.vocabulary.size = 1000

  config.batch.tokens = 1024
  config.batch.shapes = 4

  config.model.transformer.update(
    encoder_layers=2, decoder_layers=2, dropout=0.1
  )

  config.optimiser.learning_rate = 3e-3
  config.optimiser.inverse_sqrt.warmup = 400
  config.train.steps = 1000
  config.train.log_every = 100
  config.train.evaluate_every = 250
  return systems.apply(config, system)
