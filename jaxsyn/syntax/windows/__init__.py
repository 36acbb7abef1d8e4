"""Windows of a recurrent decoder: which annotations a step looks at.

One file a window (spec, module), one line here. The order of the table is the
order of the contexts: the first of a model's windows also moves the decoder's
state (`config.model.gru.update`).
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
