"""The searches: what config.decode.search may be."""

from jaxsyn.decode.beam import Beam
from jaxsyn.decode.diverse import Diverse
from jaxsyn.decode.sample import Sampling
from jaxsyn.decode.strategy import DecodingStrategy
from jaxsyn.options import Registry

STRATEGIES: Registry[DecodingStrategy] = Registry(
  "search", {"beam": Beam, "sample": Sampling, "diverse": Diverse}
)
