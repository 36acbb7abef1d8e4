"""MAFAND-MT, English to Igbo (Adelani et al. 2022): news, 6,998 pairs.

Prepare: jaxsyn prepare --config mafand_en_ibo --raw_dir DIR
Train:   jaxsyn train --config mafand_en_ibo:pascal \
           --workdir runs/pascal_en_ibo
Data:    ibo.PART.en.gz and ibo.PART.ibo.gz, made as mafand_en_hau.py says, of
         data/json_files/en-ibo.
Sizes:   those of mafand_en_hau.py; 3,000 updates are some 20 times through the
         text. Of the training sources 15 % have more than 30 words.
Licence: CC BY-NC 4.0; the news texts have the licences of their sites.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import mafand_en_hau, systems


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  return systems.apply(mafand_en_hau.mafand("ibo"), system)
