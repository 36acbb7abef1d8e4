"""Registry of architectures: encoder-decoders with a common interface."""

from __future__ import annotations

from jaxsyn.models.gru import Gru
from jaxsyn.models.spec import ARCHITECTURES
from jaxsyn.models.transformer import Transformer

ARCHITECTURES.update({"transformer": Transformer, "gru": Gru})

__all__ = ["ARCHITECTURES"]
