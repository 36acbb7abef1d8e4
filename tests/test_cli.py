"""Tests command lines: their parsing, help, errors and exit statuses."""

import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest
from absl import flags
from command_flags import defined
from ml_collections import config_flags

import jaxsyn
from jaxsyn import __main__ as main
from jaxsyn import cli, commands
from jaxsyn.commands import COMMANDS
from jaxsyn.config import read_config
from jaxsyn.errors import InputError
from jaxsyn.utils import addresses

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = f"--config={ROOT}/configs/multi30k_en_de.py"
EMA = "--config.train.ema"


@pytest.fixture
def parse(monkeypatch):
  """Returns a function that parses the command line of a command."""

  def parse(*words):
    argv = ["command", *words]
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", flag_values=values)
    flags.DEFINE_string("raw_dir", "x", "A folder.", flag_values=values)
    monkeypatch.setattr(flags, "FLAGS", values)
    monkeypatch.setattr(sys, "argv", argv)
    return cli.parse(argv)

  return parse


@pytest.mark.parametrize(
  ("words", "system", "width", "raw_dir"),
  [
    ([CONFIG], "transformer", 128, "x"),
    ([CONFIG + ":pascal", "--raw_dir=y"], "pascal", 128, "y"),
    (["--config", CONFIG[9:], "--config.model.width=8"], "transformer", 8, "x"),
    (["--config", "multi30k_en_de:pascal"], "pascal", 128, "x"),
    (["--config=papers/pascal:nc11_en_de"], "transformer", 512, "x"),
  ],
)
def test_parses_configs_and_overrides(parse, words, system, width, raw_dir):
  values = parse(*words)
  config = values.config
  assert (config.system, config.model.width) == (system, width)
  assert values.raw_dir == raw_dir


@pytest.mark.parametrize(
  ("words", "message"),
  [
    ([], "--config is missing: name settings or a file, as in --config multi30k_en_de:pascal."),
    ([CONFIG, "--config.model.widht=3"], "config.model has no option 'widht'. Did you mean 'width'?"),
    ([CONFIG, "--config.seed.x=3"], "config.seed is a value and has no option 'x'."),
    ([CONFIG, "--config.prepare.clean.max_words=abc"], "flag --config.prepare.clean.max_words=abc: "),
    ([CONFIG + ":pascall"], "no system 'pascall' (the part after ':' in --config). Did you mean 'pascal'?"),
    (["--config=configs/nope.py"], "no config file 'configs/nope.py'."),
    (["--config=multi30k_ende:pascal"], "no config file 'multi30k_ende'. Did you mean 'multi30k_en_de'?"),
    (["--config=pud.py"], "no config file 'pud.py'. The settings of this name that come with jaxsyn are --config pud."),
    (["--config.seed=3", CONFIG], "--config.seed=3 must come after --config FILE."),
    ([CONFIG, "--raw_dri=x"], "Unknown command line flag 'raw_dri'. Did you mean: raw_dir ?"),
    (["--helpconfig=optimizer"], "--helpconfig=optimizer: Did you mean 'optimiser'"),
    (
      [CONFIG + ":gru_global", "--config.model.transformer.heads=8"],
      "config.model.transformer.heads counts only where "
      "config.model.family is 'transformer'; here it is 'gru'. ",
    ),
    (  # "constant" has no option, so no section
      [CONFIG, "--config.optimiser.schedule=constant", "--config.optimiser.noam.warmup=5"],
      "config.optimiser.noam.warmup counts only where "
      "config.optimiser.schedule is 'noam'; here it is 'constant'. ",
    ),
  ],
)  # fmt: skip
def test_reports_invalid_command_lines(parse, monkeypatch, words, message):
  monkeypatch.chdir(ROOT)
  with pytest.raises(InputError) as error:
    parse(*words)
  assert str(error.value).startswith(message)


def test_a_choice_may_follow_its_options(parse):
  values = parse(
    CONFIG,
    "--config.optimiser.noam.warmup=5",
    "--config.optimiser.schedule=noam",
  )
  assert read_config(values.config).optimiser.schedule.warmup == 5
  values = parse(CONFIG + ":gru_global", "--config.model.gru.hidden=8")
  assert read_config(values.config).model.family.hidden == 8


@pytest.mark.parametrize(
  ("words", "shown"),
  [
    (["--helpconfig"], ["--config.seed=0", "--config.model.gru.hidden=256"]),
    (["--helpconfig=optimiser"], ["--config.optimiser.noam.warmup=1000 updates"]),
    (["-helpconfig=parts.encoder.localness"], ["config.parts.encoder.localness"]),
    (
      ["--helpconfig=train.ema", CONFIG],
      [f"{EMA}=0.998  (float at least 0 and below 1; by default 0.0)"],
    ),
    (["--helpconfig=train.ema", CONFIG, f"{EMA}=0"], [f"{EMA}=0.0  (float at"]),
  ],
)  # fmt: skip
def test_help_of_options(parse, capsys, words, shown):
  with pytest.raises(SystemExit) as stopped:
    parse(*words)
  assert stopped.value.code == 0
  printed = capsys.readouterr().out
  assert all(one in printed for one in shown)
  complete = words == ["--helpconfig"]
  assert printed.startswith("The options that matter most:") == complete


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("c.py", "x = 1\ndef get_config(:\n", r"c\.py:2: invalid syntax"),
    ("c.py", "x = 1\n", r"c\.py has no function get_config"),
    ("c.txt", "x", r"c\.txt is no Python file"),
  ],
)
def test_reports_faulty_config_files(tmp_path, name, content, message):
  (tmp_path / name).write_text(content)
  with pytest.raises(InputError, match=message):
    cli.load(str(tmp_path / name))


