"""Tests that the benchmark of reading runs on a small synthetic dataset."""

import pathlib
import subprocess
import sys
import types

from benchmarks import read_speed


def test_prints_its_figures(monkeypatch, capsys):
  """The first of its two processes is a real one."""
  check_output, outputs = subprocess.check_output, []

  def run(command, text):
    if not outputs:
      outputs.append(check_output(command, text=text))
    return outputs[0]

  options = ["--reads=source_tree_distance", "--seconds=0.01"]
  monkeypatch.setattr(sys, "argv", ["read_speed", *options])
  monkeypatch.setattr(subprocess, "check_output", run)
  monkeypatch.chdir(pathlib.Path(__file__).resolve().parents[3])
  reading = {"draw": [], "tree_rate": -1, "reads": ["source_tree_distance"]}
  values = {"once": False, "synthetic": 300, "memory_gib": 1.0, **reading}
  read_speed._main(types.SimpleNamespace(**values))
  lines = capsys.readouterr().out.splitlines()
  names = {line.partition("=")[0] for line in lines}
  assert {"cold.read", "warm.read", "examples", "padding"} <= names
