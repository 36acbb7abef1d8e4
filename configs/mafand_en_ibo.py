"""MAFAND-MT, English to Igbo (Adelani et al. 2022): news, 6,998 pairs.

Prepare: jaxsyn prepare --config mafand_en_ibo --raw_dir DIR
Train:   jaxsyn train --config mafand_en_ibo:pascal \
           --workdir runs/pascal_en_ibo
Data:    ibo.PART.en.gz and ibo.PART.ibo.gz, made from
         data/json_files/en-ibo as described in mafand_en_hau.py.
Sizes:   those of mafand_en_hau.py; 3,000 updates are about 20 epochs. 15 % of
         the training sources have more than 30 words.
License: CC BY-NC 4.0; the news texts have the licenses of their websites.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import mafand_en_hau, systems


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  return systems.apply(mafand_en_hau.mafand("ibo"), system)
