"""Transformers that read dependency trees as graphs, and random-tree controls.

The systems use biases, masks and rotations for graphs and dependency trees, or
the corresponding methods for positions in the sentence. The table in
`configs/systems.py` includes them.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jaxsyn.syntax import MODIFIERS


def linear_bias(config: ConfigDict) -> None:
  """Learned attention bias per token distance: Raffel et al. 2020 (T5).

  Encoder and decoder, shared by their layers. Sinusoidal positions are kept; T5
  omits them: --config.model.transformer.positions=False.
  """
  for place in (config.parts.encoder, config.parts.decoder):
    place.linear_bias = MODIFIERS.section("linear_bias")


def tree_bias(config: ConfigDict) -> None:
  """Learned attention bias per tree distance: Ying et al. 2021 (Graphormer).

  All layers and heads of the encoder, one bias for all layers.
  """
  config.parts.encoder.tree_bias = MODIFIERS.section("tree_bias")


def tree_bias_edges(config: ConfigDict) -> None:
  """`tree_bias` plus Graphormer's bias per dependency relation on the path."""
  tree_bias(config)
  config.parts.encoder.tree_bias.edges = True


def tree_bias_steps(config: ConfigDict) -> None:
  """Attention bias per number of tree edges up and down; our own variant."""
  config.parts.encoder.tree_bias = MODIFIERS.section(
    "tree_bias", kind="steps", clip=4
  )


def tree_bias_steps_edges(config: ConfigDict) -> None:
  """`tree_bias_steps` plus a bias per relation on the path; our own variant."""
  tree_bias_steps(config)
  config.parts.encoder.tree_bias.edges = True


def tree_bias_random_tree(config: ConfigDict) -> None:
  """Control: `tree_bias` with random trees over the same words."""
  tree_bias(config)
  config.data.tree = "random"


def tree_position(config: ConfigDict) -> None:
  """Encoded tree path to the root, added to embeddings: Shiv & Quirk 2019."""
  config.parts.encoder.tree_position = MODIFIERS.section("tree_position")


def tree_position_laplacian(config: ConfigDict) -> None:
  """Laplacian eigenvectors added to embeddings: Dwivedi & Bresson 2021."""
  config.parts.encoder.tree_position = MODIFIERS.section(
    "tree_position", kind="laplacian"
  )


def tree_position_depth(config: ConfigDict) -> None:
  """Sinusoids of tree depth, added to embeddings: after Wang et al. 2019."""
  config.parts.encoder.tree_position = MODIFIERS.section(
    "tree_position", kind="depth"
  )


def neighbour_heads(config: ConfigDict) -> None:
  """Two attention heads that see only words nearby in the tree: Li et al. 2021.

  The mask of the paper in all encoder layers, without its gate. For the heads
  of SG-Net, set
  --config.parts.encoder.neighbour_heads.relation=ancestors.
  """
  config.parts.encoder.neighbour_heads = MODIFIERS.section("neighbour_heads")


def neighbour_heads_random_tree(config: ConfigDict) -> None:
  """Control: `neighbour_heads` with random trees over the same words."""
  neighbour_heads(config)
  config.data.tree = "random"


def neighbour_heads_gated(config: ConfigDict) -> None:
  """Gated mix of tree-local and full attention in all heads: Li et al. 2021.

  There is one gate per position and layer, shared by all heads.
  """
  config.parts.encoder.neighbour_heads = MODIFIERS.section(
    "neighbour_heads", heads=None, gate="input"
  )


def neighbour_heads_near(config: ConfigDict) -> None:
  """Two attention heads that see words within two tree edges; our own variant.

  Neither these words' neighbors in the sentence nor EOS are visible.
  """
  config.parts.encoder.neighbour_heads = MODIFIERS.section(
    "neighbour_heads", hops=2, context=0, eos=False
  )


def neighbour_heads_near_random_tree(config: ConfigDict) -> None:
  """Control: `neighbour_heads_near` with random trees over the same words."""
  neighbour_heads_near(config)
  config.data.tree = "random"


def neighbour_heads_near_gated(config: ConfigDict) -> None:
  """Gated mix of `neighbour_heads_near` and full attention; our own variant."""
  config.parts.encoder.neighbour_heads = MODIFIERS.section(
    "neighbour_heads", hops=2, context=0, eos=False, heads=None, gate="query"
  )


def dasa(config: ConfigDict) -> None:
  """DASA: attention scores scaled by tree nearness, after Chi et al. 2026.

  Only the abstract was available; the formula is our interpretation.
  """
  config.parts.encoder.dasa = MODIFIERS.section("dasa")


def rotary(config: ConfigDict) -> None:
  """Rotary positions in the sentence: Su et al. 2021 (RoFormer).

  In encoder and decoder, instead of sinusoids.
  """
  config.model.transformer.positions = False
  for place in (config.parts.encoder, config.parts.decoder):
    place.tree_rotary = MODIFIERS.section("tree_rotary", by=("line", "line"))


def tree_rotary(config: ConfigDict) -> None:
  """Rotary embeddings of positions and encoder tree depths; our own variant."""
  rotary(config)
  config.parts.encoder.tree_rotary.by = ("line", "depth")


def graph_block(config: ConfigDict) -> None:
  """Gated graph convolutions on the embeddings: Marcheggiani & Titov 2017.

  Two layers, which are best in Bastings et al. 2017 (from memory).
  """
  config.parts.encoder.graph_block = MODIFIERS.section("graph_block", depth=2)


def graph_block_random_tree(config: ConfigDict) -> None:
  """Control: `graph_block` with random trees over the same words."""
  graph_block(config)
  config.data.tree = "random"


def graph_block_after(config: ConfigDict) -> None:
  """Graph convolutions on the encoder's output, as in Bastings et al. 2017."""
  graph_block(config)
  config.parts.encoder.graph_block.at = "after"


def graph_block_beside(config: ConfigDict) -> None:
  """Graph convolution parallel to first-layer attention; our own variant."""
  config.parts.encoder.graph_block = MODIFIERS.section(
    "graph_block", at="beside", layers=(0,)
  )
