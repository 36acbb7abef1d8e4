"""Global attention to the complete sentence: Bahdanau et al. 2015.

"Neural Machine Translation by Jointly Learning to Align and Translate"
(arXiv:1409.0473), section 3.1, Eq. 6; Chen et al. 2018, Eq. 2.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from jax import Array

from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.windows.window import Window, WindowSpec, softmax_within


class FullSentenceWindow(Window):
  """Module of the attention window that covers the complete source sentence."""

  def __call__(
    self,
    score_BNS: Array,
    query_BNG: Array,
    shared: Any,
    past: Any,
    features: SentenceFeatures,
  ) -> tuple[Array, Any]:
    return softmax_within(score_BNS, features.real_BS[:, None, :]), past


@dataclasses.dataclass(frozen=True)
class FullSentence(WindowSpec):
  """Attention window on the complete source sentence, EOS included."""

  window: ClassVar[type[Window]] = FullSentenceWindow
