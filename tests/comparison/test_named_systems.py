"""Systems of a comparison, named on the command line."""

import pathlib
import re
import sys

import pytest
from absl import flags
from ml_collections import config_flags

from jaxsyn import cli
from jaxsyn.comparison import named_systems
from jaxsyn.comparison.analysis import control_of
from jaxsyn.config import as_dict
from jaxsyn.configs import base
from jaxsyn.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def given(monkeypatch):
  """A function: command line -> systems."""

  def make(*words, config="quickstart.py"):
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", flag_values=values)
    flags.DEFINE_multi_string("systems", [], "", flag_values=values)
    argv = ["compare", "--config", str(ROOT.joinpath("configs", config))]
    argv += words
    monkeypatch.setattr(sys, "argv", argv)  # overrides are read from it
    monkeypatch.chdir(ROOT)
    values(argv)
    return named_systems.read(values)[0]

  return make


def test_an_ablation_table_is_a_list_of_systems(given):
  systems = given("--systems=pascal/layers", "--config.model.width=64")
  assert [s.name for s in systems] == [f"layer_{k}" for k in range(1, 7)]
  third = systems[2]
  assert third.config.system == "pascal_ignoring"
  assert third.config.model.width == 64
  assert dict(third.config.parts.encoder)["parent_scaled"].layers == (2,)
  assert third.published["nc11_en_de validation"] == 22.5


def test_a_table_on_the_task_of_its_paper_has_its_settings(given):
  """Seven heads, q = 0.3, and a learning rate for each system."""
  task = {"config": "papers/pascal.py:wmt18_en_tr"}
  plain, ignoring = (
    system.config
    for system in given("--systems=transformer,pascal_ignoring", **task)
  )
  assert plain.data == ignoring.data
  assert plain.data.name == "paper_pascal_wmt18_en_tr"
  rates = [c.optimiser.learning_rate for c in (plain, ignoring)]
  assert rates == [1e-3, 7e-4]
  last = given("--systems=pascal/layers", **task)[-1].config
  part = dict(last.parts.encoder)["parent_scaled"]
  assert (part.layers, part.heads) == ((5,), tuple(range(7)))
  assert part.ignore == 0.3
  assert last.optimiser == ignoring.optimiser
  with pytest.raises(InputError, match=r"wmt18_en_tr:pascal names a system"):
    given("--systems=pascal", config=task["config"] + ":pascal")


def test_a_config_anywhere_has_the_tables_of_papers(given, tmp_path):
  mine = tmp_path / "mine.py"
  mine.write_text((ROOT / "configs" / "multi30k_de_en.py").read_text())
  systems = given("--systems=pascal/layers", config=str(mine))
  assert [s.name for s in systems] == [f"layer_{k}" for k in range(1, 7)]


def test_options_of_one_system(given):
  systems = given(
    "--systems=transformer,dasa",
    "--systems=random=dasa,data.tree=random",
    "--systems=two=distilled,losses.distillation.heads=(2, 3),"
    "losses.distillation.teacher=runs/a,train.freeze=('encoder',),"
    "optimiser.learning_rate=1",
    "--systems=quoted=pascal,train.start.run='runs/a,b'",
    "--config.train.steps=7",
  )
  configs = {s.name: s.config for s in systems}
  assert [*configs] == ["transformer", "dasa", "random", "two", "quoted"]
  assert {config.train.steps for config in configs.values()} == {7}
  plain = {name: as_dict(config) for name, config in configs.items()}
  controlled = {name: control_of(name, plain) for name in plain}
  assert controlled == {**dict.fromkeys(plain, ""), "random": "dasa"}
  loss = dict(configs["two"].losses)["distillation"]
  assert (loss.heads, loss.teacher) == ((2, 3), "runs/a")
  assert configs["two"].train.freeze == ("encoder",)
  assert configs["two"].optimiser.learning_rate == 1.0
  assert configs["quoted"].train.start.run == "runs/a,b"
  assert configs["dasa"].data.tree == configs["two"].data.tree


def test_parses_systems():
  text = "a,x=b+c,data.tree=random,train.steps=9,d+e"
  text += ",y=a, train.freeze=('b,c', 'd'), train.start.run='e,f'"
  parsed = named_systems.parse([text, "f"])
  assert [(s.name, s.system, s.options) for s in parsed] == [
    ("a", "a", {}),
    ("x", "b+c", {"data.tree": "random", "train.steps": "9"}),
    ("d+e", "d+e", {}),
    ("y", "a", {"train.freeze": "('b,c', 'd')", "train.start.run": "'e,f'"}),
    ("f", "f", {}),
  ]
  assert named_systems.table_of([text]) == ""
  assert named_systems.table_of(["my/file.py/rows"]) == "my/file.py/rows"


@pytest.mark.parametrize(
  ("words", "message"),
  [
    ("pascal --config.seed=3", "config.seed is set by --seeds"),
    (
      "pascal_random_tree --config.data.tree=linear",
      "pascal_random_tree is pascal_random_tree because it has config.data.tree"
      "='random'",
    ),
    (
      "pascal --systems=pascal=dasa,data.tree=random",
      "names one twice: pascal, pascal",
    ),
    ("x=dasa", "'x=dasa' has no option; it must be SYSTEM, NAME=SYSTEM,OPTION"),
    ("../x=dasa,data.tree=linear", "must be SYSTEM, NAME"),
    ("pascal,", "'' must be SYSTEM, NAME"),
    (
      "x=dasa,parts.encoder.dasa.width=9",
      "--systems x: config.parts.encoder.dasa has no option 'width'",
    ),
    (
      "x=dasa,train.steps=many",
      "--systems x: config.train.steps cannot be 'many'",
    ),
    (
      "x=dasa,train.steps=9 --config.train.steps=8",
      "is for all systems, and --systems x sets it too",
    ),
    ("pascall", "no system 'pascall'"),
    (
      "x=dasa,train.steps=9,pascal,data.tree=random",
      "'data.tree=random' is an option of no system",
    ),
    (
      "pascal/layers,pascal",
      "pascal/layers is a table, which cannot be compared together",
    ),
    (
      "pascals/layer",
      "no paper has a table 'pascals/layer'. Did you mean 'pascal/layers'",
    ),
    (
      "pascal/layer",
      "papers/pascal.py has no table 'layer'. Did you mean 'layers'",
    ),
    (
      "dependency_relative/keys_values"
      " --config.model.transformer.positions=false",
      "positions is what the table varies",
    ),
  ],
)
def test_rejects_invalid_command_lines(given, words, message):
  first, *rest = words.split(" ")
  with pytest.raises(InputError, match=message):
    given(f"--systems={first}", *rest)


def test_rejects_a_command_line_without_systems(given):
  with pytest.raises(InputError, match="--systems is missing: SYSTEM, NAME="):
    given()


def test_error_explains_how_to_set_an_option_of_one_system():
  config, path = base.get_config(), "parts.encoder.dasa.strength"
  message = f'set it for one: --systems "NAME=SYSTEM,{path}='
  with pytest.raises(InputError, match=re.escape(message)):
    cli.check_option(config, path, multiple=True)
