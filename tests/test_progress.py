"""Tests progress bars on a terminal, and progress lines elsewhere."""

import io
import os
import pty
import re
import subprocess
import sys
import threading
import time

import pytest

from jaxsyn.training import hosts
from jaxsyn.training.log import Log
from jaxsyn.utils import progress

WORK = """
import time
from jaxsyn.utils import progress
from rich.text import Text
with progress.bar("parsing", 40, unit="chunk", per="line") as outer:
  for i in range(40):
    outer.advance(amount=7)
    if i == 20:
      print("a line [bold] of text")
      outer.show(Text("loss 1.5"))
      with progress.bar("inside", 3, unit="file") as inner:
        for _ in range(3):
          time.sleep(0.3)
          inner.advance()
    time.sleep(0.03)
print("the end")
"""


@pytest.mark.parametrize("to_file", [False, True])
def test_a_terminal_shows_bars_and_the_text_printed_on_it(to_file, tmp_path):
  ours, theirs = pty.openpty()
  blocks = []

  def read():
    try:
      while data := os.read(ours, 1 << 16):
        blocks.append(data)
    except OSError:  # the other end is closed
      pass

  reader = threading.Thread(target=read)
  reader.start()
  with (tmp_path / "out").open("w") as file:
    subprocess.run(
      [sys.executable, "-c", WORK],
      check=True,
      stdout=file if to_file else theirs,
      stderr=theirs,
      env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
  os.close(theirs)
  reader.join()
  os.close(ours)
  shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(blocks).decode())
  assert "parsing" in shown and re.search(r"\d+ of 40 chunks", shown)
  assert "lines/s" in shown and "s left" in shown
  assert re.search(r"inside.*\d of 3 files", shown)
  assert "loss 1.5" in shown
  # Printed text is unchanged, and no bar remains.
  printed = (tmp_path / "out").read_text() if to_file else shown
  assert printed.count("a line [bold] of text") == 1
  assert printed.strip().endswith("the end")
  assert ("a line" in shown) != to_file


def wait_for_line(capsys, line):
  """Waits until standard error has a line that matches."""
  end, text = time.monotonic() + 20, ""
  while time.monotonic() < end:
    out, err = capsys.readouterr()
    assert out == ""
    text += err
    if any(re.fullmatch(line, one) for one in text.splitlines()):
      return
    time.sleep(0.01)
  raise AssertionError(text)


def test_prints_lines_without_a_terminal(capsys, monkeypatch):
  monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.02)
  speed = r"[\d,.]+ lines/s, [\d.]+ (s|min|h) left"
  with progress.bar("parsing", 29_000, unit="line") as bar:
    # Also before anything is finished.
    wait_for_line(capsys, "parsing: 0 of 29,000 lines")
    bar.advance(1450)
    wait_for_line(capsys, rf"parsing: 1,450 of 29,000 lines, {speed}")
  with progress.bar("reading", unit="sentence", speed=False) as bar:
    bar.advance()
    wait_for_line(capsys, "reading: 1 sentence")
  with progress.bar("translating", unit="sentence", note=lambda: "busy"):
    for _ in range(3):  # again although the count is the same
      wait_for_line(capsys, "translating: 0 sentences, busy")
  for silent in (False, True):
    with progress.bar("short", 10, unit="line", silent=silent) as bar:
      bar.advance(10)
  capsys.readouterr()
  time.sleep(0.3)
  assert capsys.readouterr() == ("", "")


def test_speed_and_remaining_time(monkeypatch):
  now, compiled = 0.0, 2
  monkeypatch.setattr(progress.time, "monotonic", lambda: now)
  bar = progress.Bar(
    "training",
    2000,
    unit="step",
    silent=True,
    note=lambda: progress.compiling((compiled, 3)),
  )
  now = 1000.0
  bar.advance(10)
  assert bar._words() == "10 of 2,000 steps, compiling programs: 2 of 3"
  compiled = 3
  assert bar._words() == "10 of 2,000 steps"
  now = 1100.0
  bar.advance(9)  # too few to tell the remaining time
  assert bar._words() == "19 of 2,000 steps, 0.09 steps/s"
  bar.advance(1)  # in the 100 s since the programs were compiled
  assert bar._words() == "20 of 2,000 steps, 0.1 steps/s, 5.5 h left"
  bar.set_time_limit(90)
  now = 1110.0
  assert bar._words().endswith(", 80 s left")
  # Units have their English plurals.
  bar = progress.Bar("validating", 7, unit="batch", silent=True, speed=False)
  bar.advance()
  assert bar._words() == "1 of 7 batches"
  memory = progress.Bar("fetching", unit="MiB", silent=True, speed=False)
  memory.advance(12)
  assert memory._words() == "12 MiB"


def test_no_thread_outlives_its_bar():
  # A daemon thread that frees JAX arrays while the interpreter exits aborts the
  # process: `score --force` did, as the note of its bar belongs to a session.
  for _ in range(20):
    with progress.bar("scoring", 10, note=lambda: "") as bar:
      bar.advance()
    names = [thread.name for thread in threading.enumerate()]
    assert "progress" not in names


class Writes(io.StringIO):
  """A stream that records what each call writes."""

  def __init__(self):
    super().__init__()
    self.written = []

  def write(self, text):
    self.written += [text] if text else []
    return len(text)


def test_each_line_is_one_write(monkeypatch):
  """Unbuffered, each call writes at once, and another may come between."""
  monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.02)
  out, err = Writes(), Writes()
  monkeypatch.setattr(sys, "stderr", err)
  monkeypatch.setattr(sys, "stdout", out)
  with progress.bar("training", 9, unit="step", note=lambda: "compiling"):
    while len(err.written) < 3:
      time.sleep(0.01)
  hosts.print_error("the end")
  log = Log.__new__(Log)
  log._is_silent = False
  log.say("step 3")
  line = "training: 0 of 9 steps, compiling\n"
  assert {*err.written} == {line, "the end\n"}
  assert out.written == ["step 3\n"]


def test_durations_are_formatted_with_units():
  expected = {
    0.4: "0 s",
    99: "99 s",
    100: "2 min",
    5999: "100 min",
    7200: "2.0 h",
  }
  assert {seconds: progress.span(seconds) for seconds in expected} == expected
