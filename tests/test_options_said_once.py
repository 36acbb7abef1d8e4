"""An option is said once, completely, and every door knows it."""

from __future__ import annotations

import ast
import collections
import dataclasses
import json
import pathlib
import re
import sys

import ml_collections
import pytest
from absl import flags
from ml_collections import config_flags
from test_options import TABLES

from jaxsyn import cli
from jaxsyn.config import Config, as_dict, read_config
from jaxsyn.configs import base, multi30k_en_de, quickstart, systems
from jaxsyn.errors import InputError
from jaxsyn.options import (
  ConfigPath,
  config_dict,
  describe,
  fields_of,
  from_config,
  metadata,
  neutral_options,
  resumable_options,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHOICES = [(table, name) for table in TABLES.values() for name in table]
ROWS = {row.name: row for row in describe(Config)}
OPTIONS = {name for name, row in ROWS.items() if not row.is_section}
NUMBERED = re.compile(r"\b(float|int) (from|above) \S+ (to|and)")


def sections(cls=Config):
  """A section, those in it, and the specs of all tables, with their bases."""
  for one in cls.__mro__:
    if dataclasses.is_dataclass(one):
      yield one
  for _, hint in fields_of(cls).values():
    if dataclasses.is_dataclass(hint):
      yield from sections(hint)
  if cls is Config:
    for table in TABLES.values():
      for spec in table.values():
        yield from sections(spec)


def test_no_field_is_said_twice():
  """None has name and meaning of another, but with another default."""
  by_text = collections.defaultdict(list)
  for cls in dict.fromkeys(sections()):
    bases = [b for b in cls.__mro__[1:] if dataclasses.is_dataclass(b)]
    for field in dataclasses.fields(cls):
      if field.name not in vars(cls).get("__annotations__", {}):
        continue
      expected = metadata(field)
      same = [b for b in bases if field.name in fields_of(b)]
      if same and expected is metadata(fields_of(same[0])[field.name][0]):
        base, hint = fields_of(same[0])[field.name]
        narrower = fields_of(cls)[field.name][1] != hint
        assert narrower or field.default != base.default
        continue
      by_text[field.name, expected.meaning].append(cls.__name__)
  assert len(by_text) > 130
  assert {t: c for t, c in by_text.items() if len(c) > 1} == {}


@pytest.fixture
def repeated(monkeypatch):
  """A function of what makes a config: the options it says as they are."""
  messages, edited, saved = [], set(), []
  plain = ml_collections.ConfigDict.__setitem__

  def watch(config, name, value):
    fields, at = dict(config.items()), (id(config), name)
    kinds = dict, ml_collections.ConfigDict, ml_collections.FieldReference
    if name in fields and not isinstance(value, kinds):
      if at not in edited and fields[name] == value:
        messages.append((name, value))
      edited.add(at)  # two systems in one may say the same
      saved.append(config)  # so that no other gets its id
    plain(config, name, value)

  def repeated(make):
    config = base.get_config()
    with monkeypatch.context() as patch:
      patch.setattr(ml_collections.ConfigDict, "__setitem__", watch)
      messages.clear()
      make(config)
    return list(messages)

  return repeated


def test_a_system_says_what_differs_from_the_defaults_alone(repeated):
  by_system = {n: repeated(make) for n, make in systems.SYSTEMS.items()}
  assert {n: values for n, values in by_system.items() if values} == {}
  for make in (quickstart, multi30k_en_de):
    message = repeated(lambda _, make=make: make.get_config())
    # Who it is, a data set says in any case.
    named = {"system", "source_language", "target_language"}
    assert {name for name, _ in message} <= named, message

  def wordy(config):
    config.model.transformer.heads = 4
    part = TABLES["parts.encoder"].section("parent_scaled", sigma=1.0)
    config.parts.encoder.parent_scaled = part

  assert repeated(wordy) == [("heads", 4), ("sigma", 1.0)]


def test_no_system_lists_options_in_a_literal():
  names = {name.rpartition(".")[2] for name in ROWS}
  files = list((ROOT / "configs").glob("*systems.py"))
  assert len(files) == 4
  for node in (n for f in files for n in ast.walk(ast.parse(f.read_text()))):
    keys = []
    if isinstance(node, ast.Dict):
      keys = [k.value for k in node.keys if isinstance(k, ast.Constant)]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
      keys = [k.arg for k in node.keywords]
    assert not names.intersection(keys), ast.unparse(node)


def test_every_option_says_all_of_itself():
  assert len(OPTIONS) > 200
  for name, row in ROWS.items():
    assert row.meaning.endswith("."), name
    if not row.is_section:
      assert row.type and row.default, name
    if row.type.startswith(("int", "float")):
      assert NUMBERED.search(row.type), (name, row.type)
    if row.unit:
      assert re.search("int|float", row.type), name


@pytest.mark.parametrize(("table", "name"), CHOICES)
def test_a_choice_reads_from_its_own_defaults(table, name):
  at = ConfigPath("config", table.kind)
  spec = from_config(table[name], config_dict(table[name]).to_dict(), at)
  assert spec == table[name]() == from_config(table[name], {}, at)
  assert table.name_of(spec) == name and table.check_name(name, at) == name
  assert table.section(name).to_dict() == config_dict(spec).to_dict()
  with pytest.raises(
    InputError, match=rf"^config\.{table.kind} has no {table.kind} '{name}x'\."
  ) as caught:
    table.check_name(name + "x", at)
  assert f"Did you mean {name!r}" in str(caught.value)
  for wrong in (None, 3, ("a",)):
    with pytest.raises(InputError, match=f"has no {table.kind}"):
      table.check_name(wrong, at)


@pytest.mark.parametrize(("where", "table"), TABLES.items())
def test_choices_stand_in_the_config_or_can_be_added(where, table):
  config = base.get_config()
  section = config
  for name in where.partition(",")[0].split("."):
    section = section[name]
  for name, spec in table.items():
    if table.kind in ("part", "window", "loss"):
      section[name] = table.section(name)
    elif fields_of(spec):
      assert section[name].to_dict() == config_dict(spec).to_dict()
  assert read_config(config)


def test_what_may_change_on_a_resume():
  free = {"data.directory", "data.citation", "data.homepage"}
  free |= {"prepare", "decode"}
  free.add("model.attention")
  free |= {
    f"train.{name}"
    for name in (
      *("steps", "minutes", "evaluate_every", "save_every", "keep"),
      *("log_every", "patience", "average", "parallelism", "mesh", "prefetch"),
      *("profile", "writers"),
      *("logits", "remat"),
    )
  }
  wanted = {
    name
    for name in ROWS
    if any(f"{name}.".startswith(f"config.{one}.") for one in free)
  }
  assert resumable_options(Config) == wanted
  assert len(wanted) > 40


def test_what_changes_no_figure():
  free = {
    name for name in neutral_options(Config) if "config.prepare." not in name
  }
  assert free == {
    *("config.prepare", "config.data.directory"),
    *("config.train.prefetch", "config.train.log_every"),
    *("config.train.profile", "config.data.citation", "config.data.homepage"),
    "config.train.writers",
    *(name for name in ROWS if name.startswith("config.train.writers.")),
  }
  assert free <= resumable_options(Config)


@pytest.fixture
def parse(monkeypatch):
  """The command line of a command with --config, parsed."""

  def parse(*words):
    argv = ["command", *words]
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", flag_values=values)
    monkeypatch.setattr(flags, "FLAGS", values)
    monkeypatch.setattr(sys, "argv", argv)
    return cli.parse(argv).config

  return parse


FILE = f"--config={ROOT}/configs/multi30k_en_de.py"


@pytest.mark.parametrize(
  ("word", "shown"),
  [
    ("--helpconfig", ("--config.seed=0", "--config.model.gru.hidden=256")),
    ("--helpconfig=optimiser", ("--config.optimiser.noam.warmup=1000 updates",)),
    ("--helpconfig=config.decode", ("--config.decode.beam=5",)),
    ("-helpconfig=parts.encoder.localness", ("config.parts.encoder.localness",)),
  ],
)  # fmt: skip
def test_help_of_options_is_printed(parse, capsys, word, shown):
  with pytest.raises(SystemExit) as stopped:
    parse(word)
  assert stopped.value.code == 0
  printed = capsys.readouterr().out
  assert all(one in printed for one in shown)
  assert ("--config.seed" in printed) == (word == "--helpconfig")


@pytest.mark.parametrize(
  ("words", "shown"),
  [
    ((), "--config.train.ema=0.998  (float from 0 to below 1; by default 0.0)"),
    (
      ("--config.train.ema=0",),
      "--config.train.ema=0.0  (float from 0 to below",
    ),
  ],
)
def test_help_of_options_has_what_a_file_says(parse, capsys, words, shown):
  with pytest.raises(SystemExit):
    parse("--helpconfig=train.ema", FILE, *words)
  assert capsys.readouterr().out.startswith(shown)


@pytest.mark.parametrize(
  ("word", "message"),
  [
    ("optimizer", "--helpconfig=optimizer: .*Did you mean 'optimiser'"),
  ],
)
def test_help_of_no_section_guesses(parse, word, message):
  with pytest.raises(InputError, match=message):
    parse(f"--helpconfig={word}")


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (
      [FILE, "--config.optimiser.noam.warmup=5"],
      "config.optimiser.noam.warmup counts only where "
      "config.optimiser.schedule is 'noam'; here it is 'inverse_sqrt'. ",
    ),
    (
      [FILE, "--config.model.gru.hidden=8"],
      "config.model.gru.hidden counts only where config.model.family is "
      "'gru'; here it is 'transformer'. ",
    ),
    (
      [FILE + ":gru_global", "--config.model.transformer.heads=8"],
      "config.model.transformer.heads counts only where "
      "config.model.family is 'transformer'; here it is 'gru'. ",
    ),
    (
      [FILE, "--config.optimiser.name=adadelta", "--config.optimiser.adam.beta1=.5"],
      "config.optimiser.adam.beta1 counts only where "
      "config.optimiser.name is 'adam'; here it is 'adadelta'. ",
    ),
    (  # which has no option, so no section
      [FILE, "--config.optimiser.schedule=constant", "--config.optimiser.noam.warmup=5"],
      "config.optimiser.noam.warmup counts only where "
      "config.optimiser.schedule is 'noam'; here it is 'constant'. ",
    ),
  ],
)  # fmt: skip
def test_an_option_of_what_was_not_chosen_is_refused(parse, words, message):
  with pytest.raises(InputError, match="^" + re.escape(message)):
    parse(*words)


def test_options_of_what_was_chosen_count_whatever_their_order(parse):
  config = parse(
    FILE, "--config.optimiser.noam.warmup=5", "--config.optimiser.schedule=noam"
  )
  assert read_config(config).optimiser.schedule.warmup == 5
  config = parse(FILE + ":gru_global", "--config.model.gru.hidden=8")
  assert read_config(config).model.family.hidden == 8


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_every_config_goes_through_json_and_back(system):
  config = read_config(multi30k_en_de.get_config(system))
  assert read_config(json.loads(json.dumps(as_dict(config)))) == config
