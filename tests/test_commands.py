"""`jaxsyn COMMAND`: the same as python -m, for every command of the table."""

import ast
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import jaxsyn
from jaxsyn import addresses, commands
from jaxsyn.commands import COMMANDS
from jaxsyn.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*words, program=("-m", "jaxsyn")):
  return subprocess.run(
    [sys.executable, *program, *words],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_with_flags(name):
  spec = importlib.util.find_spec(COMMANDS[name].module)
  tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
  assert ast.get_docstring(tree)
  functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
  assert "define_flags" in functions


def test_help_lists_every_command_with_a_line():
  done = run("--help")
  assert done.returncode == 0 and not done.stderr
  for name, command in COMMANDS.items():
    assert f"  {name:9}  {command.meaning}\n" in done.stdout
  assert run().stdout == done.stdout


def test_version_says_what_it_runs_on():
  done = run("--version")
  assert done.stdout.startswith(f"jaxsyn {jaxsyn.__version__} (jax ")
  assert ", flax " in done.stdout and ", Python 3." in done.stdout


def test_help_groups_the_flags_of_a_command():
  output = run("translate", "--help").stdout
  groups = ("\nrequired flags:\n", "\ncommon flags:\n", "\nrare flags:\n")
  starts = [output.index(group) for group in groups]
  assert starts == sorted(starts)
  for flag, group in (("--workdir", 0), ("--beam", 1), ("--coordinator", 2)):
    assert [*starts, len(output)][group] < output.index(f"\n  {flag}: ")
    assert output.index(f"\n  {flag}: ") < [*starts, len(output)][group + 1]


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["trian"], "no command 'trian'. Did you mean 'train'? Known: "),
    (["--verison"], "no flag '--verison'. Did you mean '--version'? Known: "),
    (["score"], "--reference and --hypothesis are needed, each a file."),
    (["score", "extra"], "unexpected argument 'extra' (--help: the flags)."),
    (["new", "a", "b"], "unexpected argument 'b'"),
    (["new"], "name a folder and files: jaxsyn new FOLDER --source"),
  ],
)  # fmt: skip
def test_one_message(words, message):
  done = run(*words)
  assert done.returncode == 2 and not done.stdout
  assert done.stderr.startswith(f"error: {message}"), done.stderr
  assert done.stderr.count("\n") == 1


def test_a_command_is_the_same_by_both_names(tmp_path):
  (tmp_path / "a").write_text("a b c d\n")
  words = ["--reference", f"{tmp_path}/a", "--hypothesis", f"{tmp_path}/a"]
  ours, module = (
    run("score", *words),
    run(*words, program=("-m", "jaxsyn.score")),
  )
  assert ours.returncode == 0 and "100.0" in ours.stdout
  assert ours.stdout == module.stdout
  output = run("score", "--help").stdout
  assert output == run("--help", program=("-m", "jaxsyn.score")).stdout
  assert "--hypothesis" in output and "--verbosity" not in output


def test_prints_the_command_as_typed(tmp_path):
  """A script named jaxsyn, as pip makes one; and without."""
  script = tmp_path / "jaxsyn"
  script.write_text(
    "from jaxsyn import commands\nprint(commands.again('prepare'))"
  )
  done = subprocess.run(
    [sys.executable, str(script)],
    env=os.environ | {"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )
  assert done.stdout == "jaxsyn prepare\n"
  assert commands.again("prepare") == "python -m jaxsyn.preprocess.build"


def test_settings_have_names():
  names = addresses.names()
  assert {"multi30k_en_de", "own", "quickstart", "papers/pascal"} <= {*names}
  assert not {n for n in names if "systems" in n or "__" in n}
  assert not {"base", "papers/paper", "papers/ablation"} & {*names}
  for name in names:
    address = f"{addresses.file_of(name)}:x:y"
    assert addresses.displayed(address) == f"{name}:x:y"


def test_a_local_file_has_priority_with_py(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "pud.py").write_text("")
  assert addresses.file_of("pud.py") == pathlib.Path("pud.py")
  assert addresses.file_of("pud") == addresses.FOLDER / "pud.py"
  assert addresses.displayed("pud.py:pascal") == "pud.py:pascal"
  with pytest.raises(InputError, match=r"'pudd.py'. Did you mean 'pud.py'\?"):
    addresses.file_of("pudd.py")
  with pytest.raises(InputError, match=r"with jaxsyn are --config enja\."):
    addresses.file_of("configs/enja.py")
