"""Registry of all systems (model variants), with one function for each.

A system selects attention modifiers, data and losses, and sets the options that
differ from the defaults of the modifiers, which are those of their papers. All
other options are those of the dataset's config. Options can be overridden, as
in --config.parts.encoder.parent_scaled.sigma=2.0; --helpconfig=parts prints
them.

Other systems are in `graph_systems.py` (the tree as a graph),
`parsing_systems.py` (trees in training, but not in translation) and
`recurrent_systems.py`. The first system of each architecture is the baseline,
which has no modifiers.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jaxsyn.configs import graph_systems as graph
from jaxsyn.configs import parsing_systems as parsing
from jaxsyn.configs import recurrent_systems as recurrent
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import flat
from jaxsyn.syntax import MODIFIERS
from jaxsyn.training.losses import LOSSES


def transformer(config: ConfigDict) -> None:
  """Transformer baseline without syntax: Vaswani et al. 2017."""


def pascal(config: ConfigDict) -> None:
  """Parent-scaled self-attention: Bugliarello & Okazaki 2020 (PASCAL).

  First encoder layer, variance 1, two heads: the setting for NC11 En-De.
  """
  config.parts.encoder.parent_scaled = MODIFIERS.section("parent_scaled")


def pascal_ignoring(config: ConfigDict) -> None:
  """PASCAL that ignores 40 % of parents in training, as for NC11 En-De."""
  pascal(config)
  config.parts.encoder.parent_scaled.ignore = 0.4


def pascal_additive(config: ConfigDict) -> None:
  """PASCAL that adds log weights to attention scores; our own variant."""
  pascal(config)
  config.parts.encoder.parent_scaled.apply = "add_log"


def deps_san(config: ConfigDict) -> None:
  """Attention scores scaled by tree distance: Peng et al. (Deps-SAN).

  All heads of the first three encoder layers, variance 1: the paper's best.
  """
  config.parts.encoder.tree_scaled = MODIFIERS.section("tree_scaled")


def deps_san_rs(config: ConfigDict) -> None:
  """Deps-SAN with RS-Sparse: in training, 10 % of distances are set to 6.

  That a dropped pair counts as k edges apart is our reading of "set to k".
  """
  deps_san(config)
  config.parts.encoder.tree_scaled.random_sparse = 0.1
  config.parts.encoder.tree_scaled.random_distance = 6


def deps_san_wink(config: ConfigDict) -> None:
  """Deps-SAN with Wink-Sparse: weight 0 beyond 6 tree edges in training.

  With variance 1, float32 shows no effect: weights beyond six edges are at most
  9e-12. A larger sigma or another `fill` has an effect.
  """
  deps_san(config)
  config.parts.encoder.tree_scaled.wink = 6


def deps_san_additive(config: ConfigDict) -> None:
  """Deps-SAN that adds log weights to attention scores; our own variant."""
  deps_san(config)
  config.parts.encoder.tree_scaled.apply = "add_log"


def label_embedding(config: ConfigDict) -> None:
  """Dependency labels in source embeddings: Sennrich & Haddow 2016 (S&H).

  The form for the Transformer is that of Bugliarello & Okazaki 2020.
  """
  config.parts.encoder.label_embedding = MODIFIERS.section("label_embedding")


def factors(config: ConfigDict) -> None:
  """Parts of speech, lemmas and other factors in the source embeddings.

  Sennrich & Haddow 2016; the position of the word is ours. The data must be
  prepared with config.prepare.parse.annotations.
  """
  config.parts.encoder.factors = MODIFIERS.section("factors")


def _localness(config: ConfigDict, **options: str) -> None:
  config.parts.encoder.localness = MODIFIERS.section("localness", **options)


def localness_fixed(config: ConfigDict) -> None:
  """Gaussian attention bias around a predicted center: Yang et al. 2018.

  The window is 10 subwords wide.
  """
  _localness(config, window="fixed")


def localness_layer(config: ConfigDict) -> None:
  """Gaussian attention bias with a width predicted per sentence and head."""
  _localness(config, window="layer")


def localness_query(config: ConfigDict) -> None:
  """Gaussian attention bias with a width predicted for each query."""
  _localness(config)


def _context(config: ConfigDict, **options: str) -> None:
  config.parts.encoder.context = MODIFIERS.section("context", **options)


def context_global(config: ConfigDict) -> None:
  """Queries and keys mixed with the layer's mean input: Yang et al. 2019.

  Gates and transforms have full width, as in the paper; the parameter count of
  Peng et al. implies smaller ones (74.90 M, 78.02 M with ours).
  """
  _context(config)


def context_deep(config: ConfigDict) -> None:
  """Queries and keys mixed with the inputs of all lower layers."""
  _context(config, context="deep")


def context_deep_global(config: ConfigDict) -> None:
  """Queries and keys mixed with the mean inputs of this and lower layers."""
  _context(config, context="deep_global")


def relative(config: ConfigDict) -> None:
  """Relative positions in the sentence: Shaw et al. 2018, maximum distance 16.

  Encoder and decoder. --config.model.transformer.positions=False removes the
  absolute positions, as in the paper. The distance is that of the base model of
  Shaw et al.; in Omote et al. 2019 it is 2. The parameter count of Peng et al.
  implies one table for keys and values (tie=True).
  """
  for place in (config.parts.encoder, config.parts.decoder):
    place.relative = MODIFIERS.section("relative")


def dependency_relative(config: ConfigDict) -> None:
  """Relative positions in the tree, clipped at 2 edges: Omote et al. 2019.

  All layers of the encoder. The paper keeps absolute positions;
  --config.model.transformer.positions=False removes them, as in its ablation.
  """
  config.parts.encoder.dependency_relative = MODIFIERS.section(
    "dependency_relative"
  )


def dependency_relative_both(config: ConfigDict) -> None:
  """Relative positions in the tree and in the sentence: Omote et al. 2019.

  "dep+rel" in the paper, whose two vectors are summed: k = 2, l = 2. Positions
  of the sentence in the decoder are inferred from the paper.
  --config.model.transformer.positions=False removes absolute positions.
  """
  dependency_relative(config)
  relative(config)
  config.parts.encoder.relative.clip = 2
  config.parts.decoder.relative.clip = 2


def given_weighting(config: ConfigDict) -> None:
  """Attention scores multiplied by a user-supplied matrix in the batch."""
  config.parts.encoder.given_weighting = MODIFIERS.section("given_weighting")


def guided_alignment(config: ConfigDict) -> None:
  """A cross-attention head trained on word alignments: Garg et al. 2019.

  Head 0 of the last decoder layer but one, weight 0.05. The data must be
  prepared with config.prepare.alignments.
  """
  config.losses.guided_alignment = LOSSES.section("guided_alignment")


def pascal_linear_tree(config: ConfigDict) -> None:
  """Control: PASCAL where the parent of a word is the previous word."""
  pascal(config)
  config.data.tree = "linear"


def pascal_random_tree(config: ConfigDict) -> None:
  """Control: PASCAL with random trees over the same words."""
  pascal(config)
  config.data.tree = "random"


def deps_san_linear_tree(config: ConfigDict) -> None:
  """Control: Deps-SAN where the parent of a word is the previous word."""
  deps_san(config)
  config.data.tree = "linear"


def deps_san_random_tree(config: ConfigDict) -> None:
  """Control: Deps-SAN with random trees over the same words."""
  deps_san(config)
  config.data.tree = "random"


SYSTEMS = {
  function.__name__: function
  for function in (
    transformer,
    pascal,
    pascal_ignoring,
    given_weighting,
    guided_alignment,
    relative,
    dependency_relative,
    dependency_relative_both,
    pascal_linear_tree,
    pascal_random_tree,
    pascal_additive,
    deps_san,
    deps_san_rs,
    deps_san_wink,
    deps_san_linear_tree,
    deps_san_random_tree,
    deps_san_additive,
    label_embedding,
    factors,
    graph.linear_bias,
    graph.tree_bias,
    graph.tree_bias_edges,
    graph.tree_bias_steps,
    graph.tree_bias_steps_edges,
    graph.tree_bias_random_tree,
    graph.tree_position,
    graph.tree_position_laplacian,
    graph.tree_position_depth,
    graph.neighbour_heads,
    graph.neighbour_heads_random_tree,
    graph.neighbour_heads_gated,
    graph.neighbour_heads_near,
    graph.neighbour_heads_near_random_tree,
    graph.neighbour_heads_near_gated,
    graph.dasa,
    graph.graph_block,
    graph.graph_block_random_tree,
    graph.graph_block_after,
    graph.graph_block_beside,
    graph.rotary,
    graph.tree_rotary,
    parsing.sisa,
    parsing.multitask,
    parsing.mixed_encoder,
    parsing.distilled,
    parsing.distilled_words,
    parsing.dbsa,
    parsing.sync_attention,
    localness_fixed,
    localness_layer,
    localness_query,
    context_global,
    context_deep,
    context_deep_global,
    recurrent.gru_global,
    recurrent.gru_local,
    recurrent.gru_flexible,
    recurrent.gru_syntax,
    recurrent.gru_double_local,
    recurrent.gru_double_flexible,
    recurrent.gru_double_syntax,
    recurrent.gru_graph,
    recurrent.gru_sdr,
    recurrent.gru_double_sdr,
  )
}


def apply(config: ConfigDict, system: str | None) -> ConfigDict:
  """Applies a named system to a dataset's config, in place; returns the config.

  Args:
    config: Config of a dataset.
    system: Name in SYSTEMS, or several joined by "+", such as "pascal+relative",
      whose modifiers are combined; None or "": the baseline.

  Raises:
    InputError: The system is unknown, or two systems set an option differently.
  """
  config.system = system or "transformer"
  owner: dict[str, str] = {}  # option -> system that set it
  for name in config.system.split("+"):
    if not name:
      raise InputError(
        f"{config.system!r}: '+' joins two systems, as in pascal+relative."
      )
    if name not in SYSTEMS:
      raise InputError(
        f"no system {name!r} (the part after ':' in --config). "
        f"{did_you_mean(name, SYSTEMS)}"
      )
    before = flat(config)
    SYSTEMS[name](config)
    for field, value in flat(config).items():
      if field in before and before[field] == value:
        continue
      if field in owner:
        raise InputError(
          f"{owner[field]} and {name} cannot be combined: they set config.{field} to "
          f"{before[field]!r} and {value!r}."
        )
      owner[field] = name
  return config
