"""Commands in a faulty environment: one message and an exit status."""

import functools
import json
import os
import resource
import signal
import subprocess
import sys

import pytest
from raw_corpora import corpus

from jaxsyn.errors import InputError
from jaxsyn.utils import exits

ROOT = exits.__file__.rsplit("/", 2)[0]
LOOP = (
  "import sys, time; from jaxsyn.utils import exits;"
  "exits.guarded(lambda: [print('line', flush=True) or time.sleep(0.01)"
  " for _ in range(3000)])"
)
CONFIG = "configs/multi30k_en_de.py"
FULL = "No space left on device"


def shell(words, how="", env=None, **more):
  """Runs a command, followed by redirections or a pipe, in a shell."""
  command = " ".join(words) + " " + how
  return subprocess.run(
    ["bash", "-c", command], cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "", **(env or {})},
    capture_output=True, text=True, check=False, timeout=120, **more,
  )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
  folder = tmp_path_factory.mktemp("world")
  (folder / "text").write_text("a b\nc d\n")
  (folder / "other").write_text("a b\nc e\n")
  (folder / "folder").mkdir()
  return folder


@pytest.fixture(scope="module")
def score(place):
  return [
    *(sys.executable, "-m", "jaxsyn.score", "--metrics", "exact"),
    *("--significance", "none", "--reference", str(place / "text")),
    *("--hypothesis", str(place / "other")),
  ]


@pytest.fixture(scope="module")
def build(place):
  config = corpus(place)
  path = place / "corpus.py"
  path.write_text(
    "import ml_collections\n"
    "def get_config():\n"
    f"  return ml_collections.ConfigDict({config.to_dict()!r})\n"
  )
  return [sys.executable, "-m", "preprocess.build", "--config", str(path)]


def one_message(done, status, message):
  assert done.returncode == status, (done.returncode, done.stderr)
  assert done.stderr.count("\n") == bool(message), done.stderr
  assert message in done.stderr


@pytest.mark.parametrize(
  ("how", "status", "message"),
  [
    ("<&-", 0, ""),
    (">&-", 2, "error: standard output is closed"),
    ("2>&-", 0, ""),
    (">&- 2>&-", 2, ""),
    ("<&- >&- 2>&-", 2, ""),
    (">/dev/full", 2, FULL),
    ("--nope 2>/dev/full", 2, ""),
    ("--reference FOLDER/text/x", 2, "text/x is missing or is not a file"),
    ("--reference FOLDER/folder", 2, "folder is missing or is not a file"),
    ("--seed=-1", 2, "it must be a whole number from 0 to 4,294,967,295"),
    ("--seed=nan", 2, "it must be a whole number"),
    ("--samples=-1", 2, "--samples=-1"),
    ("--edges=1,x", 2, "--edges are whole numbers"),
    ("| cat; exit ${PIPESTATUS[0]}", 0, ""),
    ("| true; exit ${PIPESTATUS[0]}", 141, ""),
    ("--nope 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}", 2, ""),
  ],
)
def test_score_exits_with_one_message(score, place, how, status, message):
  done = shell(score, how.replace("FOLDER", str(place)))
  one_message(done, status, message)
  assert bool(done.stdout) == (status == 0 and "cat" not in how) or "cat" in how


def test_warnings_are_formatted_as_errors():
  code = (
    "from absl import logging; from jaxsyn.utils import exits;"
    "exits.guarded(lambda: logging.warning('%d is odd', 3))"
  )
  done = shell([sys.executable, "-c", f'"{code}"'])
  assert (done.returncode, done.stderr) == (0, "warning: 3 is odd\n")


def test_reports_a_file_size_limit(score, build, place, monkeypatch):
  # Python would write truncated bytecode, which breaks the next processes.
  monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

  def limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))

  with open(place / "large", "w") as file:
    done = subprocess.run(
      score, cwd=ROOT, stdout=file, stderr=subprocess.PIPE, text=True,
      preexec_fn=limit,
    )  # fmt: skip
  one_message(
    done, 2, "error: File too large. The file would exceed a size limit"
  )
  done = subprocess.run(
    build, cwd=ROOT, capture_output=True, text=True, preexec_fn=limit
  )
  one_message(done, 2, "error: File too large")
  assert not (place / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
  ("how", "message"),
  [
    (">&-", "error: standard output is closed"),
    (">/dev/full", FULL),
    ("--config.data.directory=FOLDER/text", "text is a file; name a folder"),
    ("--config.data.directory=FOLDER/text/x", "text is a file, not a folder"),
    ("--config.data.directory=/proc/x", "/proc/x"),
    ("--config.data.directory=$(printf '%0300d' 1)", "File name too long"),
    (
      "--config.prepare.splits.train=\"('a','b')\"",
      "raw file a is not found in",
    ),
    (
      "--config.prepare.workers=-1",
      "prepare.workers must be from 0 to 1,024",
    ),
    ("--config.prepare.clean.max_ratio=nan", "max_ratio must be from 0"),
  ],
)
def test_prepare_exits_with_one_message(build, place, how, message):
  done = shell(build, how.replace("FOLDER", str(place)))
  one_message(done, 2, message)


