"""The table of families: encoder-decoders that keep the model contract."""

from __future__ import annotations

from jaxsyn.models.gru import Gru
from jaxsyn.models.spec import Architecture
from jaxsyn.models.transformer import Transformer
from jaxsyn.options import Registry

ARCHITECTURES: Registry[Architecture] = Registry(
  "family", {"transformer": Transformer, "gru": Gru}
)
