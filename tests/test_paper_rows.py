"""Every row of every table of the papers, by what its heads really compute.

`ROWS` says by hand, from the papers, what each row is; the references of
`paper_references` make scores, weights and outputs of that, in loops. The row's
own config, resolved, must give the same. A row that is not in `ROWS` fails.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import paper_references as papers
import pytest
from flax import linen as nn
from models_under_test import JOINT, batch_of, parts_of, windows_of
from models_under_test import sentence as sentence_of
from paper_references import (
  Dbsa,
  Flexible,
  Local,
  Parent,
  ParentOnly,
  Plain,
  Related,
  Sdatt,
  Sentence,
  Sisa,
  Tree,
  Whole,
)
from source_dependency_by_loops import unit_by_loops, vector_by_loops
from test_ablations import TABLES, field, row_of

from jaxsyn.config import as_dict, read_config
from jaxsyn.data.sentence import tree as trees
from jaxsyn.models.contract import sentence_features
from jaxsyn.models.gru_decoder import Contexts
from jaxsyn.models.transformer import TransformerModel
from jaxsyn.models.transformer_layers import DecoderLayer, EncoderLayer
from jaxsyn.plan import resolve
from jaxsyn.syntax.maps import COLLECTION, Maps

LAYERS, HEADS, WIDTH = 6, 8, 16  # of all Transformers of the papers: 6, 8
PLAIN, PARENT, TREE = Plain(), Parent(1.0), Tree(1.0)


@dataclasses.dataclass(frozen=True)
class Says:
  """What a row is.

  Attributes:
    encoder, decoder: layer, from 1 -> rules of its first heads; the others are
      plain.
    training: rules in training instead; None: the same.
    other: rule of what noise drops in training, in the same heads.
    drops: "row" or "pair": what is dropped at a time; None: there is no noise.
    probability: of dropping.
    label: dimensions that a label takes.
    vector: dimensions that the vector of a word's relatives takes.
    windows: contexts of a recurrent decoder.
    also: dotted field of the config -> value.
  """

  encoder: Mapping[int, tuple[Plain, ...]] = dataclasses.field(
    default_factory=dict
  )
  decoder: Mapping[int, tuple[Plain, ...]] = dataclasses.field(
    default_factory=dict
  )
  training: Mapping[int, tuple[Plain, ...]] | None = None
  other: Plain = PLAIN
  drops: str | None = None
  probability: float = 0.0
  label: int = 0
  vector: int = 0
  windows: tuple[Whole, ...] = ()
  also: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def pascal(rule=PARENT, layer=1, ignore=0.4, **also):
  """Table 2's column of NC11 En-De: two heads, variance 1, q = 0.4."""
  drops = "row" if ignore else None
  return Says({layer: (rule,) * 2}, drops=drops, probability=ignore, also=also)


def deps_san(rule=TREE, first=1, last=3, training=None, **more):
  """All heads of layers 1 to 3, σ = 1."""
  layers = range(first, last + 1)
  if training is not None:
    training = dict.fromkeys(layers, (training,) * HEADS)
  return Says(dict.fromkeys(layers, (rule,) * HEADS), training=training, **more)


def sparse(other):
  """RS-Sparse with q = 0.1."""
  return deps_san(other=other, drops="pair", probability=0.1)


def related(positions=True, **options):
  rules = (Related(**options),) * HEADS
  return Says(
    dict.fromkeys(range(1, LAYERS + 1), rules),
    also={"model.transformer.positions": positions},
  )


def parsing(**weights):
  """A head of the first layers; λ_dep = 0.5 a side."""
  weights = {"source_heads": 0.5, "target_heads": 0.5} | weights
  return Says(
    {1: (Dbsa(),)},
    {1: (Dbsa(),)},
    also={f"losses.{name}.weight": w for name, w in weights.items()},
  )


def looks(*windows, **more):
  return Says(windows=windows, **more)


