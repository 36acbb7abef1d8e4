"""MAFAND-MT, English to Hausa (Adelani et al. 2022): news, 5,865 pairs.

Prepare: jaxsyn prepare --config mafand_en_hau --raw_dir DIR
Train:   jaxsyn train --config mafand_en_hau:pascal \
           --workdir runs/pascal_en_hau
Data:    github.com/masakhane-io/lafand-mt, commit d441f8b, has JSON files in
         data/json_files/en-hau. DIR needs text files, hau.PART.en.gz and
         hau.PART.hau.gz, where PART is train, dev or test. To write them, run
         this code in data/json_files of a checkout:

           import gzip, json
           for part in ("train", "dev", "test"):
             with open(f"en-hau/{part}.json", encoding="utf-8") as file:
               pairs = [json.loads(line)["translation"] for line in file]
             for side in ("en", "hau"):
               with gzip.open(f"hau.{part}.{side}.gz", "wt", encoding="utf-8") as f:
                 f.writelines(" ".join(p[side].split()) + "\\n" for p in pairs)

Sizes:   Transformer-Tiny with a joint vocabulary of 2,500, for a few thousand
         pairs; 3,000 updates are about 20 epochs. Not tuned. A quarter of the
         sources have more than 30 words.
License: CC BY-NC 4.0; the news texts have the licenses of their websites.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import base, systems


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  return systems.apply(mafand("hau"), system)


def mafand(target: str) -> ml_collections.ConfigDict:
  """Returns the config for translating English to a language of MAFAND-MT."""
  config = base.data_set(f"mafand_en_{target}", "en", target)
  for split, part in (
    ("train", "train"),
    ("validation", "dev"),
    ("test", "test"),
  ):
    names = (f"{target}.{part}.en.gz", f"{target}.{part}.{target}.gz")
    config.prepare.splits[split] = names
  config.prepare.vocabulary.size = 2500
  base.small_corpus(config)
  config.model.transformer.dropout = 0.3
  config.train.steps = 3000
  return config
