"""A second look at the source: at what its words hang among.

Chen et al. 2017, "Neural Machine Translation with Source Dependency
Representation" (D17-1304), model 2, recalled; model 1 and the vectors are in
`jaxsyn.syntax.source_dependency`. There the scores of both alignments are mixed
before the softmax; this is the form with two contexts that Chen et al. 2018
give their own model, and so compare with.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax

from jaxsyn.errors import InputError
from jaxsyn.syntax.part import View
from jaxsyn.syntax.source_dependency import Surroundings, check_unit
from jaxsyn.syntax.windows.whole import WholeWindow
from jaxsyn.syntax.windows.window import Window, WindowSpec

Array = jax.Array


class _SourceDependency(WholeWindow):
  def setup(self):
    spec = self.spec
    self.surroundings = Surroundings(spec.size, spec.length, spec.kernel)

  def sequence(self, x_BSD: Array, view: View) -> Array:
    return self.surroundings(x_BSD, view)


@dataclasses.dataclass(frozen=True)
class SourceDependency(WindowSpec):
  """All of a second sequence of annotations, made from V alone.

  A bidirectional encoder of its own reads the V of every subword; an alignment
  of its own scores what it says, and the window is the whole sentence.

  Attributes:
    size: dimensions of V.
    length: words of a unit at most; the paper's 10.
    kernel: words that the convolution sees at once, odd; the paper's 3.
  """

  size: int = 48
  length: int = 10
  kernel: int = 3

  window: ClassVar[type[Window]] = _SourceDependency
  needs: ClassVar[tuple[str, ...]] = ("head",)
  own_annotations: ClassVar[bool] = True

  def check(self, where: str) -> None:
    if self.size < 1:
      raise InputError(f"{where}.size must be at least 1, got {self.size}.")
    check_unit(where, self.length, self.kernel)
