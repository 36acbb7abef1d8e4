"""Runs in processes of their own, and how they are shown: small real programs."""

import dataclasses
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from results_made import run_made

from jaxsyn.comparison import planned_jobs, progress, run_result, runner
from jaxsyn.comparison.progress import Board, RunState
from jaxsyn.comparison.runner import STARTS, JobRunner
from jaxsyn.config import read_config
from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def jobs(tiny, tmp_path):
  """Two systems, two seeds."""
  systems = [
    planned_jobs.System(name, read_config(tiny(name)))
    for name in ("transformer", "pascal")
  ]
  return planned_jobs.jobs(tmp_path, systems, (0, 1))


@pytest.fixture
def board(tmp_path):
  made = Board(tmp_path, io.StringIO())
  yield made
  made.close()


def program(code):
  """A command that runs Python code, in which `run` is the run's folder."""
  start = (
    "import os, pathlib, signal, sys, time\nrun = pathlib.Path(sys.argv[1])\n"
  )
  return lambda job: [sys.executable, "-c", start + code, str(job.run)]


FINISHES = f"""
(run / "test").mkdir()
(run / "test" / "test.txt").write_text("a")
(run / "look").mkdir()
sys.path.insert(0, {str(ROOT)!r})
import json
from jaxsyn.storage import checksums, files
page = json.loads({json.dumps(dataclasses.asdict(run_made()))!r})
page["files"] = checksums.file_checksums(run, ["test/test.txt"])
files.write_json(run / "result.json", checksums.add_checksum(page))
"""


def log_of(tmp_path):
  return (tmp_path / "log.txt").read_text()


def finish(job):
  """What a process leaves that has made everything."""
  for folder in (job.run / "test", job.run / "look"):
    folder.mkdir(parents=True)
  job.hypotheses("test").write_text("a")
  result = run_made(job.system.name, job.seed)
  result = dataclasses.replace(result, files=job.output_sums())
  run_result.write(job.result_file, result)


def test_all_are_done_once_each_first_seeds_first(jobs, board, tmp_path):
  ended = JobRunner(jobs, program(FINISHES), board).work()
  assert (ended.signal, ended.failed) == ("", {})
  assert all(job.finished for job in jobs)
  started = re.findall(r"(\w+ seed \d): begins", log_of(tmp_path))
  assert started == [
    *("transformer seed 0", "pascal seed 0"),
    *("transformer seed 1", "pascal seed 1"),
  ]
  again = JobRunner(jobs, program("sys.exit(3)"), board).work()
  assert again.failed == {}
  assert "4 of 4 runs are finished already" in log_of(tmp_path)


def test_prints_a_line_at_intervals_for_each_running_run(
  jobs, board, tmp_path, monkeypatch
):
  """Before the first validation: programs, then steps and remaining time."""
  monkeypatch.setattr(runner, "REPORT_SECONDS", 0.1)
  monkeypatch.setattr(progress, "REDRAW", 0.05)
  code = """
compiling = "training: 0 of 6 steps, compiling programs: "
print("compiling the step for 3 shapes", flush=True)
time.sleep(0.5)
print(compiling + "1 of 4", flush=True)
time.sleep(0.5)
record = '{"kind": "train", "step": 2, "minutes": 0.5, "loss": 4.25, '
record += '"tokens_per_s": 1234.5, "eta_minutes": 1.5}'
(run / "log.jsonl").write_text(record + "\\n")
print("train      step 2  loss 4.25", flush=True)
time.sleep(0.5)
print("translating test: 7 of 9 sentences", flush=True)
time.sleep(0.5)
"""
  JobRunner(jobs[:2], program(code + FINISHES), board, places=({}, {})).work()
  for job in jobs[:2]:
    messages = re.findall(rf"  {job.name}: (.*)", log_of(tmp_path))
    assert len(messages) > 6
    assert list(dict.fromkeys(messages))[1:-1] == [
      "compiling the step for 3 shapes",
      "training: 0 of 6 steps, compiling programs: 1 of 4",
      "step 2/6, loss 4.250, 1,234 subwords/s, 90 s left",
      "translating test: 7 of 9 sentences",
    ]


def test_a_run_without_its_translations_is_not_finished(jobs):
  for job in jobs:
    finish(job)
  assert all(job.finished for job in jobs)
  jobs[0].hypotheses("test").unlink()
  assert not jobs[0].finished
  # Pictures are of the first seeds alone.
  for job in jobs[1:]:
    (job.run / "look").rmdir()
    assert job.finished == (job.seed > 0)


