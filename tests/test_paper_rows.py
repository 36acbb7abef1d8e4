"""All rows of all tables of the papers, by what their heads compute.

`ROWS` specifies by hand, from the papers, the heads and options of each row; the
references in `paper_references` compute scores, weights and outputs by loops. The
row's config, resolved, must give the same. A row that is not in `ROWS` fails.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import paper_references as papers
import pytest
from cases import Sentence, features_of
from flax import linen as nn
from models_under_test import JOINT, windows_of
from paper_references import (
  Dbsa,
  Flexible,
  Local,
  Parent,
  ParentOnly,
  Plain,
  Related,
  Sdatt,
  Sisa,
  Tree,
  Whole,
)
from test_ablations import TABLES, field, row_of

from jaxsyn.config import read_config
from jaxsyn.models.gru_decoder import Contexts
from jaxsyn.models.transformer import TransformerModel
from jaxsyn.models.transformer_layers import DecoderLayer, EncoderLayer
from jaxsyn.plan import resolve
from jaxsyn.syntax.maps import COLLECTION, Maps

LAYERS, HEADS, WIDTH = 6, 8, 16  # all Transformers of the papers have 6 and 8
PLAIN, PARENT, TREE = Plain(), Parent(1.0), Tree(1.0)
Heads = Mapping[int, tuple[Plain, ...]]


@dataclasses.dataclass(frozen=True)
class Expected:
  """Specification of a row.

  Attributes:
    encoder, decoder: Layer, from 1 -> its first heads; all others are plain.
    training: Encoder heads in training; None: the same.
    dropped: Head that computes what noise drops in training.
    drops: What is dropped at a time: "row", "pair" or None.
    probability: Probability of dropping.
    label: Number of dimensions of the label embedding.
    vector: Number of dimensions of the vector of tree neighbors.
    windows: Contexts of a recurrent decoder.
    options: Dotted option -> value.
  """

  encoder: Heads = dataclasses.field(default_factory=dict)
  decoder: Heads = dataclasses.field(default_factory=dict)
  training: Heads | None = None
  dropped: Plain = PLAIN
  drops: str | None = None
  probability: float = 0.0
  label: int = 0
  vector: int = 0
  windows: tuple[Whole, ...] = ()
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def pascal(head=PARENT, layer=1, ignore=0.4, **options):
  """Table 2, NC11 En-De: two heads, variance 1, q = 0.4."""
  options = {
    "optimiser.learning_rate": 7e-4,
    "optimiser.adam.beta2": 0.997,
    **options,
  }
  drops = "row" if ignore else None
  return Expected(
    {layer: (head,) * 2}, drops=drops, probability=ignore, options=options
  )


def deps_san(head=TREE, first=1, last=3, training=None, **more):
  """All heads of layers 1 to 3, σ = 1; section 3.3."""
  layers = range(first, last + 1)
  if training is not None:
    training = dict.fromkeys(layers, (training,) * HEADS)
  options = {
    "train.steps": 80_000,
    "decode.beam": 5,
    "decode.alpha": 0.6,
    "prepare.vocabulary.size": 60_000,
    "prepare.clean.max_words": 80,
  }
  heads = dict.fromkeys(layers, (head,) * HEADS)
  return Expected(heads, training=training, options=options, **more)


def sparse(dropped):
  """RS-Sparse with q = 0.1."""
  return deps_san(dropped=dropped, drops="pair", probability=0.1)


def related(positions=True, **options):
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
  heads = (Related(**options),) * HEADS
  layers = dict.fromkeys(range(1, LAYERS + 1), heads)
  return Expected(layers, options=training)


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
  return Expected({1: (Dbsa(),)}, {1: (Dbsa(),)}, options=options)


def recurrent(*windows, **more):
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
  return Expected(windows=windows, options=options, **more)


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
  "pascal/layers": {
    f"layer_{layer}": pascal(layer=layer) for layer in range(1, 7)
  },
  "pascal/results": {
    "transformer": Expected(options=SECOND),
    "label_embedding": Expected(label=10, options=SECOND),
    "sisa": Expected({1: (Sisa(),)}, options=SECOND | SISA),
    "multitask": Expected(options=MULTITASK),
    "pascal": pascal(**SECOND),
  },
  "pascal/variance": {
    "parent_only": pascal(ParentOnly()),
    **{f"variance_{v}": pascal(Parent(v)) for v in (1, 4, 9, 16, 25)},
  },
  "deps_san/results": {
    "transformer": Expected(),
    "pascal": Expected({1: (PARENT,) * HEADS}),
    "pascal_ignoring": Expected(
      {1: (PARENT,) * HEADS}, drops="row", probability=0.4
    ),
    "deps_san": deps_san(),
    "deps_san_rs": sparse(Tree(1.0, counts=6)),
    "deps_san_wink": deps_san(training=Tree(1.0, within=6)),
  },
  "dependency_relative/results": {
    "transformer": Expected(),
    "dependency_relative": related(),
  },
  "deps_san/layers": {
    f"layers_{first}_{last}": deps_san(first=first, last=last)
    for first, last in ((1, 3), (1, 1), (1, 2), (1, 4), (4, 6), (1, 6))
  },
  "deps_san/variance": {
    **{f"sigma_{s}": deps_san(Tree(s)) for s in (1, 2, 4, 8, 16, 32)},
    **{f"variance_{v}": deps_san(Tree(v**0.5)) for v in (2, 8, 32)},
  },
  "deps_san/sparse": {
    "none": deps_san(),
    "rs": sparse(Tree(1.0, counts=6)),
    "rs_one": sparse(Plain()),
    "wink": deps_san(training=Tree(1.0, within=6)),
    "wink_2": deps_san(training=Tree(1.0, within=2)),
    "wink_mask": deps_san(training=Tree(1.0, within=6, beyond="hidden")),
    "wink_mask_always": deps_san(Tree(1.0, within=6, beyond="hidden")),
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
    "gru_global": recurrent(Whole()),
    "gru_local": recurrent(Local()),
    "gru_flexible": recurrent(Flexible()),
    "gru_syntax": recurrent(Sdatt()),
    "gru_sdr": recurrent(Whole(), vector=260),
    "gru_double_local": recurrent(Whole(), Local()),
    "gru_double_flexible": recurrent(Whole(), Flexible()),
    "gru_double_syntax": recurrent(Whole(), Sdatt()),
    "gru_double_sdr": recurrent(Whole(), Whole("source_dependency", own=True)),
  },
  "syntax_directed/position": {
    position: recurrent(Sdatt(position=position))
    for position in ("interp", "hard", "expected")
  },
}
# Rows whose equations are tested in tests/syntax: test_localness.py,
# test_context.py, test_relative.py.
TESTED_ELSEWHERE = {
  "deps_san/results": {
    *("localness_fixed", "localness_layer", "localness_query"),
    *("context_global", "context_deep", "context_deep_global", "relative"),
  },
  "dependency_relative/results": {"relative", "dependency_relative_both"},
}
ALL_ROWS = [
  (table, row.name)
  for table in TABLES
  for row in TABLES[table].rows
  if row.name not in TESTED_ELSEWHERE.get(table, ())
]
TRANSFORMERS = [at for at in ALL_ROWS if "syntax_directed" not in at[0]]
RECURRENT = [at for at in ALL_ROWS if at not in TRANSFORMERS]

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
ID_BS = np.where(
  SOURCE.real_BS, 3 + np.arange(SOURCE.real_BS.size).reshape(2, -1) % 15, 0
)
RNG = np.random.default_rng(0)
X_BSD = RNG.normal(size=(*SOURCE.real_BS.shape, WIDTH)).astype(np.float32)


@functools.cache
def plan_of(table: str, row: str):
  """The plan of a row, in the paper's depth with a few units."""
  config = row_of(table, row)
  model = config.model
  model.width = WIDTH
  if model.family == "transformer":
    sizes = model.transformer
    assert (sizes.encoder_layers, sizes.heads) == (LAYERS, HEADS)
    assert sizes.decoder_layers == LAYERS
    assert sizes.norm == "post"
    sizes.feed_forward = 8
    for kind in ("dropout", "attention_dropout", "activation_dropout"):
      sizes[kind] = 0.0
  else:
    model.gru.hidden = 6
    for section in (config.parts.encoder, model.gru.windows):
      if "source_dependency" in section:
        assert section.source_dependency.size == 260
        section.source_dependency.size = 5
  return resolve(read_config(config), JOINT)


