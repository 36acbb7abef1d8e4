"""Source dependency: the convolution by loops, and who keeps what."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  JOINT,
  batch_of,
  config_of,
  logits,
  parameters,
  places,
  sentence,
)
from source_dependency_by_loops import unit_by_loops, vector_by_loops

from jaxsyn.errors import InputError
from jaxsyn.models.contract import sentence_features
from jaxsyn.plan import resolve
from jaxsyn.syntax import AttentionSite, source_dependency
from jaxsyn.syntax.source_dependency import SourceDependency

WHERE = AttentionSite("encoder", -1, heads=2, width=6, dtype="float32")

PAIRS = [sentence(9, 2, 3), sentence(4, 2, 4), sentence(1, 2, 5)]
BATCH = batch_of([*PAIRS, sentence(0, 2, 6)], extra=2)
VIEW = sentence_features(BATCH, "source").replace(parsed_B=None)
RNG = np.random.default_rng(0)
X_BSD = RNG.normal(size=(*VIEW.real_BS.shape, 6)).astype(np.float32)


@functools.partial(jax.jit, static_argnames="part")
def embed(part, params, x_BSD, view):
  return part.apply(params, x_BSD, view, method="embed")


def embedded(spec, view=VIEW, x_BSD=X_BSD, seed=0):
  """What enters the encoder, and the random parameters that made it."""
  part, x_BSD = spec.make(WHERE), jnp.asarray(x_BSD)
  shapes = jax.eval_shape(
    lambda: part.init(jax.random.key(0), x_BSD, view, method="embed")
  )
  rng = np.random.default_rng(seed)
  params = jax.tree.map(
    lambda p: rng.normal(0, 0.5, p.shape).astype(np.float32), shapes
  )
  return np.asarray(embed(part, params, x_BSD, view)), params


@pytest.fixture
def clear_caches():
  """Compiles programs with other constants than in other tests."""
  jax.clear_caches()
  yield
  jax.clear_caches()


@pytest.mark.usefixtures("clear_caches")
@pytest.mark.parametrize("kernel, length", [(1, 10), (3, 10), (3, 2), (5, 3)])
def test_vectors_by_loops(monkeypatch, kernel, length):
  monkeypatch.setattr(source_dependency, "LENGTH", length)
  monkeypatch.setattr(source_dependency, "KERNEL", kernel)
  spec = SourceDependency(size=4)
  out_BSD, params = embedded(spec)
  np.testing.assert_array_equal(out_BSD[..., :2], X_BSD[..., :2])
  for b, (word_S, head_W) in enumerate(
    zip(np.asarray(VIEW.word_BS), np.asarray(VIEW.head_BW))
  ):
    words = sorted({w for w in word_S.tolist() if w >= 0})
    x_WD = {w: X_BSD[b, word_S == w].mean(0) for w in words}
    for s, word in enumerate(word_S):
      members = unit_by_loops(head_W, words, word, length) if word >= 0 else []
      np.testing.assert_allclose(
        out_BSD[b, s, 2:],
        vector_by_loops(params["params"]["surroundings"], members, x_WD),
        atol=1e-5,
      )


def test_a_word_knows_the_dimensions_that_are_taken_from_its_relatives():
  """The last dimensions of a token reach its relatives' V, not its own."""
  # Each word is one subword: 1 is the root of 0 and 2, and 2 of 3.
  view = VIEW.replace(
    word_BS=jnp.broadcast_to(jnp.array([0, 1, 2, 3]), (4, 4)),
    head_BW=jnp.broadcast_to(jnp.array([1, 1, 1, 2]), (4, 4)),
    real_BS=jnp.ones((4, 4), bool),
  )
  x_BSD = X_BSD[:, :4]
  moved = x_BSD.copy()
  moved[0, 2, 2:] += 1.0
  was, _ = embedded(SourceDependency(size=4), view, x_BSD)
  out, _ = embedded(SourceDependency(size=4), view, moved)
  edited = [s for s in range(4) if not np.array_equal(was[0, s], out[0, s])]
  assert edited == [0, 1, 3]  # a sibling, the parent, a child


def test_a_sentence_without_a_tree_keeps_its_embeddings():
  view = VIEW.replace(parsed_B=jnp.array([1, 0, 1, 1], jnp.uint8))
  out, _ = embedded(SourceDependency(size=4), view)
  np.testing.assert_array_equal(out[1], X_BSD[1])
  np.testing.assert_array_equal(
    out[0], embedded(SourceDependency(size=4))[0][0]
  )


def test_every_parameter_learns():
  spec = SourceDependency(size=4)
  _, params = embedded(spec)
  weight = RNG.normal(size=X_BSD.shape)

  def loss(params, x_BSD):
    return jnp.sum(weight * embed(spec.make(WHERE), params, x_BSD, VIEW))

  by_params, by_x_BSD = jax.grad(loss, (0, 1))(params, jnp.asarray(X_BSD))
  for leaf in jax.tree.leaves(by_params):
    assert np.isfinite(leaf).all() and np.abs(leaf).min() > 0
  assert np.isfinite(by_x_BSD).all()
  pad_BS = ~np.asarray(VIEW.real_BS)
  assert not by_x_BSD[pad_BS][:, 2:].any()  # taken, and in no unit


def transformer_with(**parts):
  config = config_of("transformer")
  return resolve(
    dataclasses.replace(config, parts=places(encoder=parts)), JOINT
  )


def test_the_transformer_takes_it_too():
  plan = transformer_with(source_dependency={"size": 6})
  params = parameters(plan, BATCH)
  was = logits(plan, params, BATCH)
  last = jnp.full_like(BATCH["source_head_BW"][0], 8)
  other = dict(BATCH, source_head_BW=BATCH["source_head_BW"].at[0].set(last))
  out = logits(plan, params, other)
  assert not np.allclose(out[0], was[0], atol=1e-3)
  np.testing.assert_array_equal(out[1:], was[1:])


@pytest.mark.parametrize(
  "options, message",
  [
    ({"size": -1}, r"size must be from 0 to .*, got -1"),
    ({"size": 17}, r"size=17 must be from 0 to config\.model\.width=16"),
  ],
)
def test_options_that_do_not_fit_are_named(options, message):
  site = r"config\.parts\.encoder\.source_dependency\."
  with pytest.raises(InputError, match=site + message):
    transformer_with(source_dependency=options)


def test_two_that_take_the_same_dimensions_clash():
  label = {"size": 4}
  with pytest.raises(
    InputError, match="source_dependency and label_embedding both take the last"
  ):
    transformer_with(source_dependency=label, label_embedding=label)
  transformer_with(source_dependency={"size": 0}, label_embedding=label)