def test_a_process_ends_when_its_parent_was_killed(tmp_path):
  """The child saves as on SIGTERM, though nobody could send it one."""
  child = (
    "import pathlib, signal, time; from jaxsyn.comparison import runner\n"
    "def save(*_): pathlib.Path('saved').write_text(''); raise SystemExit\n"
    "signal.signal(signal.SIGTERM, save)\n"
    "runner.watch_parent()\n"
    "pathlib.Path('ready').write_text('')\n"
    "time.sleep(60)"
  )
  parent = (
    "import subprocess, sys, time\n"
    f"subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE,"
    " start_new_session=True)\n"
    "time.sleep(60)"
  )
  process = subprocess.Popen(
    [sys.executable, "-c", parent],
    cwd=tmp_path,
    env={**os.environ, "PYTHONPATH": str(ROOT)},
  )
  for name, then in (("ready", process.kill), ("saved", process.wait)):
    deadline = time.monotonic() + 60
    while not (tmp_path / name).exists():
      assert time.monotonic() < deadline, name
      time.sleep(0.01)
    then()


def test_other_data_are_refused(jobs, tmp_path):
  systems = [jobs[0].system]
  planned_jobs.start_experiment(tmp_path, systems)
  planned_jobs.start_experiment(tmp_path, systems)
  page = tmp_path / planned_jobs.FILE
  present = jobs[0].system.manifest["splits"]["test"]["records_sha256"]
  text = page.read_text().replace(present, "0" * 64)
  files.write_json(page, checksums.add_checksum(json.loads(text)))
  with pytest.raises(InputError, match="compares on other data than"):
    planned_jobs.start_experiment(tmp_path, systems)


HARMS = {
  "flip": lambda text: text.replace('"minutes": 0.5', '"minutes": 0.4'),
  "cut": lambda text: text[:-20],
  "empty": lambda text: "",
  "list": lambda text: "[]",
  "depth": lambda text: "[" * 100_000,
}


@pytest.mark.parametrize("harm", HARMS)
def test_detects_corrupt_files_of_a_comparison(jobs, harm):
  """Or it is named: no score is made of other lines than were translated."""
  job = jobs[1]
  finish(job)
  job.read_result()
  planned_jobs.start_experiment(job.folder, [job.system])
  for path in (job.run / run_result.FILE, job.folder / planned_jobs.FILE):
    text = path.read_text()
    path.write_text(HARMS[harm](text.replace('"name"', '"mane"', 1)))
    with pytest.raises(InputError, match=rf"{path} is corrupt"):
      assert job.facts.minutes == 0.5
      planned_jobs.start_experiment(job.folder, [job.system])
    path.write_text(text)
  lines = job.hypotheses("test")
  lines.write_text({"flip": "b"}.get(harm, ""))
  with pytest.raises(InputError, match=rf"{lines} has .*Delete it, and"):
    job.read_result()


def test_a_run_that_fails_is_given_up_and_the_others_go_on(jobs, board):
  code = f"""
if "pascal" in str(run) and "seed_0" in str(run):
  print("error: the loss became NaN"); sys.exit(2)
{FINISHES}"""
  ended = JobRunner(jobs, program(code), board).work()
  assert {job.name: values for job, values in ended.failed.items()} == {
    "pascal seed 0": "its process ended with status 2: error: the loss became NaN"
  }
  assert [job.finished for job in jobs] == [True, False, True, True]


def test_restarts_a_killed_process_a_few_times(jobs, board):
  code = """
with (run / "starts").open("a") as file: file.write("x")
os.kill(os.getpid(), signal.SIGKILL)"""
  ended = JobRunner(jobs[:1], program(code), board).work()
  assert (jobs[0].run / "starts").read_text() == "x" * STARTS
  assert "was killed (SIGKILL)" in ended.failed[jobs[0]]


def test_a_process_that_gets_further_each_time_is_started_again(jobs, board):
  code = f"""
log = run / "log.jsonl"
step = len(log.read_text().splitlines()) if log.exists() else 0
if step == {2 * STARTS}:
  {FINISHES.replace(chr(10), chr(10) + "  ")}
else:
  with log.open("a") as file:
    print('{{"kind": "train", "minutes": 0.1, "step": %d}}' % (step + 1), file=file)
  if step % 2: os.kill(os.getpid(), signal.SIGKILL)  # or it is asked to stop"""
  ended = JobRunner(jobs[:1], program(code), board).work()
  assert ended.failed == {} and jobs[0].finished


