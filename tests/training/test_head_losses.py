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
  published = []

  def add(place, part, kind, value):
    if value is not None:
      address = Address(place, layer, part, kind)
      published.append(Published(address, jnp.asarray(value)))

  for place, parse in (("encoder", source), ("decoder", target)):
    if parse is not None:
      parse = jnp.asarray(parse, jnp.float32)
      add(place, "dbsa", "log_parse_BQM", parse)
      add(place, "dbsa", "parent_BQ", parent)
  add("cross", "", "weight_BHQM", cross)
  return Maps(tuple(published))


CAUSAL = np.tril(np.ones((1, 5, 5), bool))
# Subwords to find for a@@ b c@@ d e, three words: only 3 to 3 and 4 to 2 are not on
# the right.
PARENT = [[1, 2, 3, 3, 2]]


def test_the_decoder_loss_omits_parents_on_the_right():
  log_p = distributions(CAUSAL)
  maps = maps_of(target=log_p, parent=PARENT)
  added, count = TargetHeads()(None, maps, {})
  assert count == 2
  assert added == pytest.approx(-log_p[0, 3, 3] - log_p[0, 4, 2], rel=1e-6)


def test_parsing_loss_of_two_layers_against_loops():
  shown = np.ones((4, 6, 6), bool)
  shown[:, :, 5] = False
  parent = RNG.integers(-1, 5, (4, 6))
  published, wanted, index = (), 0.0, 0
  for layer in (0, 10):
    log_p = distributions(shown)
    published += maps_of(log_p, parent=parent, layer=layer).published
    for b, q in np.ndindex(4, 6):
      if parent[b, q] >= 0:
        wanted -= log_p[b, q, parent[b, q]]
        index += 1
  added, count = SourceHeads()(None, Maps(published), {})
  assert count == index and added == pytest.approx(wanted, rel=1e-5)


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
  shown = np.tril(np.ones((6, 6), bool))
  with np.errstate(divide="ignore"):
    maps = maps_of(target=np.log(np.where(shown, p, 0.0)))
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


EYE = np.eye(3, dtype=np.float32)[None]


def synchronised(loss, source, target, cross, batch):
  maps = maps_of(source, target, cross=cross, layer=loss.layer)
  return loss(None, maps, batch)


def test_synchronisation_of_identities_by_hand():
  # E = D = C = I, three target subwords: D_map = I. Its masked softmax has
  # rows (1), (1, e)/(1+e), (1, 1, e)/(2+e) = .2119 .2119 .5761.
  batch = {"target_id_BT": jnp.array([[5, 6, 3]])}
  shown = np.tril(np.ones((1, 3, 3), bool))
  source = np.log(np.maximum(EYE, 1e-30))
  target = np.where(shown, source, -np.inf)  # -inf is hidden, not unlikely
  loss = Synchronisation(layer=0)
  rows = loss.normalize(jnp.asarray(EYE), jnp.asarray(shown))
  np.testing.assert_allclose(rows[0, 2], [0.2119, 0.2119, 0.5761], atol=5e-5)
  e = np.e
  wanted = 2 / (1 + e) ** 2 + 2 / (2 + e) ** 2 + (2 / (2 + e)) ** 2
  added, count = synchronised(loss, source, target, EYE[:, None], batch)
  assert count == 3 and added == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
  "normalise, temperature, alignment",
  [
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
  wanted = 0.0
  for b in range(B):
    for t in range(T):
      if not real[b, t]:
        continue
      row, columns = [], [u for u in range(T) if shown[b, t, u]]

      def state(x, b=b):  # the state that stands for subword x
        late = alignment == "input"
        return C[b, x + late] if x + late < T else np.zeros(S)

      for u in columns:
        row.append(
          sum(
            state(t)[i] * E[b, i, j] * state(u)[j]
            for i in range(S)
            for j in range(S)
          )
        )
      row = np.array(row)
      if normalise == "renorm":
        row = row / max(row.sum(), 1e-9)
      else:
        if normalise == "log":
          row = np.log(np.maximum(row, 1e-9))
        row = np.exp(row / temperature)
        row = row / row.sum()
      wanted += sum((x - D[b, t, u]) ** 2 for x, u in zip(row, columns))
  loss = Synchronisation(
    normalise=normalise, temperature=temperature, alignment=alignment, layer=2
  )
  batch = {"target_id_BT": jnp.asarray(real * 5)}
  added, count = synchronised(loss, source, target, cross, batch)
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
