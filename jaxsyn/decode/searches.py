"""The searches: what config.decode.search may be."""

from jaxsyn.decode.beam import Beam
from jaxsyn.decode.diverse import Diverse
from jaxsyn.decode.sample import Sample
from jaxsyn.decode.spec import SearchSpec
from jaxsyn.options import Table

SEARCHES: Table[SearchSpec] = Table(
  "search", {"beam": Beam, "sample": Sample, "diverse": Diverse}
)
