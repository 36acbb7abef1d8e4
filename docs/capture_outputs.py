"""Writes the outputs of commands into a page of the documentation.

  git clone . /tmp/copy && cd /tmp/copy
  python docs/capture_outputs.py docs/quickstart.md docs/tutorial.md

Runs the blocks of the pages in order, in the current folder: files and patches
are written, commands are run. A `text` block after commands is replaced by the
end of their output. Use a copy of the repository, since pages change the code.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\S+\.py)\n")
MAX_LINES = 18
# Lines that depend on the speed of the machine.
PROGRESS = re.compile(r"training: \d|compiled in")


def run(language: str, code: str) -> str:
  """Runs a block of a page, and returns its output."""
  if language == "diff":
    subprocess.run(["patch", "-p1"], input=code, text=True, check=True)
  elif language == "python" and (file := FILE.match(code)):
    pathlib.Path(file[1]).write_text(code.partition("\n")[2])
  elif language == "bash":
    done = subprocess.run(
      ["bash", "-euo", "pipefail", "-c", code],
      text=True,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
    )
    if done.returncode:
      sys.exit(f"{code}\n{done.stdout}\nfailed with status {done.returncode}")
    return done.stdout
  return ""


def shortened(output: str) -> str:
  """Returns the last lines of an output without progress, at most MAX_LINES."""
  lines = output.rstrip().splitlines()
  lines = [line for line in lines if not PROGRESS.match(line)]
  if len(lines) > MAX_LINES:
    lines = ["...", *lines[1 - MAX_LINES :]]
  return "\n".join(line.rstrip() for line in lines)


def capture(page: pathlib.Path) -> None:
  """Runs the blocks of a page, and replaces the outputs in it."""
  output = ""

  def replace(block: re.Match[str]) -> str:
    nonlocal output
    language, code = block.groups()
    if language == "text":
      return f"```text\n{shortened(output)}\n```"
    output = run(language, code)
    return block[0]

  page.write_text(BLOCK.sub(replace, page.read_text()))


if __name__ == "__main__":
  for argument in sys.argv[1:]:
    capture(pathlib.Path(argument))
