"""What is published has the address of where it was made."""

import jax
import pytest
from models_under_test import batch_of, plan_of, sentence

from jaxsyn.models.contract import forward
from jaxsyn.shapes import split
from jaxsyn.syntax.maps import COLLECTION, Address, Maps

BATCH = batch_of([sentence(3, 4, 1), sentence(5, 3, 2)])


def published(system: str, **model) -> Maps:
  """Shapes of what a tiny model of a system publishes, by address."""
  network = plan_of(system, **model).recipe.model

  def run():
    keys = {"params": jax.random.key(0)}
    made = network.init(keys, BATCH, train=False, method=forward)
    assert set(made) == {"params"}  # a state of training holds no maps
    state = network.apply(
      made, BATCH, train=False, method=forward, mutable=[COLLECTION]
    )[1]
    return Maps.of(state)

  return jax.eval_shape(run)


def address(p):
  return p.address.place, p.address.layer, p.address.part


def test_layers_come_in_order_and_parts_in_that_of_the_table():
  maps = published("deps_san+localness_query+dbsa", encoder_layers=11)
  weights = maps.find(place="encoder", kind="weight_BHQM")
  assert [address(p) for p in weights] == [
    ("encoder", i, "") for i in range(11)
  ]
  first = maps.find(place="encoder", layer=0)
  assert [(p.address.part, p.address.kind) for p in first] == [
    ("tree_scaled", "weighting_BHQM"),
    ("localness", "bias_BHQM"),
    ("dbsa", "log_parse_BQM"),
    ("dbsa", "parent_BQ"),
    ("", "weight_BHQM"),
  ]
  for place in ("decoder", "cross"):
    assert len(maps.find(place=place, part="", kind="weight_BHQM")) == 1
  assert len(maps.find(kind="log_parse_BQM")) == 2
  assert maps.find(place="cross", layer=1) == ()
  assert maps.at(Address("cross", 1, "", "weight_BHQM")) is None


def test_windows_of_a_recurrent_decoder_look_across():
  maps = published("gru_double_syntax")
  assert [address(p) for p in maps.published] == [
    ("cross", 0, "global"),
    ("cross", 0, "syntax"),
  ]


@pytest.mark.parametrize(
  "system", ["given_weighting", "dependency_relative_both", "context_deep"]
)
def test_kinds_say_their_axes(system):
  for p in published(system).published:
    assert len(split(p.address.kind)[1]) == p.value.ndim
