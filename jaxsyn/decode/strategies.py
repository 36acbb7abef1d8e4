"""Table of decoding strategies; config.decode selects one."""

from __future__ import annotations

from jaxsyn.decode.beam import Beam
from jaxsyn.decode.diverse import Diverse
from jaxsyn.decode.sample import Sample
from jaxsyn.decode.strategy import STRATEGIES, Decode

STRATEGIES.update({"beam": Beam, "sample": Sample, "diverse": Diverse})

# Import Decode from here: without the registrations above it has no strategies.
__all__ = ["STRATEGIES", "Decode"]
