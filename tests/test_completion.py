"""The scripts that `jaxsyn completion` prints; bash's in a real bash."""

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from jaxsyn import completion
from jaxsyn.commands import COMMANDS


@pytest.fixture(scope="module")
def scripts(environment):
  """All three, each as its command prints it, in one process."""
  code = "from jaxsyn import completion as c\nprint('\\0'.join(map(c.script, c.SHELLS)))"
  done = subprocess.run(
    [sys.executable, "-c", code],
    env=environment,
    capture_output=True,
    text=True,
    check=True,
  )
  return dict(zip(completion.SHELLS, done.stdout.split("\0")))


class Bash:
  """A bash at a terminal, for which keys are pressed."""

  def __init__(self, folder):
    self.process, self.file = pty.fork()
    if not self.process:
      os.chdir(folder)
      os.execvpe(
        "bash",
        ["bash", "--norc", "--noprofile"],
        {"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "$ ", "INPUTRC": "/dev/null"},
      )  # fmt: skip

  def until(self, pattern):
    """What appears, up to a pattern."""
    seen, end = "", time.monotonic() + 60
    while not re.search(pattern, seen):
      assert time.monotonic() < end, seen
      if select.select([self.file], [], [], 0.2)[0]:
        seen += os.read(self.file, 4096).decode()
    return seen

  def press(self, keys):
    os.write(self.file, keys.encode())


@pytest.mark.parametrize(
  ("typed", "completed"),
  [
    ("jaxsyn tran", "jaxsyn translate "),
    ("jaxsyn train --workd", "jaxsyn train --workdir "),
    ("jaxsyn prepare --veri", "jaxsyn prepare --verify "),
    ("jaxsyn train --config multi30k_d", "jaxsyn train --config multi30k_de_en"),
    ("jaxsyn train --config multi30k_de_en:pascal_rand", "jaxsyn train --config multi30k_de_en:pascal_random_tree"),
    ("jaxsyn train --config=multi30k_de_en:pascal_rand", "jaxsyn train --config=multi30k_de_en:pascal_random_tree"),
    ("jaxsyn train --config papers/pascal:nc11_en", "jaxsyn train --config papers/pascal:nc11_en_de"),
    ("jaxsyn train --config papers/pascal:nc11_en_de:sis", "jaxsyn train --config papers/pascal:nc11_en_de:sisa"),
    ("jaxsyn train --config min", "jaxsyn train --config mine.py"),
    ("jaxsyn train --config mine.py:gru_glo", "jaxsyn train --config mine.py:gru_global"),
    ("jaxsyn translate --input sent", "jaxsyn translate --input sentences.txt "),
    ("jaxsyn completion z", "jaxsyn completion zsh "),
  ],
)  # fmt: skip
def test_bash_completes(scripts, tmp_path, typed, completed):
  (tmp_path / "jaxsyn.bash").write_text(scripts["bash"])
  for name in ("mine.py", "mine.txt", "sentences.txt"):
    (tmp_path / name).touch()
  bash = Bash(tmp_path)
  bash.press("source ./jaxsyn.bash; echo READY=$?\n")
  bash.until("READY=0")
  # To the start of the line and to its end, to print what it has become.
  bash.press(typed + "\t\x01printf '<%s>' \"\x05\"\n")
  seen = bash.until(r"<jaxsyn[^<\n]*>")
  os.close(bash.file)
  os.waitpid(bash.process, 0)
  assert re.findall(r"<(jaxsyn[^<\n]*)>", seen)[-1] == completed


def test_all_shells_know_commands_flags_and_systems(scripts):
  for script in scripts.values():
    for word in (*COMMANDS, "dev_source", "multi30k_en_de", "deps_san_wink"):
      assert word in script
  assert "-l workdir" in scripts["fish"] and "'--workdir=[" in scripts["zsh"]
