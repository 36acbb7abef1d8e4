"""Commands in a faulty environment: one message and an exit status."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from raw_corpora import command, corpus

from jaxsyn.errors import InputError
from jaxsyn.utils import exits

ROOT = str(pathlib.Path(__file__).parents[2])
CONFIG = "configs/multi30k_en_de.py"
FULL = "No space left on device"
# A command: "print" prints, "loop" prints for long, "fail" is an error.
PROGRAM = """
import logging, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from jaxsyn import errors
from jaxsyn.utils import exits

def command(word):
  if word == "abandon":
    exits.abandon(ThreadPoolExecutor().submit(time.sleep, 300))
  if word == "warn":
    logging.warning("%d is odd", 3)
  if word == "open":
    print(os.open(os.devnull, 0))
  print("über")
  for _ in range(3000 * (word == "loop")):
    print("über", flush=True)
    time.sleep(0.01)
  if word == "fail":
    raise errors.InputError("wrong")

exits.guarded(lambda: command(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
  folder = tmp_path_factory.mktemp("world")
  (folder / "program.py").write_text(PROGRAM)
  (folder / "text").write_text("a b\nc d\n")
  (folder / "folder").mkdir()
  return folder


@pytest.fixture(scope="module")
def program(place):
  return [sys.executable, str(place / "program.py")]


@pytest.fixture(scope="module")
def build(place):
  return command(corpus(place))


def shell(words, how):
  """Runs a command, followed by redirections or a pipe, in a shell."""
  variables = {"PYTHONPATH": ROOT, "PYTHONIOENCODING": "ascii"}
  return subprocess.run(
    ["bash", "-c", f"{' '.join(words)} {how}"],
    cwd=ROOT,
    env=os.environ | variables | {"PYTHONUNBUFFERED": ""},
    capture_output=True,
    text=True,
    timeout=120,
  )


def check_message(done, status, message):
  assert done.returncode == status, (done.returncode, done.stderr)
  assert done.stderr.count("\n") == bool(message), done.stderr
  assert message in done.stderr


@pytest.mark.parametrize(
  ("how", "status", "message"),
  [
    ("print <&-", 0, ""),
    ("print >&-", 2, "error: standard output is closed"),
    ("print 2>&-", 0, ""),
    ("print <&- >&- 2>&-", 2, ""),
    ("print >/dev/full", 2, FULL),
    ("print | cat; exit ${PIPESTATUS[0]}", 0, ""),
    ("loop | true; exit ${PIPESTATUS[0]}", 141, ""),
    ("warn", 0, "warning: 3 is odd"),
    ("fail", 2, "error: wrong"),
    ("fail 2>/dev/full", 2, ""),
    ("fail 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}", 2, ""),
    ("abandon", 0, ""),  # it does not wait for the thread
  ],
)
def test_exits_with_one_message(program, how, status, message):
  done = shell(program, how)
  check_message(done, status, message)
  # In any locale.
  assert status or done.stdout == "über\n"


def test_opened_files_do_not_replace_closed_streams(program):
  assert int(shell(program, "open <&- 2>&-").stdout.split()[0]) > 2


@pytest.mark.parametrize(
  "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
)
def test_signals_keep_printed_results(program, number):
  process = subprocess.Popen(
    [*program, "loop"],
    env=os.environ | {"PYTHONPATH": ROOT},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # Under nohup or in the background, tests pass on that some are ignored.
    preexec_fn=functools.partial(signal.signal, number, signal.SIG_DFL),
  )
  assert process.stdout.readline() == "über\n"
  process.send_signal(number)
  _, message = process.communicate()
  assert process.returncode == 128 + number
  name = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
  assert message == f"{name}\n"


@pytest.mark.parametrize(
  ("limit", "how", "message"),
  [
    ("", ">/dev/full", FULL),
    # Python would write truncated bytecode, which breaks the next processes.
    (
      "ulimit -f 1; PYTHONDONTWRITEBYTECODE=1",
      "--config.data.directory=FOLDER/limited",
      "error: File too large",
    ),
  ],
)
def test_preparation_exits_with_one_message(build, place, limit, how, message):
  done = shell([limit, *build], how.replace("FOLDER", str(place)))
  check_message(done, 2, message)
  assert not (place / "limited" / "manifest.json").exists()


BEFORE_WORK = [
  ("translate", "--output FOLDER/text/x", "text is a file, not a folder"),
  ("translate", "--output FOLDER/folder", "folder is a folder; name a file"),
  ("translate", "--buffer 0", "--buffer=0: it must be a whole number from 1"),
  ("translate", "--alpha nan", "--alpha=nan: it must be from 0 to 8"),
  ("translate", "--workdir FOLDER/text", "text is not the folder of a run"),
  ("inspect", "--input - --output FOLDER/text", "text is a file; name a"),
  ("train", "--config CONFIG --workdir FOLDER/text", "text is a file; name"),
  ("compare", "--config CONFIG --workdir FOLDER/text", "text is a file; name"),
  ("compare", "--config CONFIG --seeds 0", "--seeds=0: it must be"),
]
COMMANDS = """
import json, os, runpy, sys
import jaxsyn.compare, jaxsyn.scoring.buckets  # once; commands are forks
for i, (module, words) in enumerate(json.load(sys.stdin)):
  if not (child := os.fork()):
    os.dup2(os.open(f"{sys.argv[1]}/said{i}", os.O_WRONLY | os.O_CREAT), 2)
    sys.argv[1:] = words
    try:
      runpy.run_module(f"jaxsyn.{module}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
      os._exit(end.code)
  print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_invalid_flags_are_rejected_before_work(place):
  cases = []
  for module, words, _ in BEFORE_WORK:
    words = words.replace("FOLDER", str(place)).replace("CONFIG", CONFIG)
    cases.append((module, ["--workdir", str(place / "no"), *words.split()]))
  done = subprocess.run(
    [sys.executable, "-W", "ignore", "-c", COMMANDS, str(place)],
    cwd=ROOT,
    input=json.dumps(cases),
    capture_output=True,
    text=True,
  )
  for i, (_, words, message) in enumerate(BEFORE_WORK):
    messages = (place / f"said{i}").read_text().splitlines()
    assert len(messages) == 1 and message in messages[0], (words, messages)
  assert done.stdout.split() == ["2"] * len(BEFORE_WORK), done.stderr


@pytest.mark.parametrize(
  ("error", "message"),
  [
    (MemoryError(), "out of memory. End other programs"),
    (NotADirectoryError(20, "Not", "a/b"), "Not: a/b. There is a file where"),
    (OSError(5, "Input/output error"), "Input/output error. The disk"),
    (OSError(99, "New", b"a", None, "b"), "New: b. Check the path."),
    (OSError(9, "Bad file descriptor"), None),  # no path: a bug
    (ValueError("x"), None),
  ],
)
def test_system_errors_are_messages(error, message):
  result = exits.error_message(error)
  if message is None:
    assert result is None
  else:
    text, status = result
    assert text.startswith(f"error: {message}") and status == 2


def test_checks_output_paths(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "file").touch()
  for path in ("new", "a/b/new", "file", "-", "/dev/null"):
    exits.check_target(path, "--output")
  for path in ("new", "a/b/new", "."):
    exits.check_target(path, "--workdir", folder=True)
  for path, folder in ((".", False), ("file", True), ("file/a", True)):
    with pytest.raises(InputError, match=r"^--output "):
      exits.check_target(path, "--output", folder)
  if os.geteuid():  # nothing is denied to root
    (tmp_path / "shut").mkdir(mode=0o500)
    with pytest.raises(InputError, match="no permission to write"):
      exits.check_target("shut/a", "--output")
