"""Tests options: their bounds, registries, help texts and validation."""

import copy
import dataclasses
import math
import random
import re
import typing

import pytest

from jaxsyn.comparison import results
from jaxsyn.config import Config, as_dict, read_config
from jaxsyn.configs import base, multi30k_en_de, systems
from jaxsyn.data.sentence.parsers import PARSERS
from jaxsyn.decode.strategies import STRATEGIES
from jaxsyn.errors import InputError
from jaxsyn.models.architectures import ARCHITECTURES
from jaxsyn.options import (
  CHECKPOINT_MODE,
  ROOT,
  Choice,
  ConfigPath,
  Range,
  Registry,
  choice,
  config_dict,
  describe,
  fields_of,
  from_config,
  metadata,
  neutral_options,
  option,
  resumable_options,
  unused_option_error,
  with_default,
)
from jaxsyn.options.bounds import Count
from jaxsyn.plan import resolve
from jaxsyn.syntax import MODIFIERS, WINDOWS
from jaxsyn.training.losses import LOSSES
from jaxsyn.training.optimizers import OPTIMIZERS
from jaxsyn.training.schedules import SCHEDULES

# Section of the config -> registry of the choices in it.
TABLES: dict[str, Registry] = {
  "parts.encoder": MODIFIERS,
  "model.gru.windows": WINDOWS,
  "losses": LOSSES,
  "model": ARCHITECTURES,
  "optimiser": OPTIMIZERS,
  "optimiser, schedules": SCHEDULES,
  "decode": STRATEGIES,
  "prepare.parse.source": PARSERS,
}
ROWS = {row.name: row for row in describe(Config)}
SIDE = {"size": 100, "sha256": "a"}
MANIFEST = {
  "sides": ["source", "target"],
  "vocabulary": {"source": SIDE, "target": SIDE},
  "relations": {"source": ["det", "obj"], "target": ["det"]},
}
HUGE = (10**18, -(10**18), 1e300, -1e300)
NOT_NUMBERS = (math.nan, math.inf, -math.inf, True, "1", None, (1,), {"a": 1})


def sections(cls, path):
  """Yields (path, class) of a section, its sections and all their choices."""
  yield path, cls
  for name, (field, hint) in fields_of(cls).items():
    if registry := metadata(field).registry:
      for key, choice_cls in registry.items():
        yield from sections(choice_cls, path / name / key)
    elif dataclasses.is_dataclass(hint):
      yield from sections(hint, path / name)


def numbers(cls):
  """Yields (name, type, Range or None) of the numbers of a section."""
  for name, (_, hint) in fields_of(cls).items():
    bounds = None
    if typing.get_origin(hint) is typing.Annotated:
      hint, bounds = hint.__origin__, hint.__metadata__[0]
    if hint in (int, float):
      yield name, hint, bounds


def outside(kind, bounds):
  """Returns values that a number of a type with bounds must not have."""
  values = [*HUGE, *NOT_NUMBERS]
  values += [bounds.low, bounds.high] if kind is float else []
  values += [] if bounds.above else [bounds.low - 1, bounds.low - 2]
  values += [] if bounds.below else [bounds.high + 1]
  return [v for v in values if type(v) not in (int, float) or v not in bounds]


def changed(path, value):
  """Returns the base config as a dict, with another value of one option."""
  config = base.get_config().to_dict()
  section = config
  for name in path[:-1]:
    section = section[name]
  section[path[-1]] = value
  return config


@pytest.mark.parametrize(
  ("bounds", "inside", "outside"),
  [
    (Range(0, 1), (0, 0.5, 1), (-1e-9, 1.1, math.nan)),
    (Range(0, 1, above=True), (1e-9, 1), (0, -1, 1.1)),
    (Range(0, 1, below=True), (0, 0.999), (-1, 1)),
    (Range(1, 3, also=-1), (-1, 1, 3), (-2, 0, 4)),
  ],
)
def test_bounds_of_ranges(bounds, inside, outside):
  assert all(value in bounds for value in inside)
  assert not any(value in bounds for value in outside)


