"""Programs that parse: right ones, and those that die, hang or say too much."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import parsers_under_test
import pytest

from jaxsyn.data.sentence.parsers.command import CommandSpec
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT

# A tree of words that all depend on the first; `answer` is what is done with it.
TOY = """
import os, sys, time
def tree(words):
  return "".join(
    f"{i}\\t{w}\\t_\\t_\\t_\\t_\\t{int(i > 1)}\\t{'dep' if i > 1 else 'root'}\\t_\\t_\\n"
    for i, w in enumerate(words, 1)
  ) + "\\n"
def say(text):
  sys.stdout.write(text)
  sys.stdout.flush()
for line in sys.stdin:
  words = line.split()
"""
RIGHT = "  say(tree(words))\n"


def toy(tmp_path: pathlib.Path, answer: str, **options) -> CommandSpec:
  script = parsers_under_test.program(tmp_path, TOY + answer)
  return CommandSpec(parsers_under_test.command(script), **options)


@pytest.mark.parametrize("batch", [1, 3, 1000, 0])
def test_trees_are_those_of_the_library(tmp_path, shared_data, batch):
  model = shared_data / "udpipe" / "german.udpipe"
  script = parsers_under_test.program(tmp_path)
  line = parsers_under_test.command(script, model)
  lines = [f"Der Hund Nummer {i} läuft. Er schläft im Haus." for i in range(20)]
  direct = UDPipe(model)
  parser = CommandSpec(line, batch=batch).open()
  assert parser.parses(lines) == direct.parses(lines)


@pytest.mark.parametrize("batch", [1, 0, 2000])
def test_neither_waits_for_the_other(tmp_path, batch):
  """More than a pipe holds goes in before anything comes out, and back."""
  answer = "  say(tree(words)) if len(words) else None\n"
  if batch:
    answer = (
      "  kept = globals().setdefault('kept', [])\n"
      "  kept.append(tree(words))\n"
      "  if len(kept) == 40: say(''.join(kept)); kept.clear()\n"
    )
  spec = toy(tmp_path, answer, batch=40 if batch else 0, timeout=60)
  lines = ["word " * 900 for _ in range(120)]
  parses = spec.open().parses(lines)
  assert [len(parse.head_W) for parse in parses] == [900] * 120
  assert all(parse.parsed for parse in parses)


FAULTS = {
  "dies": (
    "  if 'two' in words: print('no memory left', file=sys.stderr); os._exit(3)\n"
    + RIGHT,
    r"has ended with status 3; at the line 'two'. Its standard .*no memory left$",
  ),
  "is killed": (
    "  if 'two' in words: os.kill(os.getpid(), 9)\n" + RIGHT,
    r"was killed \(SIGKILL\); at the line 'two'",
  ),
  "hangs": (
    "  if 'two' in words: time.sleep(1000)\n" + RIGHT,
    r"has not answered for 2 s .*; at the line 'two'",
  ),
  "no columns": (
    "  say('1 one\\n\\n' if 'two' in words else tree(words))\n",
    r"wrote no CoNLL-U \(.*1 columns.*\); at the line 'two'",
  ),
  "no tree": (
    "  say(tree(words).replace('root', 'x').replace('\\t0\\t', '\\t1\\t')\n"
    "      if 'two' in words else tree(words))\n",
    r"wrote no CoNLL-U \(.*no root.*\); at the line 'two'",
  ),
  "no UTF-8": (
    "  os.write(1, b'\\xff\\n\\n') if 'two' in words else say(tree(words))\n",
    r"wrote what is no UTF-8; at the line 'two'",
  ),
  "joins lines": (
    "  say(tree([*words, 'three']) if 'two' in words else tree(words))\n",
    r"took it and the next line for one sentence; at the line 'two'",
  ),
  "one too many": (
    "  say(tree(words) + (tree(['four']) if 'three' in words else ''))\n",
    r"wrote more trees than it has words for; at the line 'three'",
  ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_told_with_its_line(tmp_path, name):
  answer, message = FAULTS[name]
  parser = toy(tmp_path, answer, timeout=2.0 if name == "hangs" else 60).open()
  with pytest.raises(InputError, match=message) as caught:
    parser.parses(["one", "two", "three"])
  assert "\n" not in str(caught.value)


def test_trees_that_are_too_few_at_the_end(tmp_path):
  answer = "  if words != ['two']: say(tree(words))\n"
  parser = toy(tmp_path, answer, batch=0).open()
  message = r"wrote 2 trees for 3 lines, which are not theirs"
  with pytest.raises(InputError, match=message):
    parser.parses(["one", "two", "three"])


def test_a_line_in_other_letters_has_no_tree_and_others_have_theirs(tmp_path):
  answer = (
    "  if 'two' in words: say(tree(['x', 'y']))\n"  # as long
    "  elif 'five' in words: say(tree(['f']) + tree(['ive']))\n"
    "  elif 'four' in words: say(tree(['x']))\n"  # or is more to come?
    "  else: say(tree(words))\n"
  )
  for batch in (1, 2, 7):
    parser = toy(tmp_path, answer, batch=batch).open()
    lines = ["one", "t wo two"[2:4], "two", "four", "five", "six", "seven 8"]
    parsed = [parse.parsed for parse in parser.parses(lines)]
    assert parsed == [True, True, False, False, True, True, True]


def test_what_is_no_command_is_told(tmp_path):
  at = ROOT / "prepare" / "parse" / "source" / "command"
  with pytest.raises(InputError, match=r"source\.command\.line is empty"):
    CommandSpec().resolve(at, "en", tmp_path, {})
  with pytest.raises(InputError, match="'no_parser': there is no such program"):
    CommandSpec("no_parser -x").open()
  with pytest.raises(InputError, match="No closing quotation"):
    CommandSpec("sh -c 'x").open()


def test_its_files_are_part_of_it(tmp_path):
  spec = toy(tmp_path, RIGHT)
  key = spec.open().key
  other = tmp_path / "moved"
  other.mkdir()
  assert toy(other, RIGHT).open().key == key
  assert toy(other, RIGHT + "  pass\n").open().key != key
  assert CommandSpec(spec.line + " --fast").open().key != key
  assert CommandSpec(spec.line, batch=7, timeout=9).open().key == key


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_the_process_that_asked(tmp_path, how):
  """Also what it has started itself, and where it does not look at its input."""
  answer = (
    "  import subprocess, signal\n"
    "  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "  subprocess.Popen(['sleep', '1000'])\n" + RIGHT + "  time.sleep(1000)\n"
  )
  spec = toy(tmp_path, answer)
  code = (
    "import sys, time\n"
    "from jaxsyn.data.sentence.parsers.command import CommandSpec\n"
    f"parser = CommandSpec({spec.line!r}).open()\n"
    "assert parser('one two').parsed\n"
    "print(parser._program._process.pid, flush=True)\n"
    "time.sleep(1000)\n"
  )
  with subprocess.Popen(
    [sys.executable, "-c", code],
    stdout=subprocess.PIPE,
    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
  ) as process:
    group = os.getpgid(int(process.stdout.readline()))
    assert len(alive(group)) == 3  # with the one that watches
    process.send_signal(how)
    process.wait()
  deadline = time.monotonic() + 30
  while alive(group):
    assert time.monotonic() < deadline
    time.sleep(0.05)


def alive(group):
  """Processes of a group, as Linux tells."""
  collected = []
  for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
    with contextlib.suppress(OSError):
      state, _, expected = path.read_text().rpartition(")")[2].split()[:3]
      if int(expected) == group and state != "Z":
        collected.append(path)
  return collected