def test_names_of_config_files(tmp_path, monkeypatch):
  names = addresses.names()
  assert {"multi30k_en_de", "own", "quickstart", "papers/pascal"} <= {*names}
  assert not {n for n in names if "systems" in n or "__" in n}
  assert not {"base", "papers/paper", "papers/ablation"} & {*names}
  for name in names:
    address = f"{addresses.file_of(name)}:x:y"
    assert addresses.displayed(address) == f"{name}:x:y"
  # A local file has priority with .py.
  monkeypatch.chdir(tmp_path)
  (tmp_path / "pud.py").write_text("")
  assert addresses.file_of("pud.py") == pathlib.Path("pud.py")
  assert addresses.file_of("pud") == addresses.FOLDER / "pud.py"
  assert addresses.displayed("pud.py:pascal") == "pud.py:pascal"
  with pytest.raises(InputError, match=r"'pudd.py'. Did you mean 'pud.py'\?"):
    addresses.file_of("pudd.py")


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_of_commands(command):
  """Flags that help lists first exist; repeated list flags accumulate."""
  module = importlib.import_module(COMMANDS[command].module)
  assert module.__doc__
  with defined(module) as names:
    assert {*COMMANDS[command].required, *COMMANDS[command].common} <= names
    values = [flags.FLAGS[name] for name in names]
    lists = [v for v in values if isinstance(v.parser, flags.BaseListParser)]
    for flag in lists:
      for words in ("a,b", "c"):
        flag.parse(words)
      assert flag.value == ["a", "b", "c"], flag.name
      flag.unparse()
      assert flag.value == flag.default
  assert lists or command not in ("translate", "compare", "serve")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_commands(command):
  """Examples are continued with backslashes, and absl's notes are replaced."""
  module = importlib.import_module(COMMANDS[command].module)
  with defined(module) as names:
    help_of = {name: cli._flag_help(flags.FLAGS[name]) for name in names}
  for line in (module.__doc__ + "\n".join(help_of.values())).splitlines():
    assert not re.search(r"\S   +--|\.;|repeat this", line), line
  if command == "score":
    text = "--reference: Reference file, plain or .gz. May be repeated."
    assert help_of["reference"].strip() == text


@pytest.fixture
def jaxsyn_output(monkeypatch, capsys):
  """Returns a function that runs `jaxsyn` with arguments in this process."""

  def output(*words):
    monkeypatch.setattr(sys, "argv", ["jaxsyn", *words])
    status = 0
    try:
      main.main()
    except SystemExit as error:
      status = error.code
    return status, *capsys.readouterr()

  return output


def test_help_and_version(jaxsyn_output):
  status, printed, error = jaxsyn_output("--help")
  assert status == 0 and not error
  for name, command in COMMANDS.items():
    assert f"  {name:9}  {command.meaning}\n" in printed
  assert jaxsyn_output()[1] == printed
  _, version, _ = jaxsyn_output("--version")
  assert version.startswith(f"jaxsyn {jaxsyn.__version__} (jax ")
  assert ", flax " in version and ", Python 3." in version


@pytest.mark.parametrize(
  ("word", "message"),
  [
    ("trian", "no command 'trian'. Did you mean 'train'? Known: "),
    ("--verison", "no flag '--verison'. Did you mean '--version'? Known: "),
  ],
)
def test_suggests_commands(jaxsyn_output, word, message):
  status, printed, error = jaxsyn_output(word)
  assert status == 2 and not printed
  assert error.startswith(f"error: {message}") and error.count("\n") == 1


GROUPS = r"""(?s)
required flags:
.*  --reference: .*
common flags:
.*  --metrics: .*
rare flags:
.*  --samples: """


@pytest.mark.parametrize("program", ["jaxsyn score", "jaxsyn.score"])
def test_a_command_equals_its_module(tmp_path, program):
  """Both group the flags in --help, print scores, and reject other words."""
  (tmp_path / "a").write_text("a b c d\n")
  files = ["--reference", f"{tmp_path}/a", "--hypothesis", f"{tmp_path}/a"]
  for words, status, shown in (
    (files, 0, "100.0"),
    ([*files, "more"], 2, "error: unexpected argument 'more'"),
    (["--help"], 0, GROUPS),
  ):
    done = subprocess.run(
      [sys.executable, "-m", *program.split(), *words],
      cwd=ROOT,
      env=os.environ | {"PYTHONPATH": str(ROOT)},
      capture_output=True,
      text=True,
    )
    assert done.returncode == status
    assert re.search(shown, done.stderr if status else done.stdout)
    assert not (done.stdout if status else done.stderr)
    assert done.stderr.count("\n") == bool(status)
    assert "--verbosity" not in done.stdout


def test_prints_the_command_as_typed(monkeypatch):
  monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/jaxsyn", "train"])
  assert commands.again("prepare") == "jaxsyn prepare"
  monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "jaxsyn.train"])
  assert commands.again("prepare") == "python -m jaxsyn.preprocess.build"
