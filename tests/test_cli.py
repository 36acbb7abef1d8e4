"""Tests command lines: their parsing, help, errors and exit statuses."""

import ast
import errno
import importlib
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
from absl import flags
from ml_collections import config_flags

import jaxsyn
from jaxsyn import cli, commands
from jaxsyn.commands import COMMANDS
from jaxsyn.config import read_config
from jaxsyn.errors import InputError
from jaxsyn.utils import addresses

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = f"--config={ROOT}/configs/multi30k_en_de.py"


def run(*words, program=("-m", "jaxsyn")):
  return subprocess.run(
    [sys.executable, *program, *words],
    cwd=ROOT,
    env=os.environ | {"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )


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
    ([CONFIG, "--config.modell.width=3"], "config has no option 'modell'. Did you mean 'model'?"),
    ([CONFIG, "--config.seed.x=3"], "config.seed is a value and has no option 'x'."),
    ([CONFIG, "--config.prepare.clean.max_words=abc"], "flag --config.prepare.clean.max_words=abc: "),
    ([CONFIG, "--config.prepare.clean.duplicates=maybe"], "flag --config.prepare.clean.duplicates=maybe: "),
    ([CONFIG + ":pascall"], "no system 'pascall' (the part after ':' in --config). Did you mean 'pascal'?"),
    (["--config=configs/nope.py"], "no config file 'configs/nope.py'."),
    (["--config=multi30k_ende:pascal"], "no config file 'multi30k_ende'. Did you mean 'multi30k_en_de'?"),
    (["--config=pud.py"], "no config file 'pud.py'. The settings of this name that come with jaxsyn are --config pud."),
    (["--config"], "no config file ''."),
    (["--config=README.md"], ""),
    (["--config.seed=3", CONFIG], "--config.seed=3 must come after --config FILE."),
    ([CONFIG, "--raw_dri=x"], "Unknown command line flag 'raw_dri'. Did you mean: raw_dir ?"),
    ([CONFIG, "extra"], "unexpected argument 'extra'"),
    (["--helpconfig=optimizer"], "--helpconfig=optimizer: Did you mean 'optimiser'"),
    (
      [CONFIG, "--config.optimiser.noam.warmup=5"],
      "config.optimiser.noam.warmup counts only where "
      "config.optimiser.schedule is 'noam'; here it is 'inverse_sqrt'. ",
    ),
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


EMA = "--config.train.ema"


@pytest.mark.parametrize(
  ("words", "shown"),
  [
    (["--helpconfig"], ["--config.seed=0", "--config.model.gru.hidden=256"]),
    (["--helpconfig=optimiser"], ["--config.optimiser.noam.warmup=1000 updates"]),
    (["-helpconfig=parts.encoder.localness"], ["config.parts.encoder.localness"]),
    (
      ["--helpconfig=train.ema", CONFIG],
      [f"{EMA}=0.998  (float from 0 to below 1; by default 0.0)"],
    ),
    (["--helpconfig=train.ema", CONFIG, f"{EMA}=0"], [f"{EMA}=0.0  (float from"]),
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


def test_reports_faulty_config_files(tmp_path):
  path = tmp_path / "c.py"
  path.write_text("x = 1\ndef get_config(:\n")
  with pytest.raises(InputError, match=r"c\.py:2: invalid syntax"):
    cli.load(str(path))
  path.write_text("x = 1\n")
  with pytest.raises(InputError, match=r"c\.py has no function get_config"):
    cli.load(str(path))
  path = tmp_path / "c.txt"
  path.write_text("x")
  with pytest.raises(InputError, match=r"c\.txt is no Python file"):
    cli.load(str(path))


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


@pytest.mark.parametrize(
  ("error", "status", "message"),
  [
    (InputError("a field"), 2, "error: a field\n"),
    (KeyboardInterrupt(), 130, "interrupted\n"),
    (
      OSError(errno.ENOSPC, "No space left on device", "runs/x"),
      2,
      "error: No space left on device: runs/x. Free some space and run the same"
      " command again.\n",
    ),
    (
      PermissionError(errno.EACCES, "Permission denied", "runs/x"),
      2,
      "error: Permission denied: runs/x. Change the permissions, or choose"
      " another place.\n",
    ),
    (KeyError("a bug"), None, ""),
  ],
)
def test_exit_status(monkeypatch, capsys, error, status, message):
  def fail(_):
    raise error

  monkeypatch.setattr(cli, "parse", lambda _, **more: None)
  kind = KeyError if status is None else SystemExit
  with pytest.raises(kind) as stopped:
    cli.main(fail)
  if status is not None:
    assert stopped.value.code == status
  assert capsys.readouterr().err == message


def test_exits_if_the_reader_of_standard_output_ends():
  code = (
    "from jaxsyn import cli; cli.parse = lambda _, **more: None;"
    "cli.main(lambda _: [print('line', flush=True) for _ in range(100000)])"
  )
  process = subprocess.Popen(
    [sys.executable, "-c", code],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )
  process.stdout.readline()
  process.stdout.close()
  assert process.stderr.read() == b""
  assert process.wait() == 141


@pytest.fixture
def defined():
  """Returns a function that defines a command's flags, until the test ends."""
  before = {*flags.FLAGS}

  def define(command):
    importlib.import_module(COMMANDS[command].module).define_flags()
    return {*flags.FLAGS} - before

  yield define
  for name in {*flags.FLAGS} - before:
    delattr(flags.FLAGS, name)


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_of_commands(command, defined):
  """Flags that help lists first exist; repeated list flags accumulate."""
  spec = importlib.util.find_spec(COMMANDS[command].module)
  tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
  assert ast.get_docstring(tree)
  names = defined(command)
  assert {*COMMANDS[command].required, *COMMANDS[command].common} <= names
  lists = [
    name
    for name in sorted(names)
    if isinstance(flags.FLAGS[name].parser, flags.BaseListParser)
  ]
  for name in lists:
    flag = flags.FLAGS[name]
    for words in ("a,b", "c"):
      flag.parse(words)
    assert flag.value == ["a", "b", "c"], name
    flag.unparse()
    assert flag.value == flag.default
  assert lists or command not in ("translate", "compare", "serve")


def test_help_and_version():
  done = run("--help")
  assert done.returncode == 0 and not done.stderr
  for name, command in COMMANDS.items():
    assert f"  {name:9}  {command.meaning}\n" in done.stdout
  assert run().stdout == done.stdout
  done = run("--version")
  assert done.stdout.startswith(f"jaxsyn {jaxsyn.__version__} (jax ")
  assert ", flax " in done.stdout and ", Python 3." in done.stdout


def test_help_groups_the_flags_of_a_command():
  output = run("translate", "--help").stdout
  groups = ("\nrequired flags:\n", "\ncommon flags:\n", "\nrare flags:\n")
  starts = [output.index(group) for group in groups]
  assert starts == sorted(starts)
  for flag, group in (("--workdir", 0), ("--beam", 1), ("--coordinator", 2)):
    position = output.index(f"\n  {flag}: ")
    assert starts[group] < position < [*starts, len(output)][group + 1]
  assert "--verbosity" not in output


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["trian"], "no command 'trian'. Did you mean 'train'? Known: "),
    (["--verison"], "no flag '--verison'. Did you mean '--version'? Known: "),
    (["score"], "--reference and --hypothesis are needed, each a file."),
    (["new", "a", "b"], "unexpected argument 'b'"),
    (["new"], "name a folder and files: jaxsyn new FOLDER --source"),
  ],
)
def test_prints_one_error_message(words, message):
  done = run(*words)
  assert done.returncode == 2 and not done.stdout
  assert done.stderr.startswith(f"error: {message}"), done.stderr
  assert done.stderr.count("\n") == 1


def test_a_command_equals_its_module(tmp_path):
  (tmp_path / "a").write_text("a b c d\n")
  words = ["--reference", f"{tmp_path}/a", "--hypothesis", f"{tmp_path}/a"]
  command = run("score", *words)
  module = run(*words, program=("-m", "jaxsyn.score"))
  assert command.returncode == 0 and "100.0" in command.stdout
  assert command.stdout == module.stdout


def test_prints_the_command_as_typed(tmp_path):
  """A script named jaxsyn, as pip makes one; and without."""
  script = tmp_path / "jaxsyn"
  script.write_text(
    "from jaxsyn import commands\nprint(commands.again('prepare'))"
  )
  assert run(program=(str(script),)).stdout == "jaxsyn prepare\n"
  assert commands.again("prepare") == "python -m jaxsyn.preprocess.build"
