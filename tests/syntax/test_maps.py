"""What is published has the address of where it was made."""

import itertools

import jax
import pytest
from models_under_test import batch_of, plan_of, sentence

from jaxsyn.errors import InputError
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
  assert [
    part for part, _ in itertools.groupby(p.address.part for p in first)
  ] == ["tree_scaled", "localness", "dbsa", ""]
  made = {(p.address.part, p.address.kind) for p in first}
  assert made >= {
    ("tree_scaled", "weighting_BHQM"),
    ("localness", "bias_BHQM"),
    ("dbsa", "log_parse_BQM"),
    ("dbsa", "parent_BQ"),
    ("", "weight_BHQM"),
  }
  for place in ("decoder", "cross"):
    assert len(maps.find(place=place, part="", kind="weight_BHQM")) == 1
  assert len(maps.find(kind="log_parse_BQM")) == 2
  with pytest.raises(InputError) as caught:
    maps.find(place="cross", layer=1)
  message = str(caught.value)
  assert message.startswith(
    "a reader reads the map place='cross', layer=1, which"
  )
  assert "There are: place='encoder', part='tree_scaled', kind='weig" in message
  assert (
    "part='', kind='weight_BHQM' of layer 0, 1, 2, 3, 4, 5, 6, 7" in message
  )
  with pytest.raises(InputError, match="layer=1, part='', kind='weight_BHQM'"):
    maps.at(Address("cross", 1, "", "weight_BHQM"))


def test_windows_of_a_recurrent_decoder_look_across():
  weights = published("gru_double_syntax").find(kind="weight_BTS")
  assert [address(p) for p in weights] == [
    ("cross", 0, "global"),
    ("cross", 0, "syntax"),
  ]


@pytest.mark.parametrize(
  "system", ["given_weighting", "dependency_relative_both", "context_deep"]
)
def test_kinds_say_their_axes_and_every_address_is_of_one_array(system):
  maps = published(system).published
  for p in maps:
    assert len(split(p.address.kind)[1]) == p.value.ndim
  assert len({p.address for p in maps}) == len(maps)
