"""Multi30k task 1, English to Czech (Barrault et al. 2018), 29,000 captions.

Prepare: jaxsyn prepare --config multi30k_en_cs
Train:   jaxsyn train --config multi30k_en_cs:pascal \
           --workdir runs/pascal_en_cs
Tests:   test_2016 and test_2018; there is no Czech test_2017.
         test_2018 is optional, as in multi30k_en_de.py.
Sizes:   those of multi30k_en_de.py, not tuned for Czech.
License: the captions are for non-commercial research and education.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import multi30k_en_de, systems


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  return systems.apply(multi30k_en_de.multi30k("en", "cs"), system)
