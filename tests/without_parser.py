"""Translation in a process in which no parser is installed."""

from __future__ import annotations

import subprocess
import sys

# The command, in a process without the parsers' packages.
_BARE = """
import runpy, sys
sys.modules |= {"ufal": None, "spacy_udpipe": None, "spacy": None}
runpy.run_module("jaxsyn.translate", run_name="__main__")
"""


def translated(workdir, environment, text: str) -> list[str]:
  """What `jaxsyn translate` answers there.

  Args:
    workdir: the run directory.
    environment: the process's environment.
    text: lines.
  """
  result = subprocess.run(
    [sys.executable, "-c", _BARE, f"--workdir={workdir}", "--beam=1"],
    input=text,
    env=environment,
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stderr
  return result.stdout.splitlines()