BEFORE_WORK = [
  ("translate", "--output FOLDER/text/x", "text is a file, not a folder"),
  ("translate", "--output FOLDER/folder", "folder is a folder; name a file"),
  ("translate", "--buffer 0", "--buffer=0: it must be a whole number from 1"),
  ("translate", "--buffer=-1", "--buffer=-1: it must be a whole number from 1"),
  ("translate", "--nbest 0", "--nbest=0: it must be a whole number from 1"),
  ("translate", "--beam=-1", "--beam=-1: it must be a whole number from 1"),
  ("translate", "--alpha nan", "--alpha=nan: it must be from 0 to 8"),
  ("translate", "--workdir FOLDER/text", "text is not the folder of a run"),
  ("inspect", "--input - --output FOLDER/text", "text is a file; name a"),
  ("inspect", "--input - --limit=-1", "--limit=-1: it must be"),
  ("train", "--config CONFIG --workdir FOLDER/text", "text is a file; name"),
  ("compare", "--config CONFIG --workdir FOLDER/text", "text is a file; name"),
  ("compare", "--config CONFIG --seeds 0", "--seeds=0: it must be"),
  ("compare", "--config CONFIG --processes 10000", "--processes=10000: it mu"),
]


def test_invalid_flags_are_rejected_before_work(place):
  code = """
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
  cases = []
  for module, words, _ in BEFORE_WORK:
    words = words.replace("FOLDER", str(place)).replace("CONFIG", CONFIG)
    cases.append((module, ["--workdir", str(place / "no"), *words.split()]))
  done = subprocess.run(
    [sys.executable, "-W", "ignore", "-c", code, str(place)], cwd=ROOT,
    input=json.dumps(cases), capture_output=True, text=True,
  )  # fmt: skip
  for i, (_, words, message) in enumerate(BEFORE_WORK):
    messages = (place / f"said{i}").read_text().splitlines()
    assert len(messages) == 1 and message in messages[0], (words, messages)
  assert done.stdout.split() == ["2"] * len(BEFORE_WORK), done.stderr


@pytest.mark.parametrize(
  "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
)
def test_signals_keep_printed_results(number):
  process = subprocess.Popen(
    [sys.executable, "-c", LOOP], cwd=ROOT, text=True,
    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    # Under nohup or in the background, tests pass on that some are ignored.
    preexec_fn=functools.partial(signal.signal, number, signal.SIG_DFL),
  )  # fmt: skip
  assert process.stdout.readline() == "line\n"
  process.send_signal(number)
  answered, message = process.communicate()
  assert process.returncode == 128 + number
  assert set(answered.split("\n")) <= {"line", ""}
  name = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
  assert message == f"{name}\n"


@pytest.mark.parametrize("status", [0, 2])
def test_exits_without_waiting_for_abandoned_work(status):
  code = (
    "import time; from concurrent.futures import ThreadPoolExecutor\n"
    "from jaxsyn import errors\nfrom jaxsyn.utils import exits\n"
    "def command():\n"
    "  exits.abandon(ThreadPoolExecutor().submit(time.sleep, 60))\n"
    "  print('answered')\n"
    f"  if {status}: raise errors.InputError('wrong')\n"
    "exits.guarded(command)"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
    timeout=30,
  )  # fmt: skip
  assert (done.returncode, done.stdout) == (status, "answered\n")
  assert done.stderr == ("error: wrong\n" if status else "")


def test_opened_files_do_not_replace_closed_streams(place):
  code = (
    "import os; from jaxsyn.utils import exits;"
    f"exits.guarded(lambda: print(os.open({str(place / 'text')!r}, 0)))"
  )
  done = shell([sys.executable, "-c", f'"{code}"'], "<&- 2>&-")
  assert int(done.stdout) > 2


def test_output_is_utf8_in_any_locale(score, place):
  (place / "über").write_text("a b\nc e\n")
  done = shell(
    [*score, "--hypothesis", str(place / "über")],
    env={"PYTHONIOENCODING": "ascii"},
  )
  assert done.returncode == 0 and "\nüber  " in done.stdout, done.stderr


@pytest.mark.parametrize(
  ("error", "message"),
  [
    (MemoryError(), "error: out of memory. End other programs"),
    (
      NotADirectoryError(20, "Not a directory", "a/b"),
      "Not a directory: a/b. There is a file where a folder is needed",
    ),
    (
      IsADirectoryError(21, "Is a directory", b"a"),
      "Is a directory: a. There is a folder where a file is needed",
    ),
    (OSError(5, "Input/output error"), "error: Input/output error. The disk"),
    (
      OSError(99, "Something new", "a"),
      "error: Something new: a. Check the path.",
    ),
  ],
)
def test_system_errors_are_messages(capsys, error, message):
  def fail():
    raise error

  with pytest.raises(SystemExit) as stopped:
    exits.guarded(fail)
  assert stopped.value.code == 2
  assert message in capsys.readouterr().err


def test_system_errors_without_a_path_are_bugs():
  def fail():
    raise OSError(9, "Bad file descriptor")

  with pytest.raises(OSError, match="Bad file descriptor"):
    exits.guarded(fail)


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
