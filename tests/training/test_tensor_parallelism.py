"""config.train.mesh.tensor splits heads, feed-forward units and the vocabulary."""

import functools
import re

import jax
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec
from models_under_test import batch_of, plan_of, sentence

from jaxsyn.errors import InputError
from jaxsyn.training.mesh import Layout
from jaxsyn.training.options import Mesh
from jaxsyn.training.step import first_state, train_step

pytestmark = pytest.mark.usefixtures("eight_devices")
ROWS = 8
BATCH = {
  k: np.asarray(v)
  for k, v in batch_of(
    [sentence(3 + i % 5, 4 + i % 3, i) for i in range(ROWS)]
  ).items()
}


def start(recipe):
  return jax.jit(functools.partial(first_state, recipe, seed=0))(BATCH)


def compiled(recipe, layout):
  """Returns the program of a training step, a state and a batch."""
  state, batch = layout.place_state(start(recipe)), layout.place_batch(BATCH)
  step = functools.partial(train_step, recipe=recipe)
  return layout.compile_train(step, state, batch), state, batch


def specs_of(system, layout, **model):
  """Returns the spec of each parameter and optimizer moment, by name."""
  shapes = jax.eval_shape(lambda: start(plan_of(system, **model).recipe))
  leaves = jax.tree_util.tree_leaves_with_path(layout.shardings(shapes))
  return {jax.tree_util.keystr(path): s.spec for path, s in leaves}


P = PartitionSpec
SPLIT = {
  "['target_table']['embedding']": P("tensor", "fsdp"),
  "['encoder_0']['attention']['query']['kernel']": P("fsdp", "tensor", None),
  "['decoder_0']['cross']['value']['kernel']": P("fsdp", "tensor", None),
  "['decoder_0']['cross']['key']['bias']": P("tensor", "fsdp"),
  "['decoder_0']['attention']['output']['kernel']": P("tensor", None, "fsdp"),
  "['decoder_0']['attention']['output']['bias']": P(None),
  "['encoder_0']['feed_forward']['inner']['kernel']": P("fsdp", "tensor"),
  "['encoder_0']['feed_forward']['inner']['bias']": P("tensor"),
  "['encoder_0']['feed_forward']['outer']['kernel']": P("tensor", "fsdp"),
  "['encoder_0']['feed_forward']['outer']['bias']": P(None),
  "['encoder_norm']['scale']": P(None),
  ".params['output']['kernel']": P("fsdp", "tensor"),
}


@pytest.mark.parametrize(
  "system, expected",
  [
    ("transformer", SPLIT),
    ("localness_layer", {"['hidden_HKK']": P("tensor", "fsdp", None)}),
    ("tree_bias_edges", {"['edge_ERH']": P(None, "fsdp", "tensor")}),
    ("relative", {"['key_LK']": P(None, "fsdp")}),
    # It has parameters of one of two heads.
    ("dbsa", {"['bilinear_HKK']": P(None, "fsdp", None)}),
  ],
)
def test_splits_parameters_by_head_unit_and_subword(system, expected):
  # The width is the largest axis, so sizes do not identify the axes.
  layout = Layout("jit", Mesh(fsdp=2, tensor=2))
  specs = specs_of(system, layout, tie_output=system != "transformer")
  for name, spec in expected.items():  # of parameters, and of their moments
    found = {s for path, s in specs.items() if path.endswith(name)}
    assert found == {spec}, name


@pytest.mark.parametrize(
  "sizes, message",
  [({}, "heads=2 is not"), ({"heads": 4, "feed_forward": 18}, "forward=18 is")],
)
def test_rejects_sizes_that_cannot_be_split(sizes, message):
  layout = Layout("jit", Mesh(fsdp=1, tensor=4))
  with pytest.raises(InputError, match=rf"{message}.*mesh\.tensor=4"):
    specs_of("transformer", layout, **sizes)


def test_each_device_holds_the_scores_of_its_heads_and_communicates_little():
  sizes = {"encoder_layers": 1, "decoder_layers": 1, "heads": 4}
  recipe = plan_of("transformer", width=32, feed_forward=48, **sizes).recipe
  mesh = Mesh(fsdp=1, tensor=4)
  program, _, _ = compiled(recipe, Layout("jit", mesh, jax.devices()[:4]))
  text = program.as_text()
  counts = {
    name: len(re.findall(rf" {name}(?:-start)?\(", text))
    for name in ("all-gather", "all-reduce", "all-to-all", "collective-permute")
  }
  S, T = BATCH["source_id_BS"].shape[1], BATCH["target_id_BT"].shape[1]
  assert S != T
  for Q, M in ((S, S), (T, T), (T, S)):
    assert f"f32[{ROWS},1,{Q},{M}]" in text
    assert f"f32[{ROWS},4,{Q},{M}]" not in text
  assert counts["all-gather"] <= 6
  assert counts["all-reduce"] <= 15
  assert counts["all-to-all"] == counts["collective-permute"] == 0


@pytest.mark.parametrize(
  "system", ["dbsa+localness_layer", "gru_double_syntax"]
)
def test_loss_and_gradients_equal_those_of_one_device(system):
  recipe = plan_of(system, encoder_layers=1).recipe
  # The state of this optimizer is the gradient.
  recipe = recipe.replace(optimiser=optax.trace(0.0))
  collected = []
  for layout in (
    Layout("jit", Mesh(fsdp=1, tensor=1), jax.devices()[:1]),
    Layout("jit", Mesh(fsdp=2, tensor=2)),
  ):
    program, state, batch = compiled(recipe, layout)
    state, metrics = program(state, batch)
    total, count = jax.device_get(metrics["terms"]["nll"])
    collected.append((total / count, jax.device_get(state.opt.trace)))
  (loss, gradient), (split_loss, split_gradient) = collected
  assert split_loss == pytest.approx(loss, rel=1e-6)
  largest = max(np.abs(g).max() for g in jax.tree.leaves(gradient))
  for one, other in zip(
    jax.tree.leaves(gradient), jax.tree.leaves(split_gradient), strict=True
  ):
    assert np.abs(one - other).max() <= 1e-5 * largest