def test_each_place_has_one_process_at_a_time(jobs, board):
  code = f"""
began = time.time(); time.sleep(0.3)
(run / "place").write_text(f"{{os.environ['PLACE']}} {{began}} {{time.time()}}")
{FINISHES}"""
  places = [{"PLACE": "0"}, {"PLACE": "1"}]
  JobRunner(jobs, program(code), board, places).work()
  spans = {}
  for job in jobs:
    place, began, ended = (job.run / "place").read_text().split()
    spans.setdefault(place, []).append((float(began), float(ended)))
  assert sorted(map(len, spans.values())) == [2, 2]
  for one, other in map(sorted, spans.values()):
    assert one[1] <= other[0]


def test_forwards_a_signal_once_and_starts_nothing(jobs, board, tmp_path):
  code = """
count = []
def note(*_): count.append(1)
signal.signal(signal.SIGTERM, note)
(run / "ready").write_text("")
while not count: time.sleep(0.01)
time.sleep(0.4)
(run / "asked").write_text(str(len(count)))"""

  def stop():
    while not (jobs[0].run / "ready").exists():
      time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

  threading.Thread(target=stop).start()
  ended = JobRunner(jobs, program(code), board).work()
  assert ended.signal == "SIGTERM" and ended.failed == {}
  assert (jobs[0].run / "asked").read_text() == "1"
  assert not jobs[1].run.exists()


def state(what, step=0, best="", minutes=0.0, left=None):
  return RunState(what, step, 100, best, minutes, left)


def test_the_table(jobs):
  text = progress.table(
    dict(
      zip(
        jobs,
        (
          state("finished", 100, "BLEU 31.26", 10.0, 0.0),
          state("training", 40, "", 4.0, 6.0),
          state("waiting"),
          state("failed", 7, "", 0.7),
        ),
      )
    )
  )
  lines = text.splitlines()
  assert lines[1].split() == [
    *("transformer", "seed", "0", "finished", "100/100"),
    *("BLEU", "31.26", "10.0"),
  ]
  assert lines[2].split()[3:] == ["training", "40/100", "4.0", "6.0"]
  assert lines[3].split()[3:] == ["waiting", "0/100", "0.0"]
  # 6 minutes of one that trains, 10 of one that waits, none of one that failed.
  assert lines[-1] == (
    "1 of 4 runs finished; about 16 minutes of training to go."
  )


def test_a_terminal_is_drawn_over_and_a_file_is_not(jobs, tmp_path):
  class Terminal(io.StringIO):
    def isatty(self):
      return True

  screen, file = Terminal(), io.StringIO()
  states = {job: state("waiting") for job in jobs}
  for stream in (screen, file):
    board = Board(tmp_path, stream)
    board.show(states)
    board.say("something happened")
    board.show(states)
    board.close()
  # Head, four runs and a summary: six lines up before anything else is said.
  assert screen.getvalue().count("\x1b[6F\x1b[J") == 1
  assert file.getvalue().count("\n") == 1 and "\x1b" not in file.getvalue()
  assert log_of(tmp_path).count("something happened") == 2


def test_the_state_is_read_from_what_runs_write(jobs):
  job = jobs[1]
  assert progress.state(job).what == "waiting"
  job.run.mkdir(parents=True)
  (job.run / "log.jsonl").write_text(
    '{"kind": "train", "step": 2, "minutes": 0.5, "eta_minutes": 1.0}\n'
    '{"kind": "validation", "step": 3, "bleu": 4.0, "best_bleu": 5.0, '
    '"minutes": 0.75}\n{"kind": "tra'  # a line that is being written
  )
  result = progress.state(job, working=True)
  assert result == RunState("training", 3, 6, "BLEU 5.00", 0.75, 1.0)
  (job.run / "output.txt").write_text("compiling programs: 1 of 4\n")
  compiling = progress.state(job, working=True)
  assert compiling == RunState("compiling", 3, 6, "BLEU 5.00", 0.75, None)
  assert progress.state(job).what == "stopped"
  assert progress.state(job, failed=True).what == "failed"