def random_params(module, *inputs, method=None):
  """Random parameters, the same under the same name in all models."""
  keys = {"params": jax.random.key(0), "syntax": jax.random.key(1)}
  shapes = jax.eval_shape(lambda: module.init(keys, *inputs, method=method))

  def sample(path, x):
    name = jax.tree_util.keystr(path)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return rng.normal(0, 0.5, x.shape).astype(np.float32)

  return jax.tree_util.tree_map_with_path(sample, shapes["params"])


LAYER_RESULTS: dict[Any, tuple] = {}


def run_layer(spec, stack: str, index: int, train: bool):
  """A layer of the row's model: parameters, scores, weights, output.

  Scores are those after the last modifier, before the mask; None without one.
  Layers with the same modifiers run once.
  """
  # The Transformers of the papers differ outside of their layers only.
  family = dataclasses.replace(spec.architecture, positions=True)
  model = dataclasses.replace(spec.model, tie_embeddings=True, family=family)
  key = (stack, spec.modifiers.modifiers_in_layer(stack, index), model, train)
  if key in LAYER_RESULTS:
    return LAYER_RESULTS[key]
  x_BSD, scores, features = jnp.asarray(X_BSD), [], SOURCE.replace(train=train)
  if stack == "encoder":
    layer, inputs = EncoderLayer(spec, index), (x_BSD, features)
  else:
    layer, inputs = DecoderLayer(spec, index), (x_BSD, x_BSD, features, SOURCE)

  def record_scores(call, arguments, options, context):
    out = call(*arguments, **options)
    if context.method_name == "rescore":
      scores.append(np.asarray(out))
    return out

  params = random_params(layer, *inputs)
  with nn.intercept_methods(record_scores):
    out, state = layer.apply(
      {"params": params},
      *inputs,
      rngs={"syntax": jax.random.key(7)},
      mutable=[COLLECTION],
    )
  (weight,) = Maps.of(state).find(stack=stack, kind="weight_BHQM")
  out = np.asarray(out[0]) if stack == "encoder" else None
  result = params, (scores or [None])[-1], np.asarray(weight.value), out
  LAYER_RESULTS[key] = result
  return result


