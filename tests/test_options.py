"""Every value that a config can hold is in its bounds, or is named."""

import copy
import dataclasses
import math
import random
import typing

import pytest

from jaxsyn.comparison import results
from jaxsyn.config import Config, read_config
from jaxsyn.configs import base, multi30k_en_de, systems
from jaxsyn.data.sentence.parsers import PARSERS
from jaxsyn.decode.strategies import STRATEGIES, Decode
from jaxsyn.errors import InputError
from jaxsyn.models.architectures import ARCHITECTURES
from jaxsyn.options import (
  CHECKPOINT_MODE,
  ConfigPath,
  Range,
  Registry,
  fields_of,
  from_config,
  metadata,
  range_of,
)
from jaxsyn.plan import resolve
from jaxsyn.syntax import MODIFIERS, WINDOWS
from jaxsyn.training.losses import LOSSES
from jaxsyn.training.optimiser import OPTIMIZERS
from jaxsyn.training.schedules import SCHEDULES

TABLES: dict[str, Registry] = {
  "parts.encoder": MODIFIERS,
  "model.gru.windows": WINDOWS,
  "losses": LOSSES,
  "model": ARCHITECTURES,
  "optimiser": OPTIMIZERS,
  "optimiser, too": SCHEDULES,
  "decode": STRATEGIES,
  "prepare.parse.source": PARSERS,
}
SIDE = {"size": 100, "sha256": "a"}
MANIFEST = {
  "sides": ["source", "target"],
  "vocabulary": {"source": SIDE, "target": SIDE},
  "relations": {"source": ["det", "obj"], "target": ["det"]},
}
HUGE = (10**18, -(10**18), 10**5000, 1e300, -1e300)
NOT_NUMBERS = (math.nan, math.inf, -math.inf, True, "1", None, (1,), {"a": 1})


def numbers(cls, path=()):
  """(dotted path, bare type, Range or None) of every number below a section."""
  for name, (field, hint) in fields_of(cls).items():
    form, current = None, (*path, name)
    if typing.get_origin(hint) is typing.Annotated:
      hint, form = hint.__origin__, hint.__metadata__[0]
    if chooser := metadata(field).choice_field:
      for one, spec in chooser.siblings().items():
        yield from numbers(spec, (*path, one))
    elif dataclasses.is_dataclass(hint):
      yield from numbers(hint, current)
    elif hint in (int, float):
      yield current, hint, form


def chosen(path):
  """The fields that are to be set for a section to count: path -> choice."""
  cls, choices = Config, {}
  for i, name in enumerate(path[:-1]):
    for field, (value, hint) in fields_of(cls).items():
      chooser = metadata(value).choice_field
      if chooser and name in chooser.siblings():
        choices[*path[:i], field] = name
        inner = chooser.siblings()[name]
      elif field == name:
        inner = hint
    cls = inner
  return choices


FIELDS = list(numbers(Config))


def changed(path, value):
  config = base.get_config().to_dict()
  for at, new in (chosen(path) | {tuple(path): value}).items():
    section = config
    for name in at[:-1]:
      section = section[name]
    section[at[-1]] = new
  return config


def value_at(config, path):
  """What a checked config holds; the spec of a choice is at the choosing field."""
  choices = {(*at[:-1], name): at[-1] for at, name in chosen(path).items()}
  for i, name in enumerate(path):
    config = getattr(config, choices.get(tuple(path[: i + 1]), name))
  return config


def test_the_config_has_numbers_and_each_says_its_bounds():
  assert len(FIELDS) > 60
  assert [".".join(path) for path, _, form in FIELDS if form is None] == []


@pytest.mark.parametrize(
  ("path", "kind", "form"), FIELDS, ids=[".".join(p) for p, _, _ in FIELDS]
)
def test_a_number_is_in_its_bounds_or_named(path, kind, form):
  dotted = "config." + ".".join(path)

  def refused(value):
    with pytest.raises(InputError) as caught:
      read_config(changed(path, value))
    assert str(caught.value).startswith(f"{dotted} must be "), caught.value
    assert len(str(caught.value)) < 300

  for value in (*HUGE, *NOT_NUMBERS):
    refused(value)
  outside = [form.low, form.high] if kind is float else []
  if not form.above:
    outside += [form.low - 1 if form.low - 1 != form.also else form.low - 2]
  if not form.below:
    outside += [form.high + 1]
  for value in outside:
    if value not in form:
      refused(value)
  inside = [v for v in (form.low, form.high, form.also) if v is not None]
  for value in (v for v in inside if v in form and isinstance(v, int)):
    loaded = value_at(read_config(changed(path, value)), path)
    assert loaded == value and type(loaded) is kind


