"""All rows of all tables of the papers: their systems and options.

`ROWS` lists by hand, from the papers, the modifiers, windows, losses and options of
each row. The row's config must have them, and no others. A row that is not in
`ROWS` fails. The layers of one row for each modifier are compared with loops
(`paper_references`); tests/syntax has the equations of all options.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import paper_references as papers
import pytest
from cases import Sentence, features_of
from models_under_test import JOINT
from test_ablations import TABLES, field, row_of

from jaxsyn.config import read_config
from jaxsyn.models.transformer_layers import DecoderLayer, EncoderLayer
from jaxsyn.plan import resolve
from jaxsyn.syntax.maps import COLLECTION, Maps

LAYERS, HEADS, WIDTH = 6, 8, 16  # all Transformers of the papers have 6 and 8
Options = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Expected:
  """Specification of a row.

  Attributes:
    encoder, decoder: Modifier -> options that the paper specifies.
    heads: Layers, from 1, and number of heads with the encoder's modifier.
    windows: Window of a recurrent decoder -> options.
    options: Dotted option -> value.
  """

  encoder: Mapping[str, Options] = dataclasses.field(default_factory=dict)
  decoder: Mapping[str, Options] = dataclasses.field(default_factory=dict)
  heads: tuple[range, int] = (range(1, LAYERS + 1), HEADS)
  windows: Mapping[str, Options] = dataclasses.field(default_factory=dict)
  options: Options = dataclasses.field(default_factory=dict)


def pascal(layer=1, ignore=0.4, parent=None, **options):
  """Table 2, NC11 En-De: two heads, variance 1, q = 0.4."""
  options = {
    "optimiser.learning_rate": 7e-4,
    "optimiser.adam.beta2": 0.997,
    **options,
  }
  parent = {"apply": "multiply", "ignore": ignore, **(parent or {"sigma": 1.0})}
  heads = (range(layer, layer + 1), 2)
  return Expected({"parent_scaled": parent}, heads=heads, options=options)


def deps_san(first=1, last=3, **tree):
  """All heads of layers 1 to 3, σ = 1; section 3.3."""
  options = {
    "train.steps": 80_000,
    "decode.beam": 5,
    "decode.alpha": 0.6,
    "prepare.vocabulary.size": 60_000,
    "prepare.clean.max_words": 80,
  }
  tree = {"apply": "multiply", "sigma": 1.0, "random_sparse": 0.0} | tree
  tree = {"wink": 0, "wink_at_evaluation": False} | tree
  heads = (range(first, last + 1), HEADS)
  return Expected({"tree_scaled": tree}, heads=heads, options=options)


def rival(name, **options):
  """A PASCAL head in all heads of the first layer, in the paper of Deps-SAN."""
  return Expected({name: options}, heads=(range(1, 2), HEADS))


def related(positions=True, label="depth", clip=2, keys=True, values=True):
  """Omote et al., sections 5.1 and 5.3.

  1,341,417 / 256 = 5,239.9 updates, 30 times, or 1,000 updates, 50 times.
  """
  training = {
    "model.transformer.positions": positions,
    "train.steps": 157_200 if positions else 50_000,
    "prepare.clean.max_words": 50,
    "decode.beam": 1,
  }
  if not positions:
    training["train.evaluate_every"] = 1000
  labels = {"label": label, "clip": clip, "keys": keys, "values": values}
  return Expected({"dependency_relative": labels}, options=training)


DEGUCHI = {  # Deguchi et al. 2021, section 5.1, appendices A and C
  "losses.nll.smoothing": 0.1,
  "prepare.parse.sides": ("source", "target"),
  "prepare.clean.language": True,
  "prepare.clean.max_words": 100,
  "prepare.clean.max_ratio": 2.0,
  "prepare.vocabulary.size": 37_000,
  "prepare.vocabulary.joint": True,
  "model.transformer.attention_dropout": 0.1,
  "optimiser.learning_rate": 7e-4,
  "optimiser.inverse_sqrt.warmup": 4000,
  "batch.tokens": 25_000,
  "train.steps": 100_000,
  "decode.beam": 4,
  "decode.alpha": 0.6,
}


def parsing(**weights):
  """λ_dep = 0.5 on each side."""
  weights = {"source_heads": 0.5, "target_heads": 0.5} | weights
  options = dict(DEGUCHI)
  options |= {f"losses.{name}.weight": w for name, w in weights.items()}
  if "synchronisation" in weights:
    options["losses.synchronisation.layer"] = -2  # 5 of 6, from 1
  part = {"dbsa": {"bias": True}}
  return Expected(part, part, heads=(range(1, 2), 1), options=options)


def recurrent(encoder=None, **windows):
  """Chen et al. 2018, sections 3.2 and 4.2; dropout and clipping of Nematus."""
  options = {
    "model.family": "gru",
    "model.width": 620,
    "model.gru.hidden": 1000,
    "model.gru.update": "first",
    "model.tie_embeddings": False,
    "model.gru.dropout_hidden": 0.2,
    "prepare.vocabulary.type": "word",
    "prepare.vocabulary.size": 50_000,
    "prepare.vocabulary.joint": False,
    "prepare.clean.max_words": 80,
    "batch.tokens": 2560,  # 80 pairs of 32
    "losses.nll.smoothing": 0.0,
    "optimiser.name": "adadelta",
    "optimiser.learning_rate": 1.0,
    "optimiser.schedule": "constant",
    "optimiser.adadelta.rho": 0.95,
    "optimiser.adadelta.epsilon": 1e-6,
    "optimiser.clip": 1.0,
    "train.steps": 400_000,
    "decode.beam": 12,
    "data.test": ("newstest2013", "newstest2014", "newstest2015"),
    "prepare.splits.validation": ("newstest2012.en", "newstest2012.de"),
  }
  return Expected(encoder or {}, windows=windows, options=options)


# Windows of Luong et al. 2015 (D = 10, σ = D / 2), Shu & Nakayama 2017, and Chen et
# al. 2018 (four edges, σ = 2).
GLOBAL: Options = {}
LOCAL = {"reach": 10, "sigma": 5.0}
FLEXIBLE = {"sigma": 1.5}
SYNTAX = {"apply": "multiply", "edges": 4, "sigma": 2.0, "position": "interp"}
SOURCE_DEPENDENCY = {"size": 260}  # Chen et al. 2017
SECOND = {"data.second.task": "none"}
UNFILTERED, FILTERED = (
  {"prepare.clean.language": value} for value in (False, True)
)
SISA = {  # the authors' scripts
  "losses.source_heads.weight": 1.0,
  "optimiser.learning_rate": 7e-4,
  "optimiser.adam.beta2": 0.997,
}
MULTITASK = {
  "data.second.task": "parse",
  "data.second.brackets": "constituency",
  "data.second.weight": 1.0,
  "optimiser.learning_rate": 7e-4,
  # 16,000 merges, 113 characters of English and German, 4 symbols.
  "prepare.vocabulary.size": 16_117,
}
ROWS: dict[str, dict[str, Expected]] = {
  "pascal/components": {
    "transformer": Expected(options=UNFILTERED),
    "filtering": Expected(options=FILTERED),
    "pascal": pascal(ignore=0.0, **FILTERED),
    "ignoring": pascal(**FILTERED),
  },
  "pascal/layers": {f"layer_{n}": pascal(n) for n in range(1, 7)},
  "pascal/results": {
    "transformer": Expected(options=SECOND),
    "label_embedding": Expected(
      {"label_embedding": {"size": 10}}, options=SECOND
    ),
    "sisa": Expected(
      {"sisa": {}}, heads=(range(1, 2), 1), options=SECOND | SISA
    ),
    "multitask": Expected(options=MULTITASK),
    "pascal": pascal(**SECOND),
  },
  "pascal/variance": {
    "parent_only": pascal(parent={"weighting": "parent_only"}),
    **{
      f"variance_{v}": pascal(parent={"sigma": v**0.5})
      for v in (1, 4, 9, 16, 25)
    },
  },
  "deps_san/results": {
    "transformer": Expected(),
    "pascal": rival("parent_scaled", sigma=1.0, ignore=0.0),
    "pascal_ignoring": rival("parent_scaled", sigma=1.0, ignore=0.4),
    "deps_san": deps_san(),
    "deps_san_rs": deps_san(random_sparse=0.1, random_distance=6, fill="far"),
    "deps_san_wink": deps_san(wink=6, fill="far"),
  },
  "dependency_relative/results": {
    "transformer": Expected(),
    "dependency_relative": related(),
  },
  "deps_san/layers": {
    f"layers_{first}_{last}": deps_san(first, last)
    for first, last in ((1, 3), (1, 1), (1, 2), (1, 4), (4, 6), (1, 6))
  },
  "deps_san/variance": {
    **{f"sigma_{s}": deps_san(sigma=s) for s in (1, 2, 4, 8, 16, 32)},
    **{f"variance_{v}": deps_san(sigma=v**0.5) for v in (2, 8, 32)},
  },
  "deps_san/sparse": {
    "none": deps_san(),
    "rs": deps_san(random_sparse=0.1, random_distance=6, fill="far"),
    "rs_one": deps_san(random_sparse=0.1, fill="one"),
    "wink": deps_san(wink=6, fill="far"),
    "wink_2": deps_san(wink=2, fill="far"),
    "wink_mask": deps_san(wink=6, fill="mask"),
    "wink_mask_always": deps_san(wink=6, fill="mask", wink_at_evaluation=True),
  },
  "dependency_relative/keys_values": {
    "both": related(positions=False),
    "keys": related(positions=False, values=False),
    "values": related(positions=False, keys=False),
    "none": Expected(options={"model.transformer.positions": False}),
  },
  "dependency_relative/labels": {
    f"{label}_{clip}": related(label=label, clip=clip)
    for label in ("depth", "distance")
    for clip in (1, 2, 4, 8)
  },
  "dbsa/results": {
    "transformer": Expected(options=DEGUCHI),
    "dbsa": parsing(),
    "sync_attention": parsing(synchronisation=0.5),
  },
  "dbsa/synchronisation": {
    f"weight_{w:g}": parsing(synchronisation=w)
    for w in (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
  },
  "syntax_directed/results": {
    "gru_global": recurrent(**{"global": GLOBAL}),
    "gru_local": recurrent(local=LOCAL),
    "gru_flexible": recurrent(flexible=FLEXIBLE),
    "gru_syntax": recurrent(syntax=SYNTAX),
    "gru_sdr": recurrent(
      {"source_dependency": SOURCE_DEPENDENCY}, **{"global": GLOBAL}
    ),
    "gru_double_local": recurrent(**{"global": GLOBAL}, local=LOCAL),
    "gru_double_flexible": recurrent(**{"global": GLOBAL}, flexible=FLEXIBLE),
    "gru_double_syntax": recurrent(**{"global": GLOBAL}, syntax=SYNTAX),
    "gru_double_sdr": recurrent(
      **{"global": GLOBAL}, source_dependency=SOURCE_DEPENDENCY
    ),
  },
  "syntax_directed/position": {
    position: recurrent(syntax=SYNTAX | {"position": position})
    for position in ("interp", "hard", "expected")
  },
}
# Rows of rivals, whose equations are tested in tests/syntax.
TESTED_ELSEWHERE = {
  "deps_san/results": {
    "localness_fixed",
    "localness_layer",
    "localness_query",
    "context_global",
    "context_deep",
    "context_deep_global",
    "relative",
  },
  "dependency_relative/results": {"relative", "dependency_relative_both"},
}
ALL_ROWS = [
  (table, row.name)
  for table in TABLES
  for row in TABLES[table].rows
  if row.name not in TESTED_ELSEWHERE.get(table, ())
]

# A chain of nine words with a branch and up to eight edges, where the third word
# has two subwords and the sixth three. And a short sentence of two trees.
SENTENCES = (
  Sentence(
    (0, 1, 2, 2, 3, 4, 5, 5, 5, 6, 7, 8, 9, -1),
    (1, 2, 3, 4, 5, 6, 7, 8, 8, 2),
    (1, 5, 2, 4, 3, 1, 2, 5, 4, 3),
  ),
  Sentence((0, 0, 1, 2, 3, -1), (1, 1, 2, 2), (2, 5, 1, 3)),
)
SOURCE = features_of(SENTENCES).replace(eigenvectors_BWE=None)
X_BSD = (
  np.random.default_rng(0)
  .normal(size=(*SOURCE.real_BS.shape, WIDTH))
  .astype(np.float32)
)


@functools.cache
def plan_of(table: str, row: str):
  """The plan of a row, in the paper's depth with a few units."""
  config = row_of(table, row)
  if config.model.family == "transformer":
    config.model.width = WIDTH
    sizes = config.model.transformer
    assert (sizes.encoder_layers, sizes.heads) == (LAYERS, HEADS)
    assert (sizes.decoder_layers, sizes.norm) == (LAYERS, "post")
    sizes.feed_forward = 8
    for kind in ("dropout", "attention_dropout", "activation_dropout"):
      sizes[kind] = 0.0
  return resolve(read_config(config), JOINT)


