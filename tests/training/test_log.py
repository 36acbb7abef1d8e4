"""Logs that were cut or corrupted."""

import pytest

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.training import log


@pytest.fixture
def open_log(tmp_path):
  """A function: opens the log of a run that resumes after a step."""
  return lambda step: log.Log(tmp_path, read_config(base.get_config()), step)


def lines(folder):
  return (folder / log.FILE).read_text(encoding="utf-8").splitlines()


def test_a_log_that_was_cut_is_continued(tmp_path, caplog, open_log):
  written = open_log(0)
  for step in (1, 2, 3, 4):
    written.record("train", step, {"loss": 1 / step, "minutes": 0.5})
  written.close()
  before = lines(tmp_path)
  with (tmp_path / log.FILE).open("a") as file:
    file.write(before[3][:20])
  open_log(3).close()
  assert lines(tmp_path) == before[:3]  # to the byte
  assert caplog.text == ""


def test_corrupt_lines_are_reported(tmp_path, caplog, open_log):
  good = '{"kind": "train", "step": %d, "minutes": 0.5, "loss": 2.0}'
  bad = [
    good.replace("train", "tr\x00in"),
    good.replace("step", "stfp"),
    *("7", "[1]", "null"),
    good.replace("0.5", '"0.5"'),
    good.replace("%d", '"a"'),
    good.replace("2.0", "{}"),
    *("[" * 100_000, "1" * 10_000, good[9:]),
  ]
  content = [(good % 1).encode(), b"\xff\xfe{", *map(str.encode, bad)]
  content.append((good % 2).encode())
  (tmp_path / log.FILE).write_bytes(b"".join(b"%s\n" % one for one in content))
  result, corrupt = log.records(tmp_path)
  assert [record["step"] for record in result] == [1, 2]
  assert corrupt == list(range(2, 3 + len(bad)))
  open_log(1).close()
  assert lines(tmp_path) == [good % 1]
  assert "dropped corrupt lines: 2, 3, 4" in caplog.text