def test_numbers_have_bounds():
  for path, cls in sections(Config, ROOT):
    for name, kind, bounds in numbers(cls):
      assert bounds is not None, path / name
      for value in outside(kind, bounds):
        with pytest.raises(InputError) as caught:
          from_config(cls, {name: value}, path)
        message = str(caught.value)
        assert message.startswith(f"{path / name} must be "), message
        assert len(message) < 300
      for value in (bounds.low, bounds.high, bounds.also):
        if isinstance(value, int) and value in bounds:
          loaded = getattr(from_config(cls, {name: value}, path), name)
          assert loaded == value and type(loaded) is kind


@pytest.mark.parametrize(
  ("path", "value", "message"),
  [
    ("seed", int("9" * 20), "from 0 to 4,294,967,295, got 9{20}"),
    ("train.mesh.fsdp", 0, "from 1 to 65,536, or -1, got 0"),
    ("data.directory", "", "the name of a folder, got ''"),
    ("data.source_language", "../en", "a language's code"),
    ("data.train", "", "1 to 200 characters"),
    ("prepare.raw_dir", "a\0b", r"the control character '\\x00'"),
    ("data.directory", "caf\udce9", "is not UTF-8"),
    ("system", "x" * 10**6, "1 to 200 characters"),
    ("prepare.vocabulary.type", "wordpiece", "must be .* got 'wordpiece'"),
    ("prepare.splits", {"a\nb": ("a", "b")}, "a name in .*control character"),
    ("losses", {3: {}}, "config.losses has no loss 3"),
    ("model", {3: 4}, "config.model has no option 3"),
    ("model.widht", 3, "config.model has no option 'widht'. .* 'width'"),
    ("modle", {}, "config has no option 'modle'. Did you mean 'model'"),
    ("model.width", True, "config.model.width must be of type int, got True"),
    ("prepare.splits", {"train": 3}, "config.prepare.splits.train must be"),
    ("data.test", ("a", 3), r"config.data.test\[1\] must be of type str"),
    ("train", 7, "config.train must be a section, got 7"),
    ("decode.sample.top_p", 2.0, "config.decode.sample.top_p must be from 0"),
    ("losses", {"nll": {"smoothing": 2.0}}, "losses.nll.smoothing must be"),
  ],
)
def test_invalid_values_are_named(path, value, message):
  with pytest.raises(InputError, match=message):
    read_config(changed(path.split("."), value))


def test_missing_options_have_their_defaults_and_none_can_be_replaced():
  config = base.get_config()
  expected = read_config(config)
  assert read_config(as_dict(expected)) == expected
  del config.train.steps, config.optimiser.name, config.losses
  assert read_config(config) == expected
  integer = changed(("model", "transformer", "dropout"), 0)
  assert read_config(integer).model.family.dropout == 0.0
  section = MODIFIERS.section("parent_scaled", heads=None)
  assert section.heads is None
  section.heads = (2,)
  assert section.heads == (2,)


def test_recorded_values_have_no_default_bounds():
  point = {"step": 10**12, "minutes": math.inf, "values": {"loss": math.nan}}
  path = ConfigPath("point")
  result = from_config(results.Point, point, path, CHECKPOINT_MODE)
  assert result.step == 10**12 and math.isnan(result.values["loss"])


def leaves(section, path=()):
  for name, value in section.items():
    yield (*path, name)
    if isinstance(value, dict):
      yield from leaves(value, (*path, name))


ODD = [*HUGE[:2], *NOT_NUMBERS, -1, 0, 1, 2, 3, 0.5, 1.0, (), [], (0, 1), (-1,)]
ODD += ["", "\0", "a\nb", "\ud800", "none", "adam", "x" * 5000, b"x", ("a",)]
ODD += [((),), {}, {"": 1}, {1: {}}, {"nll": 3}, {"localness": {}}, object()]
ODD += [{"tree_scaled": {"sigma": math.nan}}]


