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

from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.modifier import SentenceFeatures
from jaxsyn.syntax.source_dependency import Surroundings
from jaxsyn.syntax.windows.whole import FullSentenceWindow
from jaxsyn.syntax.windows.window import Window, WindowSpec


class _SourceDependencyWindow(FullSentenceWindow):
  def setup(self) -> None:
    self.surroundings = Surroundings(self.spec.size)

  def sequence(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    return self.surroundings(x_BSD, view)


@dataclasses.dataclass(frozen=True)
class SourceDependencyWindow(WindowSpec):
  """Window on a second sequence of annotations, which are made from V alone.

  A bidirectional encoder of its own reads the V of every subword; an alignment
  of its own scores what it says, and the window is the whole sentence.
  """

  size: Count = option(
    48, "Width of the vector V of a word's tree neighbors; 260 in the paper."
  )

  window: ClassVar[type[Window]] = _SourceDependencyWindow
  required_features: ClassVar[tuple[str, ...]] = ("head",)
  has_own_annotations: ClassVar[bool] = True
