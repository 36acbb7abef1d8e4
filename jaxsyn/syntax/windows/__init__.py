"""Attention windows of recurrent decoders, which weight source positions.

Each window is one file with options and module, and one line below. The order of
the table is that of the context vectors; the first one of a model also updates
the decoder's state (`config.model.gru.update`).
"""

from __future__ import annotations

from jaxsyn.options import Registry
from jaxsyn.syntax.windows.flexible import Flexible
from jaxsyn.syntax.windows.local import Local
from jaxsyn.syntax.windows.source_dependency import SourceDependencyWindow
from jaxsyn.syntax.windows.tree import SyntaxDirected
from jaxsyn.syntax.windows.whole import FullSentence
from jaxsyn.syntax.windows.window import Window, WindowSpec

__all__ = ["WINDOWS", "Window", "WindowSpec"]

WINDOWS: Registry[WindowSpec] = Registry(
  "window",
  {
    "global": FullSentence,
    "local": Local,
    "flexible": Flexible,
    "syntax": SyntaxDirected,
    "source_dependency": SourceDependencyWindow,
  },
)
