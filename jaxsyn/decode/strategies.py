"""The registry of decoding strategies: values of config.decode.search."""

from __future__ import annotations

from jaxsyn.decode.beam import Beam
from jaxsyn.decode.diverse import Diverse
from jaxsyn.decode.sample import Sampling
from jaxsyn.decode.strategy import STRATEGIES

STRATEGIES.update({"beam": Beam, "sample": Sampling, "diverse": Diverse})

__all__ = ["STRATEGIES"]
