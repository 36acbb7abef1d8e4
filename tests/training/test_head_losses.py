"""Parsing and synchronisation losses, their gradients and their options."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import JOINT, batch_of, config_of, parameters, plan_of
from models_under_test import sentence as pair_of

from jaxsyn.config import as_dict, read_config
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.syntax.maps import Address, Maps, Published
from jaxsyn.training.head_losses import (
  SourceHeads,
  Synchronisation,
  TargetHeads,
)
from jaxsyn.training.step import outputs

RNG = np.random.default_rng(0)
PAIRS = [pair_of(5, 6, 1), pair_of(3, 4, 2), pair_of(7, 8, 3)]
BATCH = batch_of(PAIRS, extra=1)


def distributions(shown):
  """Returns random log probabilities over the shown entries, -inf elsewhere."""
  score = RNG.normal(size=shown.shape)
  with np.errstate(divide="ignore"):
    p = np.where(shown, np.exp(score), 0.0)
    return np.log(p / np.maximum(p.sum(-1, keepdims=True), 1e-30))


def maps_of(source=None, target=None, parent=None, cross=None, layer=0):
  """Returns the published maps of a layer."""
  values = {
    ("encoder", "dbsa", "log_parse_BQM"): source,
    ("encoder", "dbsa", "parent_BQ"): None if source is None else parent,
    ("decoder", "dbsa", "log_parse_BQM"): target,
    ("decoder", "dbsa", "parent_BQ"): None if target is None else parent,
    ("cross", "", "weight_BHQM"): cross,
  }
  return Maps(
    tuple(
      Published(Address(stack, layer, part, kind), jnp.asarray(value))
      for (stack, part, kind), value in values.items()
      if value is not None
    )
  )


CAUSAL = np.tril(np.ones((6, 6), bool))


@pytest.mark.parametrize(
  "loss, shown",
  [(SourceHeads(), CAUSAL[5] & ~CAUSAL[0]), (TargetHeads(), CAUSAL)],
)
def test_parsing_loss_of_two_layers_against_loops(loss, shown):
  """Hidden parents, such as those on the right in a decoder, do not count."""
  shown = np.broadcast_to(shown, (4, 6, 6))
  parent = RNG.integers(-1, 6, (4, 6))
  published, wanted, index = (), 0.0, 0
  for layer in (0, 10):
    log_p = distributions(shown)
    side = {"target" if loss.stack == "decoder" else "source": log_p}
    published += maps_of(**side, parent=parent, layer=layer).published
    for b, q in np.ndindex(4, 6):
      if parent[b, q] >= 0 and shown[b, q, parent[b, q]]:
        wanted -= log_p[b, q, parent[b, q]]
        index += 1
  added, count = loss(None, Maps(published), {})
  assert 10 < count == index < 48 and added == pytest.approx(wanted, rel=1e-5)


def test_attachment_score():
  # Words 0 1 1 2 of subwords 0 to 3, EOS, a pad; word 1 is the root.
  batch = {
    f"target_{name}": jnp.array([values])
    for name, values in {
      "id_BT": [5, 6, 7, 8, 3, 0],
      "word_BT": [0, 1, 1, 2, -1, -1],
      "head_BW": [1, 1, 1],
    }.items()
  } | {"target_parsed_B": jnp.ones(1)}
  best = {0: 0, 1: 0, 2: 1, 3: 1}  # subword -> subword of most weight
  p = np.full((1, 6, 6), 0.1)
  for q, m in best.items():
    p[0, q, m] = 0.5
  with np.errstate(divide="ignore"):
    maps = maps_of(target=np.log(np.where(CAUSAL, p, 0.0)))
  # Word 0: the parent is on the right and not found. Word 1: its last subword
  # finds its first one, its own word: a root, right. Word 2 finds the first
  # subword of word 1: right.
  assert TargetHeads().measure(maps, batch) == {
    "uas/target": (2, 3),
    "uas/target_reachable": (2, 2),
  }
  # Sentences without a tree do not count.
  batch["target_parsed_B"] = jnp.zeros(1)
  assert TargetHeads().measure(maps, batch)["uas/target"] == (0, 0)


def test_synchronisation_reads_the_chosen_layer():
  spec = plan_of("dbsa", decoder_layers=3).spec
  for layer, index in ((-1, 2), (-2, 1), (-3, 0), (1, 1)):
    loss = Synchronisation(layer=layer).with_defaults(spec)
    assert loss.layer == index
  shown = np.tril(np.ones((2, 3, 3), bool))
  source, target = distributions(np.ones((2, 3, 3), bool)), distributions(shown)
  batch = {"target_id_BT": jnp.array([[5, 6, 3], [7, 3, 0]])}
  cross = RNG.dirichlet(np.ones(3), (3, 2, 2, 3)).astype(np.float32)  # layers
  parses = maps_of(source, target).published
  layers = [maps_of(cross=cross[one], layer=one).published for one in range(3)]
  maps = Maps(parses + layers[0] + layers[1] + layers[2])
  result, _ = loss(None, maps, batch)
  alone, _ = loss(None, Maps(parses + layers[1]), batch)
  assert result == alone
  assert abs(result - Synchronisation(layer=0)(None, maps, batch)[0]) > 1e-3


@pytest.mark.parametrize(
  "normalise, temperature, alignment",
  [
    ("softmax", 1.0, "output"),
    ("softmax", 0.1, "output"),
    ("renorm", 1.0, "input"),
    ("log", 0.5, "output"),
  ],
)
def test_synchronisation_against_loops(normalise, temperature, alignment):
  B, heads, S, T = 2, 3, 5, 4
  real = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
  shown = np.tril(np.ones((B, T, T), bool)) & (real[:, None, :] > 0)
  source = distributions(np.ones((B, S, S), bool))
  target = distributions(shown)
  cross = np.exp(distributions(np.ones((B, heads, T, S), bool)))
  E, D, C = np.exp(source), np.exp(target), cross.mean(1)
  if alignment == "input":  # row t + 1 stands for subword t
    C = np.concatenate([C[:, 1:], np.zeros((B, 1, S))], 1)
  wanted = 0.0
  for b, t in np.argwhere(real):
    columns = [u for u in range(T) if shown[b, t, u]]
    row = np.array([C[b, t] @ E[b] @ C[b, u] for u in columns])
    if normalise == "renorm":
      row = row / max(row.sum(), 1e-9)
    else:
      row = np.log(np.maximum(row, 1e-9)) if normalise == "log" else row
      row = np.exp(row / temperature)
      row = row / row.sum()
    wanted += sum((row - D[b, t, columns]) ** 2)
  loss = Synchronisation(
    normalise=normalise, temperature=temperature, alignment=alignment, layer=2
  )
  batch = {"target_id_BT": jnp.asarray(real * 5)}
  maps = maps_of(source, target, cross=cross, layer=2)
  added, count = loss(None, maps, batch)
  assert count == 6 and added == pytest.approx(wanted, rel=1e-5)


def test_all_parsing_weights_have_a_gradient():
  plan = plan_of("sync_attention")
  params = parameters(plan, BATCH)

  @jax.jit
  def gradient(params):
    def value(params):
      logits, maps = outputs(plan.recipe, params, BATCH, train=False)
      return sum(
        loss(logits, maps[name], BATCH)[0]
        for name, loss in plan.recipe.losses.items()
        if name != "nll"
      )

    return jax.grad(value)(params)

  got = gradient(params)
  assert all(np.isfinite(g).all() for g in jax.tree.leaves(got))
  for place in ("encoder_0", "decoder_0"):
    for leaf in jax.tree.leaves(got[place]["attention"]["dbsa"]):
      assert np.abs(leaf).max() > 0
  assert np.abs(got["decoder_0"]["cross"]["query"]["kernel"]).max() > 0


def test_full_context_shows_the_supervised_head_all_positions():
  config = config_of("dbsa")
  losses = dict(config.losses)
  losses["target_heads"] = dataclasses.replace(
    losses["target_heads"], full_context=True
  )
  losses = tuple(losses.items())
  full = resolve(dataclasses.replace(config, losses=losses), JOINT)
  plain = plan_of("dbsa")
  params = parameters(plain, BATCH)
  terms = {}
  for name, plan in (("plain", plain), ("full", full)):
    run = functools.partial(outputs, plan.recipe, train=False)
    logits, maps = jax.jit(run)(params, BATCH)
    loss = plan.recipe.losses["target_heads"]
    terms[name] = logits, loss(logits, maps["target_heads"], BATCH)
    shares = loss.measure(maps["target_heads"], BATCH)
    reached, words = (
      shares[f"uas/{side}"][1] for side in ("target_reachable", "target")
    )
    assert (reached == words) == (name == "full")
    address = Address("decoder", 0, "", "weight_BHQM")
    weight = maps["target_heads"].at(address)
    assert (np.triu(weight, 1) > 0).any() == (name == "full")
  # The logits do not change, and every subword of a word is supervised.
  np.testing.assert_array_equal(terms["plain"][0], terms["full"][0])
  words = sum(int((pair["target_word_BT"] >= 0).sum()) for pair in PAIRS)
  assert terms["full"][1][1] == words > terms["plain"][1][1]


@pytest.mark.parametrize(
  "system, losses, message",
  [
    ("transformer", {"source_heads": {}}, r"source_heads: no head of the enc"),
    ("sisa", {"target_heads": {}}, r"target_heads: no head of the decoder"),
    ("sisa", {"synchronisation": {}}, r"synchronisation: no head of the dec"),
    ("dbsa", {"synchronisation": {"layer": 1}}, r"\.layer: 1 is not one of"),
    (
      "dbsa",
      {"synchronisation": {"normalise": "renorm", "temperature": 0.1}},
      "does nothing with",
    ),
  ],
)
def test_rejects_losses_without_their_maps(system, losses, message):
  config = config_of(system)
  config = as_dict(config)
  config["losses"] = {"nll": config["losses"]["nll"], **losses}
  with pytest.raises(InputError, match=message):
    resolve(read_config(config), JOINT)
