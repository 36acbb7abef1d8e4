"""Multi30k task 1, German to English; see multi30k_en_de.py.

Prepare: jaxsyn prepare --config multi30k_de_en
Train:   jaxsyn train --config multi30k_de_en:pascal \
           --workdir runs/pascal_de_en
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import multi30k_en_de, systems


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  return systems.apply(multi30k_en_de.multi30k("de", "en"), system)