REFERENCES: dict[Any, list] = {}


def reference(params, stack: str, heads):
  """Scores, weights (HSS) and output (SD) of each sentence."""
  heads = (*heads, *[PLAIN] * (HEADS - len(heads)))
  key = (id(params), stack, heads)
  if key not in REFERENCES:
    attention = params["attention"]
    projections = {"query", "key", "value", "output"}
    modifiers = [
      attention[name] for name in attention if name not in projections
    ]
    assert len(modifiers) <= 1
    inputs = heads, modifiers[0] if modifiers else {}
    REFERENCES[key] = []
    for b, sentence in enumerate(SENTENCES):
      x_SD = X_BSD[b, : len(sentence.word)].astype(float)
      REFERENCES[key].append(
        papers.encoder_layer(params, *inputs, sentence, x_SD)
        if stack == "encoder"
        else papers.self_attention(
          attention, *inputs, sentence, x_SD, causal=True
        )
      )
  return REFERENCES[key]


def test_each_row_has_a_reference():
  assert {(t, r) for t, rows in ROWS.items() for r in rows} == set(ALL_ROWS)


@pytest.mark.parametrize("table, row", ALL_ROWS)
def test_options_of_a_row(table, row):
  config, options = row_of(table, row), ROWS[table][row].options
  assert {path: field(config, path) for path in options} == options
  losses = {
    path.split(".")[1] for path in options if path.startswith("losses.")
  }
  assert set(config.losses) == {"nll"} | losses
  plan = plan_of(table, row)
  modifiers = plan.spec.modifiers
  assert not modifiers.cross
  assert bool(ROWS[table][row].windows) == bool(windows_of(plan))
  names = {name for name, _ in modifiers.modifiers_at_embeddings("encoder")}
  expected = {"label_embedding": ROWS[table][row].label}
  expected["source_dependency"] = ROWS[table][row].vector
  assert names == {name for name, size in expected.items() if size}


