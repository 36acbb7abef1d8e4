"""Attention to encodings of each source word's tree neighbors.

Chen et al. 2017, "Neural Machine Translation with Source Dependency
Representation" (D17-1304, from memory), model 2; model 1 and the vectors are in
`jaxsyn.syntax.source_dependency`. There the scores of both alignments are mixed
before the softmax. This is the form with two contexts, as in Chen et al. 2018.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.source_dependency import Surroundings
from jaxsyn.syntax.windows.whole import FullSentenceWindow
from jaxsyn.syntax.windows.window import Window, WindowSpec


class _SourceDependencyWindow(FullSentenceWindow):
  def setup(self) -> None:
    self.surroundings = Surroundings(self.spec.size)

  def sequence(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    return self.surroundings(x_BSD, features)


@dataclasses.dataclass(frozen=True)
class SourceDependencyWindow(WindowSpec):
  """Full attention to a second encoder, which encodes words' tree neighbors.

  The encoder is bidirectional and has its own alignment; the window covers the
  complete sentence.
  """

  size: Count = option(
    48, "Width of the vector V of a word's tree neighbors; 260 in the paper."
  )

  window: ClassVar[type[Window]] = _SourceDependencyWindow
  required_features: ClassVar[tuple[str, ...]] = ("head",)
  has_own_annotations: ClassVar[bool] = True
