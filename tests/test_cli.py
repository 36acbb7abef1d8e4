"""One message and the right exit status, for whatever a user mistypes."""

import errno
import pathlib
import subprocess
import sys

import pytest

from jaxsyn import cli
from jaxsyn.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = "--config=configs/multi30k_en_de.py"
PROGRAM = '''"""What this program is for."""
import sys
from absl import flags
from jaxsyn import cli

def _main(values):
  print(values.config.system, values.config.model.width, values.raw_dir)

if __name__ == "__main__":
  cli.config_flag()
  flags.DEFINE_string("raw_dir", "x", "A folder.")
  cli.main(_main)
'''


@pytest.fixture(scope="module")
def program(tmp_path_factory):
  path = tmp_path_factory.mktemp("program") / "program.py"
  path.write_text(PROGRAM)

  def run(*words):
    return subprocess.run(
      [sys.executable, str(path), *words],
      cwd=ROOT,
      env={"PYTHONPATH": str(ROOT), "PATH": ""},
      capture_output=True,
      text=True,
      check=False,
    )

  return run


@pytest.mark.parametrize(
  ("words", "output"),
  [
    ([CONFIG], "transformer 128 x"),
    ([CONFIG + ":pascal", "--raw_dir=y"], "pascal 128 y"),
    (["--config", CONFIG[9:], "--config.model.width=8"], "transformer 8 x"),
    (["--config", "multi30k_en_de:pascal"], "pascal 128 x"),
    (["--config=papers/pascal:nc11_en_de"], "transformer 512 x"),
  ],
)
def test_fine(program, words, output):
  done = program(*words)
  assert (done.stdout, done.returncode) == (output + "\n", 0), done.stderr


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
    (["--config=configs/multi30k_ende.py"], "no config file 'configs/multi30k_ende.py'. Did you mean 'configs/multi30k_en_de.py'?"),
    (["--config=configs/nowhere/pud.py"], "no config file 'configs/nowhere/pud.py'."),
    (["--config=multi30k_ende:pascal"], "no config file 'multi30k_ende'. Did you mean 'multi30k_en_de'?"),
    (["--config=pud.py"], "no config file 'pud.py'. The settings of this name that come with jaxsyn are --config pud."),
    (["--config"], "no config file ''."),
    (["--config=README.md"], None),
    (["--config.seed=3", CONFIG], "--config.seed=3 must come after --config FILE."),
    ([CONFIG, "--raw_dri=x"], "Unknown command line flag 'raw_dri'. Did you mean: raw_dir ?"),
    ([CONFIG, "extra"], "unexpected argument 'extra'"),
  ],
)  # fmt: skip
def test_one_message(program, words, message):
  done = program(*words)
  assert done.returncode == 2
  assert done.stderr.startswith("error: " + (message or "")), done.stderr
  assert done.stderr.count("\n") == 1 and not done.stdout


def test_help_shows_the_programs_own_flags(program):
  done = program("--help")
  assert done.returncode == 0
  assert "What this program is for." in done.stdout
  assert "--raw_dir" in done.stdout and "--config" in done.stdout
  assert "It is a Python program and is run" in " ".join(done.stdout.split())
  assert "--verbosity" not in done.stdout


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
  ],
)
def test_exit_status(monkeypatch, capsys, error, status, message):
  def fail(_):
    raise error

  monkeypatch.setattr(cli, "parse", lambda _, **more: None)
  with pytest.raises(SystemExit) as stopped:
    cli.main(fail)
  assert stopped.value.code == status
  assert capsys.readouterr().err == message


def test_our_own_faults_keep_their_traceback(monkeypatch):
  def fail(_):
    raise KeyError("a fault")

  monkeypatch.setattr(cli, "parse", lambda _, **more: None)
  with pytest.raises(KeyError, match="a fault"):
    cli.main(fail)


def test_reader_went_away():
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


def test_faulty_config_files(tmp_path):
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