@pytest.mark.parametrize(
  ("path", "value", "message"),
  [
    ("prepare.parse.source.udpipe.beam", -1, "from 0 to 100, got -1"),
    ("seed", -1, r"from 0 to 4,294,967,295, got -1"),
    ("seed", int("9" * 20), "from 0 to 4,294,967,295, got 9{20}"),
    ("decode.max_length_factor", -1, "from 0 to 1,000, got -1"),
    ("train.validation_sentences", -4, "from 0 to"),
    ("optimiser.adam.beta1", 2, "from 0 to below 1, got 2"),
    ("optimiser.adam.epsilon", -1, "from 1e-30 to 1, got -1"),
    ("prepare.clean.max_ratio", math.nan, "from 0 to 1,000,000, got nan"),
    ("prepare.clean.max_words", -3, "from 0 to"),
    ("train.mesh.data", 0, "from 1 to 65,536, or -1, got 0"),
    ("train.mesh.fsdp", -2, "from 1 to 65,536, or -1, got -2"),
    ("optimiser.learning_rate", 0, "above 0 and up to 1,000,000, got 0"),
    ("data.directory", "", "the name of a folder, got ''"),
    ("data.source_language", "../en", "a language's code"),
    ("data.train", "", "1 to 200 characters"),
    ("prepare.raw_dir", "a\0b", r"the control character '\\x00'"),
    ("data.directory", "caf\udce9", "is not UTF-8"),
    ("system", "x" * 10**6, "1 to 200 characters"),
    ("prepare.vocabulary.type", "wordpiece", "must be .* got 'wordpiece'"),
    ("prepare.vocabulary.normalisation", "nfd", "must be .* got 'nfd'"),
    ("decode.checkpoint", ["best"], "must be one of 'best', 'last'"),
    ("prepare.splits", {"a\nb": ("a", "b")}, "a name in .*control character"),
    ("prepare.splits", {3: ("a", "b")}, "a name in .* type str, got 3"),
    ("losses", {3: {}}, "config.losses has no loss 3"),
    ("model", {3: 4}, "config.model has no option 3"),
  ],
)
def test_what_was_a_traceback_a_hang_or_taken_is_named(path, value, message):
  with pytest.raises(InputError, match=message):
    read_config(changed(path.split("."), value))


def test_no_output_without_room():
  config = base.get_config()
  config.decode.update(max_length_factor=0.0, max_length_offset=0)
  with pytest.raises(InputError, match="no output has room"):
    resolve(read_config(config), MANIFEST)


@pytest.mark.parametrize(
  ("where", "name", "kind"),
  [
    (where, name, kind)
    for where, table in TABLES.items()
    for name, kind in table.items()
  ],
)
def test_options_of_choices_are_finite(where, name, kind):
  present = ConfigPath("config", where, name)
  for (field,), index, form in numbers(kind):
    assert form is not None
    far = [v for v in HUGE if index is int or abs(v) > 1e39]
    for value in (*far, *NOT_NUMBERS):
      with pytest.raises(InputError, match=rf"^{present}.{field} must be"):
        from_config(kind, {field: value}, present)
  if "layers" in fields_of(kind):
    with pytest.raises(InputError, match=rf"^{present}.layers\[1\] must be"):
      from_config(kind, {"layers": (0, 10**18)}, present)


def test_smoothing_leaves_something_to_the_gold_subword():
  config = base.get_config()
  config.losses.nll.smoothing = 2.0
  with pytest.raises(
    InputError, match=r"nll\.smoothing must be from 0 to below"
  ):
    resolve(read_config(config), MANIFEST)


def test_what_was_measured_may_be_anything():
  values = {"loss": math.nan}
  point = {"step": 10**12, "minutes": math.inf, "values": values}
  result = from_config(
    results.Point, point, ConfigPath("point"), CHECKPOINT_MODE
  )
  assert result.step == 10**12 and math.isnan(result.values["loss"])


def test_bounds_can_be_asked_for_and_read_well():
  assert range_of(Decode, "beam") == Range(1, 1000)
  assert str(Range(0, 1, above=True, below=True)) == "above 0 and below 1"


def leaves(section, path=()):
  for name, value in section.items():
    yield (*path, name)
    if isinstance(value, dict):
      yield from leaves(value, (*path, name))


ODD = (
  *(math.nan, math.inf, -math.inf, 10**18, -(10**18), -1, 0, 1, 2, 3, 0.5, 1.0),
  *("", "\0", "a\nb", "\ud800", "none", "adam", "x" * 5000, b"x", None, True),
  *((), [], (0, 1), (-1,), ("a",), ((),), {}, {"": 1}, {1: {}}, {"nll": 3}),
  *({"localness": {}}, {"tree_scaled": {"sigma": math.nan}}, object()),
)


def test_mutated_configs_are_read_or_refused():
  """Two random fields of a random system; the rest of the config is good."""
  draw = random.Random(4)
  plain = [
    multi30k_en_de.get_config(name).to_dict() for name in systems.SYSTEMS
  ]
  matched = rejected = 0
  for _ in range(1500):
    config = copy.deepcopy(draw.choice(plain))
    for path in draw.sample(list(leaves(config)), draw.choice((1, 1, 2))):
      section = config
      for name in path[:-1]:
        section = section.get(name) if isinstance(section, dict) else None
      if not isinstance(section, dict) or path[-1] not in section:
        continue  # the other change took it away
      same = [v for v in ODD if type(v) is type(section[path[-1]])]
      odd = same if same and draw.random() < 0.7 else ODD
      section[path[-1]] = draw.choice(odd)
    try:
      resolve(read_config(config), MANIFEST)
      matched += 1
    except InputError as error:
      assert "config" in str(error), error
      rejected += 1
  assert matched > 100 and rejected > 500, (matched, rejected)


def test_an_option_set_to_none_can_still_be_set():
  """As a system that takes all heads, and a command line that takes one."""
  section = MODIFIERS.section("parent_scaled", heads=None)
  assert section.heads is None
  section.heads = (2,)
  assert section.heads == (2,)