def test_each_row_has_an_expectation():
  assert {(t, r) for t, rows in ROWS.items() for r in rows} == set(ALL_ROWS)


@pytest.mark.parametrize("table", ROWS)
def test_rows_have_the_components_and_options_of_the_paper(table):
  for row in ROWS[table]:
    check_row(table, row)


def check_row(table, row):
  config, expected = row_of(table, row), ROWS[table][row]
  options = expected.options
  assert {path: field(config, path) for path in options} == options
  losses = [path.split(".")[1] for path in options if path[:7] == "losses."]
  assert set(config.losses) == {"nll", *losses}
  is_gru = config.model.family == "gru"
  for section, parts in (
    (config.parts.encoder, expected.encoder),
    (config.parts.decoder, expected.decoder),
    (config.parts.cross, {}),
    (config.model.gru.windows if is_gru else {}, expected.windows),
  ):
    assert set(section) == set(parts)
    for name, values in parts.items():
      assert {option: section[name][option] for option in values} == values
  layers, heads = expected.heads
  for name, spec in plan_of(table, row).spec.modifiers.modifiers_in("encoder"):
    if name not in ("label_embedding", "source_dependency"):  # at embeddings
      assert spec.active_heads(LAYERS, HEADS) == {
        (layer - 1, head) for layer in layers for head in range(heads)
      }


