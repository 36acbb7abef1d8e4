# jaxsyn/syntax/windows/near.py
import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from jaxsyn.options import option
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.windows.window import Window, WindowSpec, softmax_within


class _Near(Window):
  def start(self, view, beams):  # what it remembers: where it looked on average
    return jnp.zeros((view.real_BS.shape[0], beams))

  def __call__(self, score_BNS, query_BNG, facts, past, view, *, train):
    own_S = jnp.arange(score_BNS.shape[-1])
    near_BNS = jnp.abs(own_S - past[..., None]) <= self.spec.reach
    weight_BNS = softmax_within(score_BNS, near_BNS & view.real_BS[:, None, :])
    return weight_BNS, jnp.sum(weight_BNS * own_S, axis=-1)


@dataclasses.dataclass(frozen=True)
class Near(WindowSpec):
  """Softmax within `reach` of where the step before looked."""

  reach: Count = option(5, "Seen on each side.", unit="subwords")

  window: ClassVar[type[Window]] = _Near