@pytest.mark.parametrize("table, row", TRANSFORMERS)
def test_attention_of_a_row_equals_the_reference(table, row):
  """Weights of all heads of all layers, and outputs of encoder layers."""
  expected, spec = ROWS[table][row], plan_of(table, row).spec
  for stack, index in itertools.product(("encoder", "decoder"), range(LAYERS)):
    params, _, weight_BHQM, out_BSD = run_layer(spec, stack, index, False)
    heads = getattr(expected, stack).get(index + 1, ())
    results = reference(params, stack, heads)
    for b, (_, weight_HSS, out_SD) in enumerate(results):
      size = weight_HSS.shape[1]
      result_HSS = weight_BHQM[b, :, :size, :size]
      np.testing.assert_allclose(result_HSS, weight_HSS, atol=2e-6)
      if stack == "encoder":
        np.testing.assert_allclose(out_BSD[b, :size], out_SD, atol=2e-5)


@pytest.mark.parametrize("table, row", TRANSFORMERS)
def test_training_scores_of_a_row_equal_the_reference(table, row):
  """Each score is that of the head, or where noise drops, that of `dropped`."""
  expected, spec = ROWS[table][row], plan_of(table, row).spec
  training = expected.training
  training = expected.encoder if training is None else training
  for index in range(LAYERS):
    params, score_BHQM, _, _ = run_layer(spec, "encoder", index, True)
    heads, kept = training.get(index + 1, ()), []
    if score_BHQM is None:
      assert not heads
      continue
    wanted = reference(params, "encoder", heads)
    others = reference(params, "encoder", [expected.dropped] * len(heads))
    for b, ((score_HSS, *_), (other_HSS, *_)) in enumerate(zip(wanted, others)):
      size = score_HSS.shape[1]
      result_HSS = score_BHQM[b, :, :size, :size]
      is_kept = np.isclose(result_HSS, score_HSS, atol=2e-5)
      if not expected.drops:
        assert is_kept.all()
        continue
      is_dropped = np.isclose(result_HSS, other_HSS, atol=2e-5)
      if expected.drops == "row":
        is_kept, is_dropped = is_kept.all(-1), is_dropped.all(-1)
      assert (is_kept | is_dropped).all()
      differs = (is_kept != is_dropped)[: len(heads)]
      if expected.drops == "pair":  # one sample for all heads
        shared = is_kept[:, differs.all(0)]
        assert (shared == shared[0]).all()
        differs = differs[:1]
      kept += is_kept[: len(differs)][differs].tolist()
    if expected.drops:  # five standard deviations
      p, share = expected.probability, np.mean(kept)
      assert abs(1 - share - p) < 5 * (p * (1 - p) / len(kept)) ** 0.5
      assert 0 < share < 1


EMBEDDINGS = [
  ("pascal/results", "transformer"),
  ("pascal/results", "label_embedding"),
  ("deps_san/results", "transformer"),
  ("dbsa/results", "transformer"),
  ("dependency_relative/results", "transformer"),
  ("dependency_relative/keys_values", "none"),  # without positions
]


@pytest.mark.parametrize("table, row", EMBEDDINGS)
def test_embeddings_of_a_row_equal_the_reference(table, row):
  expected, spec = ROWS[table][row], plan_of(table, row).spec
  # Without encoder layers the encoding is the embedding.
  options = {"encoder_layers": 0, "decoder_layers": 1}
  family = dataclasses.replace(spec.architecture, **options)
  section = dataclasses.replace(spec.model, family=family)
  model = TransformerModel(dataclasses.replace(spec, model=section))
  inputs = ID_BS, SOURCE
  params = random_params(model, *inputs, method="encode")
  result = model.apply({"params": params}, *inputs, method="encode")
  table_name = "source_table" if "source_table" in params else "target_table"
  table_VD = np.asarray(params[table_name]["embedding"], float)
  rate = 10_000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2 - 1))
  for b, sentence in enumerate(SENTENCES):
    for s, word in enumerate(sentence.word):
      x_D = table_VD[ID_BS[b, s]] * WIDTH**0.5
      if expected.label:
        labels = params["label_embedding"]["table"]["embedding"]
        label = labels[sentence.relation[word] if word >= 0 else 0]
        x_D = np.r_[x_D[: -expected.label], label]
      if spec.architecture.positions:
        x_D = x_D + np.r_[np.sin(s * rate), np.cos(s * rate)]
      np.testing.assert_allclose(result.memory_BSD[b, s], x_D, atol=2e-5)


