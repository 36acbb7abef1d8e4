"""The runner, with small programs as runs."""

import contextlib
import dataclasses
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

from jaxsyn.comparison import planned_jobs, run_result, runner
from jaxsyn.comparison.runner import MAX_STARTS, JobRunner, ProgressLog
from jaxsyn.config import read_config
from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def jobs(tmp_path, tiny):
  """Two systems with two seeds each."""
  systems = [
    planned_jobs.System(name, read_config(tiny(name)))
    for name in ("transformer", "pascal")
  ]
  return planned_jobs.jobs(tmp_path, systems, (0, 1))


def finish(job):
  """Writes all outputs of a finished run."""
  for folder in (job.run / "test", job.run / "look"):
    folder.mkdir(parents=True)
  job.hypotheses("test").write_text("a")
  result = run_made(job.system.name, job.seed)
  result = dataclasses.replace(result, files=job.output_sums())
  run_result.write(job.result_file, result)


@pytest.fixture
def run_jobs(tmp_path, jobs):
  """A function: jobs, Python code, slots -> end of the runner, its log.

  In the code, `run` is the run directory, and `finish` writes all outputs.
  """
  model = dataclasses.replace(jobs[0], folder=tmp_path / "model")
  finish(model)
  start = f"""
import os, pathlib, shutil, signal, sys, time
run = pathlib.Path(sys.argv[1])
def finish(): shutil.copytree({str(model.run)!r}, run, dirs_exist_ok=True)
"""

  def work(jobs, code, slots=({},)):
    def command(job):
      return [sys.executable, "-S", "-c", start + code, str(job.run)]

    with contextlib.closing(ProgressLog(tmp_path)) as log:
      ended = JobRunner(jobs, command, log, slots).run()
    return ended, (tmp_path / "log.txt").read_text()

  return work


def test_runs_every_job_once_first_seeds_first(jobs, run_jobs):
  ended, log = run_jobs(jobs, "finish()")
  assert (ended.signal, ended.failed) == ("", {})
  assert all(job.finished for job in jobs)
  started = re.findall(r"(\w+ seed \d): starts", log)
  assert started == [job.name for job in jobs]
  assert "finished at step 9 (steps), best validation BLEU 29.50" in log
  left = re.findall(r"finished at .* minutes(.*)", log)
  assert [words.partition(",")[0] for words in left] == [
    "; 3 runs left",
    "; 2 runs left",
    "; 1 run left",
    "",
  ]
  assert all(re.search(r"left, about \d s$", words) for words in left[:-1])
  again, log = run_jobs(jobs, "sys.exit(3)")
  assert again.failed == {}
  assert "4 of 4 runs are finished already" in log


def test_logs_validations_and_the_last_output(jobs, run_jobs, monkeypatch):
  monkeypatch.setattr(runner, "STATUS_SECONDS", 0.1)
  monkeypatch.setattr(runner, "LOG_SECONDS", 0.05)
  code = """
print("compiling the step for 3 shapes", flush=True)
time.sleep(0.5)
record = '{"kind": "validation", "step": 3, "minutes": 0.5, "bleu": 4.25}'
(run / "log.jsonl").write_text(record + "\\n" + '{"kind": "tra')
time.sleep(0.5)
finish()
"""
  _, log = run_jobs(jobs[:1], code)
  messages = re.findall(rf"  {jobs[0].name}: (.*)", log)
  assert list(dict.fromkeys(messages))[:3] == [
    "starts (run 1 of 1)",
    "compiling the step for 3 shapes",
    "step 3/6, validation BLEU 4.25, 0.5 minutes",
  ]


def test_a_run_without_its_outputs_is_not_finished(jobs):
  for job in jobs:
    finish(job)
  assert all(job.finished for job in jobs)
  jobs[0].hypotheses("test").unlink()
  assert not jobs[0].finished
  for job in jobs[1:]:  # only first seeds have attention samples
    (job.run / "look").rmdir()
    assert job.finished == (job.seed > 0)


def test_a_process_stops_when_its_parent_is_killed(tmp_path):
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