def random_params(module, *inputs):
  """Random parameters, the same under the same name in all models."""
  keys = {"params": jax.random.key(0), "syntax": jax.random.key(1)}
  shapes = jax.eval_shape(lambda: module.init(keys, *inputs))

  def sample(path, x):
    name = jax.tree_util.keystr(path)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return rng.normal(0, 0.5, x.shape).astype(np.float32)

  return jax.tree_util.tree_map_with_path(sample, shapes["params"])


@pytest.mark.parametrize(
  ("table", "row", "head", "count"),
  [
    ("pascal/results", "pascal", papers.Parent(sigma=1.0), 2),
    ("deps_san/results", "deps_san", papers.Tree(sigma=1.0), HEADS),
    (
      "dependency_relative/results",
      "dependency_relative",
      papers.TreeRelated(clip=2),
      HEADS,
    ),
    ("dbsa/results", "dbsa", papers.Dbsa(), 1),
  ],
)
def test_first_layers_of_a_row_equal_loops(table, row, head, count):
  """Attention weights of all heads, and output of the first encoder layer."""
  spec = plan_of(table, row).spec
  heads = (*[head] * count, *[papers.Plain()] * (HEADS - count))
  x_BSD = jnp.asarray(X_BSD)
  stacks = {"encoder": (EncoderLayer(spec, 0), x_BSD, SOURCE)}
  if ROWS[table][row].decoder:
    inputs = x_BSD, x_BSD, SOURCE, SOURCE
    stacks["decoder"] = DecoderLayer(spec, 0), *inputs
  for stack, (layer, *inputs) in stacks.items():
    params = random_params(layer, *inputs)
    apply = functools.partial(layer.apply, mutable=[COLLECTION])
    out, state = jax.jit(apply)({"params": params}, *inputs)
    (weight,) = Maps.of(state).find(stack=stack, kind="weight_BHQM")
    attention = params["attention"]
    projections = {"query", "key", "value", "output"}
    modifier = [x for name, x in attention.items() if name not in projections]
    arguments = heads, (*modifier, {})[0]
    for b, sentence in enumerate(SENTENCES):
      size = len(sentence.word)
      x_SD = X_BSD[b, :size].astype(float)
      if stack == "encoder":
        weight_HSS, out_SD = papers.encoder_layer(
          params, *arguments, sentence, x_SD
        )
        np.testing.assert_allclose(out[0][b, :size], out_SD, atol=2e-5)
      else:
        weight_HSS, _ = papers.self_attention(
          attention, *arguments, sentence, x_SD, causal=True
        )
      result_HSS = np.asarray(weight.value)[b, :, :size, :size]
      np.testing.assert_allclose(result_HSS, weight_HSS, atol=2e-6)