SECOND = {"data.second.task": "none"}
UNFILTERED, FILTERED = (
  {"prepare.clean.language": value} for value in (False, True)
)
ROWS: dict[str, dict[str, Says]] = {
  "pascal/components": {
    "transformer": Says(also=UNFILTERED),
    "filtering": Says(also=FILTERED),
    "pascal": pascal(ignore=0.0, **FILTERED),
    "ignoring": pascal(**FILTERED),
  },
  "pascal/layers": {
    f"layer_{layer}": pascal(layer=layer) for layer in range(1, 7)
  },
  "pascal/results": {
    "transformer": Says(also=SECOND),
    "label_embedding": Says(label=10, also=SECOND),
    "sisa": Says(
      {1: (Sisa(),)}, also=SECOND | {"losses.source_heads.weight": 1.0}
    ),
    "multitask": Says(
      also={"data.second.task": "parse", "data.second.brackets": "constituency"}
    ),
    "pascal": pascal(**SECOND),
  },
  "pascal/variance": {
    "parent_only": pascal(ParentOnly()),
    **{f"variance_{v}": pascal(Parent(v)) for v in (1, 4, 9, 16, 25)},
  },
  "deps_san/results": {
    "transformer": Says(),
    "pascal": Says({1: (PARENT,) * HEADS}),
    "pascal_ignoring": Says(
      {1: (PARENT,) * HEADS}, drops="row", probability=0.4
    ),
    "deps_san": deps_san(),
    "deps_san_rs": sparse(Tree(1.0, counts=6)),
    "deps_san_wink": deps_san(training=Tree(1.0, within=6)),
  },
  "dependency_relative/results": {
    "transformer": Says(),
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
    "none": Says(also={"model.transformer.positions": False}),
  },
  "dependency_relative/labels": {
    f"{label}_{clip}": related(label=label, clip=clip)
    for label in ("depth", "distance")
    for clip in (1, 2, 4, 8)
  },
  "dbsa/results": {
    "transformer": Says(),
    "dbsa": parsing(),
    "sync_attention": parsing(synchronisation=0.5),
  },
  "dbsa/synchronisation": {
    f"weight_{w:g}": parsing(synchronisation=w)
    for w in (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
  },
  "syntax_directed/results": {
    "gru_global": looks(Whole()),
    "gru_local": looks(Local()),
    "gru_flexible": looks(Flexible()),
    "gru_syntax": looks(Sdatt()),
    "gru_sdr": looks(Whole(), vector=260),
    "gru_double_local": looks(Whole(), Local()),
    "gru_double_flexible": looks(Whole(), Flexible()),
    "gru_double_syntax": looks(Whole(), Sdatt()),
    "gru_double_sdr": looks(Whole(), Whole("source_dependency", own=True)),
  },
  "syntax_directed/position": {
    position: looks(Sdatt(position=position))
    for position in ("interp", "hard", "expected")
  },
}

# Rows whose equations are tested in tests/syntax: test_localness.py,
# test_context.py, test_relative.py.
ELSEWHERE = {
  "deps_san/results": {
    *("localness_fixed", "localness_layer", "localness_query"),
    *("context_global", "context_deep", "context_deep_global", "relative"),
  },
  "dependency_relative/results": {"relative", "dependency_relative_both"},
}

# Rows of a table that nothing tells apart but a name, and why.
ALIKE = {
  # Beyond six edges the weight is below 1e-11 at σ = 1 before it becomes 0.
  ("deps_san/sparse", "none", "wink"),
  ("deps_san/results", "deps_san", "deps_san_wink"),
}

# A chain of nine words with a branch: up to eight edges; the third word has two
# subwords, the sixth three. And a short sentence of two trees.
SENTENCES = (
  Sentence(
    (0, 1, 2, 2, 3, 4, 5, 5, 5, 6, 7, 8, 9, -1),
    (1, 2, 3, 4, 5, 6, 7, 8, 8, 2),
  ),
  Sentence((0, 0, 1, 2, 3, -1), (1, 1, 2, 2)),
)


def facts(sentence: Sentence) -> dict[str, np.ndarray]:
  """As data sets have them."""
  rng = np.random.default_rng(len(sentence.head))
  head_W, word_S = np.array(sentence.head), np.array(sentence.word, np.int32)
  return sentence_of(1, 3, 0) | {
    "source_id_BS": np.r_[rng.integers(4, 20, len(word_S) - 1), 3],
    "source_word_BS": word_S,
    "source_head_BW": head_W,
    "source_relation_BW": rng.integers(1, 6, len(head_W)),
    "source_parent_mid_BS": trees.parent_mid(word_S, head_W),
    "source_tree_distance_BWW": np.asarray(trees.tree_distance(head_W)),
    "source_weighting_BSS": np.zeros((len(word_S), len(word_S))),
  }


BATCH = batch_of([facts(sentence) for sentence in SENTENCES], extra=1)
SOURCE = sentence_features(BATCH, "source")
POSITION = jnp.arange(SOURCE.real_BS.shape[1])
VIEW = SOURCE.replace(position_Q=POSITION, position_M=POSITION)
RNG = np.random.default_rng(0)
X_BSD = RNG.normal(size=(*SOURCE.real_BS.shape, WIDTH)).astype(np.float32)


@functools.cache
def plan_of(table: str, row: str):
  """The row's own config, in the paper's depth and a few units."""
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


def drawn(shapes):
  """Parameters, the same under the same name whatever stands beside them."""

  def draw(path, x):
    name = jax.tree_util.keystr(path)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return rng.normal(0, 0.5, x.shape).astype(np.float32)

  return jax.tree_util.tree_map_with_path(draw, shapes)


RAN: dict[Any, tuple] = {}


def run(spec, place: str, index: int, train: bool):
  """A layer of the row's model: parameters, scores, weights, output.

  Scores are those of the last part, before the mask; None where there is none.
  Layers of the same parts are run once.
  """
  # What is beside layers; in all else the papers' Transformers are one.
  family = dataclasses.replace(spec.architecture, positions=True)
  model = dataclasses.replace(spec.model, tie_embeddings=True, family=family)
  key = (place, spec.modifiers.modifiers_in_layer(place, index), model, train)
  if key in RAN:
    return RAN[key]
  x_BSD, scores, view = jnp.asarray(X_BSD), [], VIEW.replace(train=train)
  if place == "encoder":
    layer, inputs = EncoderLayer(spec, index), (x_BSD, view)
  else:
    layer, inputs = DecoderLayer(spec, index), (x_BSD, x_BSD, view, SOURCE)
  keys = {"params": jax.random.key(0), "syntax": jax.random.key(1)}
  shapes = jax.eval_shape(lambda: layer.init(keys, *inputs))

  def watch(call, arguments, options, context):
    out = call(*arguments, **options)
    if context.method_name == "rescore":
      scores.append(np.asarray(out))
    return out

  params = drawn(shapes["params"])
  with nn.intercept_methods(watch):
    out, state = layer.apply(
      {"params": params},
      *inputs,
      rngs={"syntax": jax.random.key(7)},
      mutable=[COLLECTION],
    )
  (weight,) = Maps.of(state).find(place=place, kind="weight_BHQM")
  weight_BHQM = np.asarray(weight.value)
  out = np.asarray(out[0]) if place == "encoder" else None
  RAN[key] = params, (scores or [None])[-1], weight_BHQM, out
  return RAN[key]


TOLD: dict[Any, list] = {}


def reference(params, place: str, rules):
  """Scores, weights (HSS) and the output (SD) of each sentence."""
  rules = (*rules, *[PLAIN] * (HEADS - len(rules)))
  key = (id(params), place, rules)
  if key not in TOLD:
    attention = params["attention"]
    expected = {"query", "key", "value", "output"}
    parts = [part for name, part in attention.items() if name not in expected]
    assert len(parts) <= 1
    inputs = rules, parts[0] if parts else {}
    TOLD[key] = []
    for b, sentence in enumerate(SENTENCES):
      x_SD = X_BSD[b, : len(sentence.word)].astype(float)
      TOLD[key].append(
        papers.encoder_layer(params, *inputs, sentence, x_SD)
        if place == "encoder"
        else papers.self_attention(
          attention, *inputs, sentence, x_SD, causal=True
        )
      )
  return TOLD[key]


EVERY = [
  (table, row.name)
  for table in TABLES
  for row in TABLES[table].rows
  if row.name not in ELSEWHERE.get(table, ())
]
ATTENTION = [at for at in EVERY if not at[0].startswith("syntax_directed")]
WINDOWS = [at for at in EVERY if at not in ATTENTION]


def test_every_row_has_its_reference_and_every_reference_its_row():
  assert {(t, r) for t, rows in ROWS.items() for r in rows} == set(EVERY)


@pytest.mark.parametrize("table, row", EVERY)
def test_options_of_a_row(table, row):
  config = row_of(table, row)
  for path, value in ROWS[table][row].also.items():
    assert field(config, path) == value, path
  terms = {
    path.split(".")[1]
    for path in ROWS[table][row].also
    if path.startswith("losses.")
  }
  assert set(config.losses) == {"nll"} | terms
  plan = plan_of(table, row)
  assert not plan.spec.modifiers.cross
  assert bool(ROWS[table][row].windows) == bool(windows_of(plan))


@pytest.mark.parametrize("table, row", ATTENTION)
def test_attention_of_a_row_equals_the_reference(table, row):
  """Weights of all heads of all layers, and what leaves an encoder's layer."""
  says, spec = ROWS[table][row], plan_of(table, row).spec
  for place, index in itertools.product(("encoder", "decoder"), range(LAYERS)):
    params, _, weight_BHQM, out_BSD = run(spec, place, index, False)
    rules = getattr(says, place).get(index + 1, ())
    for b, (_, weight_HSS, out_SD) in enumerate(
      reference(params, place, rules)
    ):
      size = weight_HSS.shape[1]
      result_HSS = weight_BHQM[b, :, :size, :size]
      np.testing.assert_allclose(result_HSS, weight_HSS, atol=2e-6)
      if place == "encoder":
        np.testing.assert_allclose(out_BSD[b, :size], out_SD, atol=2e-5)


@pytest.mark.parametrize("table, row", ATTENTION)
def test_training_scores_of_a_row_equal_the_reference(table, row):
  """Scores of every pair: what the rule says, or where noise drops, the other."""
  says, spec = ROWS[table][row], plan_of(table, row).spec
  training = says.encoder if says.training is None else says.training
  for index in range(LAYERS):
    params, score_BHQM, _, _ = run(spec, "encoder", index, True)
    rules, saved = training.get(index + 1, ()), []
    if score_BHQM is None:
      assert not rules
      continue
    wanted = reference(params, "encoder", rules)
    rest = reference(params, "encoder", [says.other] * len(rules))
    for b, ((score_HSS, *_), (other_HSS, *_)) in enumerate(zip(wanted, rest)):
      size = score_HSS.shape[1]
      result_HSS = score_BHQM[b, :, :size, :size]
      near = np.isclose(result_HSS, score_HSS, atol=2e-5)
      if not says.drops:
        assert near.all()
        continue
      other = np.isclose(result_HSS, other_HSS, atol=2e-5)
      if says.drops == "row":
        near, other = near.all(-1), other.all(-1)
      assert (near | other).all()
      message = (near != other)[: len(rules)]  # elsewhere both say the same
      if says.drops == "pair":  # one draw for all heads
        assert (near[:, message.all(0)] == near[0, message.all(0)]).all()
        message = message[:1]
      saved += near[: len(message)][message].tolist()
    if says.drops:  # of so many draws, five standard deviations
      p, share = says.probability, np.mean(saved)
      assert abs(1 - share - p) < 5 * (p * (1 - p) / len(saved)) ** 0.5
      assert 0 < share < 1


@pytest.mark.parametrize("table, row", ATTENTION)
def test_embeddings_of_a_row_equal_the_reference(table, row):
  says, spec = ROWS[table][row], plan_of(table, row).spec
  # A model without encoder layers, whose norm is none but theirs.
  none = dataclasses.replace(
    spec.architecture, encoder_layers=0, decoder_layers=1
  )
  none = dataclasses.replace(spec.model, family=none)
  model = TransformerModel(dataclasses.replace(spec, model=none))
  inputs = BATCH["source_id_BS"], SOURCE
  shapes = jax.eval_shape(
    lambda: model.init(jax.random.key(0), *inputs, method="encode")
  )
  params = drawn(shapes["params"])
  result = model.apply({"params": params}, *inputs, method="encode")
  table_VD = next(
    params[n] for n in ("source_table", "target_table") if n in params
  )
  table_VD = np.asarray(table_VD["embedding"], float)
  relation_BW = np.asarray(BATCH["source_relation_BW"])
  for b, sentence in enumerate(SENTENCES):
    for s, word in enumerate(sentence.word):
      x_D = table_VD[int(BATCH["source_id_BS"][b, s])] * WIDTH**0.5
      if says.label:
        labels = params["label_embedding"]["table"]["embedding"]
        expected = labels[relation_BW[b, word] if word >= 0 else 0]
        x_D = np.r_[x_D[: -says.label], expected]
      if spec.architecture.positions:
        half = WIDTH // 2
        rate = [10_000 ** (-i / (half - 1)) for i in range(half)]
        x_D = (
          x_D
          + np.r_[np.sin(np.multiply(s, rate)), np.cos(np.multiply(s, rate))]
        )
      np.testing.assert_allclose(result.memory_BSD[b, s], x_D, atol=2e-5)


def context_steps(cross, annotations, query_TBNG, view):
  """Weights (TBNS) and contexts (TBNE) of each window, step by step."""
  facts = cross.project_memory(annotations, view)
  past = cross.start(view, query_TBNG.shape[2])
  out = []
  for query_BNG in query_TBNG:
    contexts, weights, past = cross(query_BNG, past, facts, view)
    out.append((weights, contexts))
  return out


@pytest.mark.parametrize("table, row", WINDOWS)
def test_windows_of_a_row_equal_the_reference(table, row):
  says, spec = ROWS[table][row], plan_of(table, row).spec
  assert spec.architecture.update == "first"
  assert not spec.modifiers.decoder
  rng = np.random.default_rng(1)
  expected = sum(window.own for window in says.windows)
  annotations = tuple(
    rng.normal(size=(*SOURCE.real_BS.shape, 12)).astype(np.float32)
    for _ in range(1 + expected)
  )
  query_TBNG = rng.normal(size=(3, 2, 2, 6)).astype(np.float32)
  cross = Contexts(spec)
  inputs = annotations, jnp.asarray(query_TBNG), SOURCE
  shapes = jax.eval_shape(
    lambda: cross.init(jax.random.key(0), *inputs, method=context_steps)
  )
  params = drawn(shapes["params"])
  steps = cross.apply({"params": params}, *inputs, method=context_steps)
  for b, n in np.ndindex(2, 2):
    sentence, examined = SENTENCES[b], [0.0] * len(says.windows)
    size = len(sentence.word)
    for t, (weights, contexts) in enumerate(steps):
      assert len(weights) == len(says.windows)
      sequence = 0
      for c, window in enumerate(says.windows):
        sequence += window.own
        which = sequence if window.own else 0
        annotation_SE = annotations[which][b, :size].astype(float)
        query_G = query_TBNG[t, b, n].astype(float)
        score_S = papers.alignment(
          params[f"alignment_{which}"], query_G, annotation_SE
        )
        part = params.get(window.name, {})
        step = papers.Step(sentence, score_S, query_G, part, examined[c])
        weight_S = window.weights(step)
        examined[c] = sum(j * w for j, w in enumerate(weight_S))
        np.testing.assert_allclose(weights[c][b, n, :size], weight_S, atol=5e-6)
        np.testing.assert_array_equal(weights[c][b, n, size:], 0)
        np.testing.assert_allclose(
          contexts[c][b, n], np.array(weight_S) @ annotation_SE, atol=2e-5
        )


@pytest.mark.parametrize(
  "table, row",
  [
    at
    for at in WINDOWS
    if ROWS[at[0]][at[1]].vector
    or any(w.own for w in ROWS[at[0]][at[1]].windows)
  ],
)
def test_source_dependency_of_a_row_equals_the_reference(table, row):
  """V within the embedding; or a sequence of its own."""
  says, plan = ROWS[table][row], plan_of(table, row)
  spec = plan.spec
  if says.vector:
    ((name, part),) = spec.modifiers.modifiers_at_embeddings("encoder")
    module, method = part.make(spec.attention_site("encoder", -1)), "embed"
  else:
    windows = windows_of(plan).items()
    ((name, window),) = [c for c in windows if c[1].has_own_annotations]
    where = dataclasses.replace(spec.attention_site("encoder", -1), width=6)
    module, method = window.make(where), "sequence"
  assert name == "source_dependency"
  inputs = jnp.asarray(X_BSD), VIEW
  shapes = jax.eval_shape(
    lambda: module.init(jax.random.key(0), *inputs, method=method)
  )
  params = drawn(shapes["params"])
  result = module.apply({"params": params}, *inputs, method=method)
  for b, sentence in enumerate(SENTENCES):
    words = range(len(sentence.head))
    x_WD = {w: X_BSD[b, sentence.subwords(w)].mean(0) for w in words}
    for s, word in enumerate(sentence.word):
      members = []
      if word >= 0:
        members = unit_by_loops(sentence.head, words, word, 10)
      v = vector_by_loops(params["surroundings"], members, x_WD)
      wanted = np.r_[X_BSD[b, s, :-5], v] if says.vector else v
      np.testing.assert_allclose(result[b, s], wanted, atol=1e-5)


def fingerprint(table: str, row: str) -> str:
  """All that a row does, but not what it is called."""
  plan = plan_of(table, row)
  config = as_dict(plan.config)
  saved = (
    "model",
    "losses",
    "optimiser",
    "train",
    "decode",
    "batch",
    "prepare",
  )
  values = {name: config[name] for name in saved} | {
    "data": dict(config["data"])
  }
  for name in ("name", "directory"):
    del values["data"][name]
  numbers = []
  if windows := windows_of(plan):
    values["windows"] = [
      (name, dataclasses.asdict(spec)) for name, spec in windows.items()
    ]
    values["parts"] = [repr(part) for part in parts_of(plan).items()]
  else:
    values["embeddings"] = repr(
      plan.spec.modifiers.modifiers_at_embeddings("encoder")
    )
    for train, index in itertools.product((False, True), range(LAYERS)):
      for place in ("encoder", "decoder"):
        _, *result = run(plan.spec, place, index, train)
        numbers += [np.round(x, 5) + 0.0 for x in result if x is not None]
  digest = zlib.crc32(b"".join(x.tobytes() for x in numbers))
  return f"{digest} {json.dumps(values, sort_keys=True, default=str)}"


@pytest.mark.parametrize("table", TABLES)
def test_identical_rows_are_listed(table):
  prints = {row: fingerprint(table, row) for row in ROWS[table]}
  alike = {
    (table, *sorted(pair))
    for pair in itertools.combinations(prints, 2)
    if prints[pair[0]] == prints[pair[1]]
  }
  assert alike == {at for at in ALIKE if at[0] == table}