def test_rejects_other_data(jobs, tmp_path):
  systems = [jobs[0].system]
  planned_jobs.record_systems(tmp_path, systems)
  planned_jobs.record_systems(tmp_path, systems)
  path = tmp_path / planned_jobs.FILE
  present = jobs[0].system.manifest["splits"]["test"]["records_sha256"]
  text = path.read_text().replace(present, "0" * 64)
  files.write_json(path, checksums.add_checksum(json.loads(text)))
  with pytest.raises(InputError, match="has runs on other data than"):
    planned_jobs.record_systems(tmp_path, systems)


def test_detects_corrupt_files(jobs):
  job = jobs[1]
  finish(job)
  assert job.read_result().facts.minutes == 0.5
  planned_jobs.record_systems(job.folder, [job.system])
  for path in (job.run / run_result.FILE, job.folder / planned_jobs.FILE):
    text = path.read_text()
    changed = text.replace('"minutes": 0.5', '"minutes": 0.4')
    changed = changed.replace('"name"', '"mane"', 1)
    for corrupt in (changed, text[:-20], "[]"):
      path.write_text(corrupt)
      with pytest.raises(InputError, match=rf"{path} is corrupt"):
        job.read_result()
        planned_jobs.record_systems(job.folder, [job.system])
    path.write_text(text)
  job.hypotheses("test").write_text("b")
  message = rf"{job.hypotheses('test')} has .*Delete it, and"
  with pytest.raises(InputError, match=message):
    job.read_result()


def test_continues_after_a_failed_run(jobs, run_jobs):
  code = """
if "pascal" in str(run) and "seed_0" in str(run):
  print("error: the loss became NaN"); sys.exit(2)
finish()"""
  ended, log = run_jobs(jobs, code)
  assert {job.name: message for job, message in ended.failed.items()} == {
    "pascal seed 0": "its process ended with status 2: error: the loss became NaN"
  }
  assert re.findall(r"(\d) runs? left", log) == ["3", "1"]
  assert [job.finished for job in jobs] == [True, False, True, True]


def test_restarts_a_killed_process_while_it_progresses(jobs, run_jobs):
  code = """
with (run / "starts").open("a") as file: file.write("x")
os.kill(os.getpid(), signal.SIGKILL)"""
  ended, _ = run_jobs(jobs[:1], code)
  assert (jobs[0].run / "starts").read_text() == "x" * MAX_STARTS
  assert "was killed (SIGKILL)" in ended.failed[jobs[0]]
  code = f"""
log = run / "log.jsonl"
step = len(log.read_text().splitlines()) if log.exists() else 0
if step == {2 * MAX_STARTS}:
  finish()
else:
  with log.open("a") as file:
    print('{{"kind": "train", "minutes": 0.1, "step": %d}}' % (step + 1), file=file)
  if step % 2: os.kill(os.getpid(), signal.SIGKILL)  # else it exits with 0"""
  ended, _ = run_jobs(jobs[:1], code)
  assert ended.failed == {} and jobs[0].finished


def test_each_slot_has_one_process_at_a_time(jobs, run_jobs):
  code = """
began = time.time(); time.sleep(0.3)
(run / "slot").write_text(f"{os.environ['SLOT']} {began} {time.time()}")
finish()"""
  run_jobs(jobs, code, [{"SLOT": "0"}, {"SLOT": "1"}])
  spans = {}
  for job in jobs:
    slot, began, ended = (job.run / "slot").read_text().split()
    spans.setdefault(slot, []).append((float(began), float(ended)))
  assert sorted(map(len, spans.values())) == [2, 2]
  for one, other in map(sorted, spans.values()):
    assert one[1] <= other[0]


def test_forwards_a_signal_once_and_starts_nothing(jobs, run_jobs):
  code = """
count = []
def note(*_): count.append(1)
signal.signal(signal.SIGTERM, note)
(run / "ready").write_text("")
while not count: time.sleep(0.01)
time.sleep(0.4)
(run / "signals").write_text(str(len(count)))"""

  def stop():
    while not (jobs[0].run / "ready").exists():
      time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

  threading.Thread(target=stop).start()
  ended, _ = run_jobs(jobs, code)
  assert ended.signal == "SIGTERM" and ended.failed == {}
  assert (jobs[0].run / "signals").read_text() == "1"
  assert not jobs[1].run.exists()