def test_mutated_configs_are_read_or_rejected():
  """Changes one or two random options of a random system."""
  draw = random.Random(4)
  plain = [
    multi30k_en_de.get_config(name).to_dict() for name in systems.SYSTEMS
  ]
  accepted = rejected = 0
  for _ in range(400):
    config = copy.deepcopy(draw.choice(plain))
    for path in draw.sample(list(leaves(config)), draw.choice((1, 1, 2))):
      section = config
      for name in path[:-1]:
        section = section.get(name) if isinstance(section, dict) else None
      if not isinstance(section, dict) or path[-1] not in section:
        continue  # the other change removed it
      same = [v for v in ODD if type(v) is type(section[path[-1]])]
      odd = same if same and draw.random() < 0.7 else ODD
      section[path[-1]] = draw.choice(odd)
    try:
      resolve(read_config(config), MANIFEST)
      accepted += 1
    except InputError as error:
      assert "config" in str(error), error
      rejected += 1
  assert accepted > 30 and rejected > 130, (accepted, rejected)


@dataclasses.dataclass(frozen=True)
class Square(Choice):
  width: Count = option(3, "Width.")
  margin: Count = option(1, "Margin.")


@dataclasses.dataclass(frozen=True)
class Rectangle(Square):
  margin: Count = with_default(Square, "margin", 2)
  height: Count = option(5, "Height.")


@dataclasses.dataclass(frozen=True)
class Figure:
  form: Square = choice(
    Registry("form", {"square": Square, "rectangle": Rectangle}),
    "square",
    "Form of the figure.",
  )


def test_inherited_options_follow_those_of_the_base():
  config = config_dict(Figure)
  config.square.update(width=7, margin=9)
  assert config.rectangle.to_dict() == {"width": 7, "margin": 2, "height": 5}
  config.rectangle.width = 8
  assert config.square.width == 7
  assert not unused_option_error(Figure, config, "square.margin")
  message = "config.rectangle.height counts only where config.form is"
  assert message in unused_option_error(Figure, config, "rectangle.height")
  config.form = "rectangle"
  assert not unused_option_error(Figure, config, "square.width")
  assert unused_option_error(Figure, config, "square.margin")
  figure = from_config(Figure, config.to_dict(), ConfigPath("figure"))
  assert figure == Figure(Rectangle(width=8, height=5))


def test_descriptions_of_options_are_complete():
  for name, row in ROWS.items():
    assert row.meaning.endswith("."), name
    assert row.is_section or (row.type and row.default), name
    if row.type.startswith(("int", "float")):
      bounds = r"\b(float|int) (from|above|at least) \S+ (to|and)"
      assert re.search(bounds, row.type), (name, row.type)
    assert not row.unit or re.search("int|float", row.type), name


@pytest.mark.parametrize("where", TABLES)
def test_registered_choices(where):
  for name, cls in TABLES[where].items():
    check_choice(where, name, cls)


def check_choice(where, name, cls):
  table, config = TABLES[where], base.get_config()
  path = ConfigPath("config", where, name)
  defaults = config_dict(cls)
  spec = from_config(cls, defaults.to_dict(), path)
  assert spec == cls() == from_config(cls, {}, path)
  assert table.name_of(spec) == name == table.check_name(name, path)
  assert table.section(name).to_dict() == defaults.to_dict()
  with pytest.raises(InputError, match=f"has no {table.kind} '{name}x'") as e:
    table.check_name(name + "x", path)
  assert f"Did you mean {name!r}" in str(e.value)
  section = config
  for part in where.partition(",")[0].split("."):
    section = section[part]
  if table.kind in ("modifier", "window", "loss"):
    section[name] = table.section(name)
    assert read_config(config)
  elif fields_of(cls):
    assert section[name].to_dict() == defaults.to_dict()
  if "layers" in fields_of(cls):
    with pytest.raises(InputError, match=rf"^{path}.layers\[1\] must be"):
      from_config(cls, {"layers": (0, 10**18)}, path)


def test_options_that_a_resumed_run_may_change():
  neutral = "prepare data.directory train.log_every train.profile train.writers"
  resumable = f"""{neutral} decode model.attention train.steps train.minutes
  train.evaluate_every train.save_every train.keep train.patience train.average
  train.parallelism train.mesh train.logits train.remat"""
  for options, names in (
    (resumable_options(Config), resumable),
    (neutral_options(Config), neutral),
  ):
    prefixes = tuple(f"config.{name}." for name in names.split())
    assert options == {n for n in ROWS if f"{n}.".startswith(prefixes)}
