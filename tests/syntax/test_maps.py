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

  maps = jax.eval_shape(run)
  addresses = [one.address for one in maps.published]
  assert len({*addresses}) == len(addresses)
  for one in maps.published:  # kinds name the axes
    assert len(split(one.address.kind)[1]) == one.value.ndim
  return maps


def test_layers_and_modifiers_are_in_order():
  maps = published("deps_san+localness_query+dbsa", encoder_layers=11)
  weights = maps.find(stack="encoder", modifier="", kind="weight_BHQM")
  assert [one.address.layer for one in weights] == [*range(11)]
  first = [p.address for p in maps.find(stack="encoder", layer=0)]
  names = [name for name, _ in itertools.groupby(a.modifier for a in first)]
  assert names == ["tree_scaled", "localness", "dbsa", ""]
  kinds = {a.kind for a in first if a.modifier == "dbsa"}
  assert kinds == {"log_parse_BQM", "parent_BQ"}
  for stack in ("decoder", "cross"):
    assert len(maps.find(stack=stack, modifier="", kind="weight_BHQM")) == 1
  with pytest.raises(
    InputError, match=r"stack='cross', layer=1, .* layer 0, 1"
  ):
    maps.find(stack="cross", layer=1)
  with pytest.raises(InputError, match="layer=1, modifier='', kind='weight_BH"):
    maps.at(Address("cross", 1, "", "weight_BHQM"))


def test_a_recurrent_model_publishes_its_windows():
  addresses = [p.address for p in published("gru_double_syntax").published]
  assert [a.modifier for a in addresses] == ["global", "syntax"]
  published("given_weighting+context_deep+dependency_relative_both")
