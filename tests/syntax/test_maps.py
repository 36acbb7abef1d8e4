"""Published maps: addresses, order, and messages about missing ones."""

import itertools

import jax
import pytest
from models_under_test import batch_of, plan_of, sentence

from jaxsyn.arrays.shapes import split
from jaxsyn.errors import InputError
from jaxsyn.models.contract import forward
from jaxsyn.syntax.maps import COLLECTION, Address, Maps

BATCH = batch_of([sentence(3, 4, 1), sentence(5, 3, 2)])


def published(system: str, **model) -> Maps:
  """Shapes of all maps that a tiny model of a system publishes."""
  network = plan_of(system, **model).recipe.model

  def run():
    keys = {"params": jax.random.key(0)}
    made = network.init(keys, BATCH, train=False, method=forward)
    assert set(made) == {"params"}  # a train state contains no maps
    state = network.apply(
      made, BATCH, train=False, method=forward, mutable=[COLLECTION]
    )[1]
    return Maps.of(state)

  return jax.eval_shape(run)


def test_layers_and_modifiers_are_in_order():
  maps = published("deps_san+localness_query+dbsa", encoder_layers=11)
  weights = maps.find(stack="encoder", modifier="", kind="weight_BHQM")
  assert [one.address.layer for one in weights] == [*range(11)]
  first = [p.address for p in maps.find(stack="encoder", layer=0)]
  names = [name for name, _ in itertools.groupby(a.modifier for a in first)]
  assert names == ["tree_scaled", "localness", "dbsa", ""]
  assert {(a.modifier, a.kind) for a in first} >= {
    ("tree_scaled", "weighting_BHQM"),
    ("localness", "bias_BHQM"),
    ("dbsa", "log_parse_BQM"),
    ("dbsa", "parent_BQ"),
    ("", "weight_BHQM"),
  }
  for stack in ("decoder", "cross"):
    assert len(maps.find(stack=stack, modifier="", kind="weight_BHQM")) == 1
  with pytest.raises(InputError) as caught:
    maps.find(stack="cross", layer=1)
  message = str(caught.value)
  assert message.startswith("a reader reads the map stack='cross', layer=1, wh")
  assert "There are: stack='encoder', modifier='tree_scaled', kind=" in message
  assert "kind='weight_BHQM' of layer 0, 1, 2, 3, 4, 5, 6, 7" in message
  with pytest.raises(InputError, match="layer=1, modifier='', kind='weight_BH"):
    maps.at(Address("cross", 1, "", "weight_BHQM"))


@pytest.mark.parametrize(
  "system",
  [
    *("given_weighting", "dependency_relative_both", "context_deep"),
    "gru_double_syntax",
  ],
)
def test_addresses_are_unique_and_kinds_name_the_axes(system):
  maps = published(system).published
  for one in maps:
    assert len(split(one.address.kind)[1]) == one.value.ndim
  addresses = [one.address for one in maps]
  assert len({*addresses}) == len(maps)
  if system == "gru_double_syntax":
    assert [a.modifier for a in addresses] == ["global", "syntax"]