def context_steps(cross, annotations, query_TBNG, features):
  """Weights (TBNS) and contexts (TBNE) of each window, step by step."""
  source = cross.project_memory(annotations, features)
  past = cross.start(features, query_TBNG.shape[2])
  out = []
  for query_BNG in query_TBNG:
    contexts, weights, past = cross(query_BNG, past, source, features)
    out.append((weights, contexts))
  return out


@pytest.mark.parametrize("table, row", RECURRENT)
def test_windows_of_a_row_equal_the_reference(table, row):
  windows, spec = ROWS[table][row].windows, plan_of(table, row).spec
  assert not spec.modifiers.decoder
  rng = np.random.default_rng(1)
  annotations = tuple(
    rng.normal(size=(*SOURCE.real_BS.shape, 12)).astype(np.float32)
    for _ in range(1 + sum(window.own for window in windows))
  )
  query_TBNG = rng.normal(size=(3, 2, 2, 6)).astype(np.float32)
  cross = Contexts(spec)
  inputs = annotations, jnp.asarray(query_TBNG), SOURCE
  params = random_params(cross, *inputs, method=context_steps)
  steps = cross.apply({"params": params}, *inputs, method=context_steps)
  for b, n in np.ndindex(2, 2):
    sentence, attended = SENTENCES[b], [0.0] * len(windows)
    size = len(sentence.word)
    for t, (weights, contexts) in enumerate(steps):
      assert len(weights) == len(windows)
      sequences = 0
      for c, window in enumerate(windows):
        sequences += window.own
        index = sequences if window.own else 0
        annotation_SE = annotations[index][b, :size].astype(float)
        query_G = query_TBNG[t, b, n].astype(float)
        score_S = papers.alignment(
          params[f"alignment_{index}"], query_G, annotation_SE
        )
        step = papers.Step(
          sentence, score_S, query_G, params.get(window.name, {}), attended[c]
        )
        weight_S = window.weights(step)
        attended[c] = sum(j * w for j, w in enumerate(weight_S))
        np.testing.assert_allclose(weights[c][b, n, :size], weight_S, atol=5e-6)
        np.testing.assert_array_equal(weights[c][b, n, size:], 0)
        np.testing.assert_allclose(
          contexts[c][b, n], np.array(weight_S) @ annotation_SE, atol=2e-5
        )


@pytest.mark.parametrize("row", ["gru_sdr", "gru_double_sdr"])
def test_source_dependency_of_a_row_equals_the_reference(row):
  """V inside the embedding, or as a sequence of its own."""
  plan = plan_of("syntax_directed/results", row)
  site = plan.spec.attention_site("encoder", -1)
  if row == "gru_sdr":
    ((name, spec),) = plan.spec.modifiers.modifiers_at_embeddings("encoder")
    method = "embed"
  else:
    name, spec = "source_dependency", windows_of(plan)["source_dependency"]
    site, method = dataclasses.replace(site, width=6), "sequence"
  assert name == "source_dependency"
  module, inputs = spec.make(site), (jnp.asarray(X_BSD), SOURCE)
  params = random_params(module, *inputs, method=method)
  result = module.apply({"params": params}, *inputs, method=method)
  for b, sentence in enumerate(SENTENCES):
    words = range(len(sentence.head))
    x_WD = {w: X_BSD[b, sentence.subwords(w)].mean(0) for w in words}
    for s, word in enumerate(sentence.word):
      members = papers.unit(sentence.head, words, word, 10)
      v = papers.unit_vector(params["surroundings"], members, x_WD)
      expected = np.r_[X_BSD[b, s, :-5], v] if method == "embed" else v
      np.testing.assert_allclose(result[b, s], expected, atol=1e-5)
