"""What a tree does to attention: the room for variants.

One file a part (spec, module), one line here. The order of the table is the
order of application: parts that make scores, then those that multiply them,
then those that add to them.
"""

from __future__ import annotations

from jaxsyn.syntax.given_weighting import GivenWeighting
from jaxsyn.syntax.parent_scaled import ParentScaled
from jaxsyn.syntax.part import Part, Spec, View, Where

__all__ = ["PARTS", "Part", "Spec", "View", "Where"]

PARTS: dict[str, type[Spec]] = {
  "parent_scaled": ParentScaled,
  "given_weighting": GivenWeighting,
}
