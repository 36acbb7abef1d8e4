"""Progress: on a terminal bars, elsewhere lines, on standard output nothing."""

import io
import os
import pty
import re
import subprocess
import sys
import threading
import time

import pytest

from jaxsyn import progress
from jaxsyn.training.hosts import shutdown
from jaxsyn.training.log import Log

WORK = """
import time
from jaxsyn import progress
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


def on_a_terminal(output):
  """What is drawn on a terminal while WORK runs, its output there or elsewhere."""
  ours, theirs = pty.openpty()
  sampled = []

  def read():
    while True:
      try:
        if not (data := os.read(ours, 1 << 16)):
          return
      except OSError:  # the other end is closed
        return
      sampled.append(data)

  reader = threading.Thread(target=read)
  reader.start()
  environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
  subprocess.run(
    [sys.executable, "-c", WORK],
    check=True,
    stdout=output or theirs,
    stderr=theirs,
    env=environment,
  )
  os.close(theirs)
  reader.join()
  os.close(ours)
  text = b"".join(sampled).decode()
  return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_terminal_shows_bars_and_what_is_printed():
  sampled = on_a_terminal(None)
  assert "parsing" in sampled and re.search(r"\d+ of 40 chunks", sampled)
  assert "lines/s" in sampled and "s left" in sampled
  assert re.search(r"inside.*\d of 3 files", sampled)
  assert "loss 1.5" in sampled
  # As it is, once, and the end without a bar around it.
  assert sampled.count("a line [bold] of text") == 1
  assert sampled.strip().endswith("the end")


def test_what_goes_to_a_file_is_not_drawn_on_the_terminal(tmp_path):
  with (tmp_path / "out").open("w") as file:
    sampled = on_a_terminal(file)
  assert (tmp_path / "out").read_text() == "a line [bold] of text\nthe end\n"
  assert "a line" not in sampled and "parsing" in sampled


def told(capsys, line):
  """Whether a line comes on standard error; others may be before it."""
  end, text = time.monotonic() + 20, ""
  while time.monotonic() < end:
    out, err = capsys.readouterr()
    assert out == ""
    text += err
    if any(re.fullmatch(line, one) for one in text.splitlines()):
      return True
    time.sleep(0.01)
  return False


def test_elsewhere_a_line_comes_now_and_then(capsys, monkeypatch):
  monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.02)
  speed = r"[\d,.]+ lines/s, [\d.]+ (s|min|h) left"
  with progress.bar("parsing", 29_000, unit="line") as bar:
    # Also while nothing is finished.
    assert told(capsys, "parsing: 0 of 29,000 lines")
    bar.advance(1450)
    assert told(capsys, rf"parsing: 1,450 of 29,000 lines, {speed}")
  with progress.bar("reading", unit="sentence", speed=False) as bar:
    bar.advance()
    assert told(capsys, "reading: 1 sentence")
  with progress.bar("translating", unit="sentence", note=lambda: "busy"):
    assert told(capsys, "translating: 0 sentences, busy")
  capsys.readouterr()
  time.sleep(0.3)
  assert capsys.readouterr() == ("", "")  # it is over


def test_what_ends_earlier_tells_that_end(monkeypatch):
  now = 0.0
  monkeypatch.setattr(progress.time, "monotonic", lambda: now)
  bar = progress.Bar("training", 2000, unit="step", silent=True)
  now = 100.0
  bar.advance(10)
  assert bar._words() == "10 of 2,000 steps, 0.1 steps/s, 5.5 h left"
  bar.set_time_limit(90)  # as 2.5 of 4 minutes were over, and 5.5 h told
  now = 110.0
  assert bar._words().endswith(", 80 s left")
  bar.set_time_limit(1e9)
  assert bar._words().endswith(" h left")


def test_no_thread_outlives_its_bar():
  # A daemon thread that frees JAX arrays while the interpreter exits aborts the
  # process: `score --force` did, as the note of its bar belongs to a session.
  for _ in range(20):
    with progress.bar("scoring", 10, note=lambda: "") as bar:
      bar.advance()
    names = [thread.name for thread in threading.enumerate()]
    assert "progress" not in names


def test_what_is_short_or_silent_tells_nothing(capsys):
  with progress.bar("parsing", 10, unit="line") as bar:
    bar.advance(10)
  with progress.bar("parsing", 10, unit="line", silent=True) as bar:
    bar.advance(10)
  assert capsys.readouterr() == ("", "")


def test_shows_no_speed_or_time_while_programs_compile(monkeypatch):
  now, compiled = 0.0, 2
  monkeypatch.setattr(progress.time, "monotonic", lambda: now)
  bar = progress.Bar(
    "training",
    100,
    unit="step",
    note=lambda: progress.compiling((compiled, 3)),
    silent=True,
  )
  now = 1000.0
  bar.advance(10)
  words = "10 of 100 steps, compiling programs: 2 of 3"
  assert bar._words() == words
  compiled = 3
  assert bar._words() == "10 of 100 steps"
  now = 1009.0
  bar.advance(9)  # one a second since then, for 81 more
  assert bar._words() == "19 of 100 steps, 1 steps/s, 81 s left"


def test_repeats_the_count_while_a_program_compiles(capsys, monkeypatch):
  """Also if it does not change: compilation takes minutes."""
  monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.02)
  with progress.bar("training", 9, unit="step", note=lambda: "compiling"):
    time.sleep(0.5)
  lines = capsys.readouterr().err.splitlines()
  assert len(lines) > 4 and {*lines} == {"training: 0 of 9 steps, compiling"}


class Writes(io.StringIO):
  """A stream that keeps what each call writes."""

  def __init__(self):
    super().__init__()
    self.written = []

  def write(self, text):
    if text:
      self.written.append(text)
    return len(text)


def test_no_other_thread_can_print_inside_a_line(monkeypatch):
  """Unbuffered, each call writes at once, and another may come between."""
  monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.02)
  streams = Writes(), Writes()
  monkeypatch.setattr(sys, "stderr", streams[0])
  monkeypatch.setattr(sys, "stdout", streams[1])
  with progress.bar("training", 9, unit="step", note=lambda: "compiling"):
    while len(streams[0].written) < 3:
      time.sleep(0.01)
  shutdown.print_error("the end")
  log = Log.__new__(Log)
  log._quiet = False
  log.say("step 3")
  line = "training: 0 of 9 steps, compiling\n"
  assert {*streams[0].written} == {line, "the end\n"}
  assert streams[1].written == ["step 3\n"]


@pytest.mark.parametrize(
  ("seconds", "words"),
  [
    (0.4, "0 s"),
    (99, "99 s"),
    (100, "2 min"),
    (5999, "100 min"),
    (7200, "2.0 h"),
  ],
)
def test_a_time_in_words(seconds, words):
  assert progress.span(seconds) == words
