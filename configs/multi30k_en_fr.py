"""Multi30k task 1, English to French (Elliott et al. 2017), 29,000 captions.

Prepare: jaxsyn prepare --config multi30k_en_fr
Train:   jaxsyn train --config multi30k_en_fr:pascal \
           --workdir runs/pascal_en_fr
Tests:   test_2016, test_2017, test_2018, test_2017_mscoco.
         The last two are optional, as in multi30k_en_de.py.
Sizes:   those of multi30k_en_de.py, not tuned for French.
License: the captions are for non-commercial research and education.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.configs import multi30k_en_de, systems


def get_config(system: str = "transformer") -> ml_collections.ConfigDict:
  return systems.apply(multi30k_en_de.multi30k("en", "fr"), system)
