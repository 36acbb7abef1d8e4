"""Registry of attention modifiers, and the base classes for new ones.

Each modifier is one file with options and module, and one line below. The table
is in the order of application: first modifiers of embeddings, queries
and keys; then those that add relative positions; then those that multiply
scores, add a bias or hide pairs; and last those that replace scores, so that a
loss supervises what the head computes.

Windows of recurrent decoders have their own table, `jaxsyn.syntax.windows`.
"""

from __future__ import annotations

from jaxsyn.options import Registry
from jaxsyn.syntax.context import Context
from jaxsyn.syntax.dasa import Dasa
from jaxsyn.syntax.dbsa import Dbsa
from jaxsyn.syntax.dependency_relative import DependencyRelative
from jaxsyn.syntax.factors import Factors
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.given_weighting import GivenWeighting
from jaxsyn.syntax.graph_block import GraphBlock
from jaxsyn.syntax.label_embedding import LabelEmbedding
from jaxsyn.syntax.linear_bias import LinearBias
from jaxsyn.syntax.localness import Localness
from jaxsyn.syntax.modifier import (
  AttentionSite,
  Modifier,
  ModifierSpec,
  StackShape,
)
from jaxsyn.syntax.neighbour_heads import NeighbourHeads
from jaxsyn.syntax.parent_scaled import ParentScaled
from jaxsyn.syntax.relative import Relative
from jaxsyn.syntax.sisa import Sisa
from jaxsyn.syntax.source_dependency import SourceDependency
from jaxsyn.syntax.tree_bias import TreeBias
from jaxsyn.syntax.tree_position import TreePosition
from jaxsyn.syntax.tree_rotary import TreeRotary
from jaxsyn.syntax.tree_scaled import TreeScaled
from jaxsyn.syntax.windows import WINDOWS, Window, WindowSpec

__all__ = [
  "MODIFIERS",
  "WINDOWS",
  "AttentionSite",
  "Modifier",
  "ModifierSpec",
  "SentenceFeatures",
  "StackShape",
  "Window",
  "WindowSpec",
]

MODIFIERS: Registry[ModifierSpec] = Registry(
  "modifier",
  {
    "source_dependency": SourceDependency,
    "label_embedding": LabelEmbedding,
    "factors": Factors,
    "tree_position": TreePosition,
    "graph_block": GraphBlock,
    "context": Context,
    "tree_rotary": TreeRotary,
    "relative": Relative,
    "dependency_relative": DependencyRelative,
    "parent_scaled": ParentScaled,
    "tree_scaled": TreeScaled,
    "given_weighting": GivenWeighting,
    "dasa": Dasa,
    "localness": Localness,
    "linear_bias": LinearBias,
    "tree_bias": TreeBias,
    "neighbour_heads": NeighbourHeads,
    "sisa": Sisa,
    "dbsa": Dbsa,
  },
)
