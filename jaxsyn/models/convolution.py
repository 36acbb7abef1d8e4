# jaxsyn/models/convolution.py
import dataclasses
from typing import Annotated, ClassVar

import jax.numpy as jnp
from flax import linen as nn

from jaxsyn.models.transformer import Encoded, Transformer, TransformerModel
from jaxsyn.options import option
from jaxsyn.options.bounds import Range


class ConvolutionModel(TransformerModel):
  def setup(self):
    super().setup()
    family, width = self.spec.family, self.spec.model.width
    self.convolutions = [
      nn.Conv(width, (family.kernel,), dtype=self.spec.model.dtype)
      for _ in range(family.encoder_layers)
    ]

  def encode(self, id_BS, source, *, train):
    x_BSD = self._embed(self.source_table, id_BS)
    x_BSD = self._place(x_BSD, jnp.arange(id_BS.shape[1])[None], train=train)
    for convolution in self.convolutions:
      real_BSD = jnp.where(source.real_BS[..., None], x_BSD, 0)
      x_BSD = x_BSD + nn.relu(convolution(real_BSD))
    return Encoded(x_BSD, source)


@dataclasses.dataclass(frozen=True)
class Convolution(Transformer):
  """A convolutional encoder, the Transformer's decoder."""

  kernel: Annotated[int, Range(1, 99)] = option(
    3, "Seen at once, one position and its neighbours.", unit="subwords"
  )

  module: ClassVar[type[nn.Module]] = ConvolutionModel

  def check_part(self, at, place, part):
    if place == "encoder" and not part.embeds:
      raise at.error(" changes attention, and this encoder has none.")
