"""Tests that the benchmark of reading runs on a small synthetic dataset."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_prints_its_figures():
  command = [sys.executable, "-m", "benchmarks.read_speed", "--synthetic=3000"]
  done = subprocess.run(
    [*command, "--seconds=0.1", "--reads=source_tree_distance"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  names = {line.partition("=")[0] for line in done.stdout.splitlines()}
  assert {"cold.padding", "warm.read_cpu"} <= names
