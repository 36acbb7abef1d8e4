"""Several processes train one model in a folder on an object store.

Real processes, real signals, and moto's server. `benchmarks.hosts --folder
s3://...` has the tables of all layouts and all ends.
"""

import functools
import signal

import object_store
import pytest
from test_hosts import OPTIONS

from benchmarks.hosts.processes import Processes
from benchmarks.hosts.runs import difference, steps
from jaxsyn import remote
from jaxsyn.training.reader import Reader

# Who was killed is waited for: here for seconds, and not for a minute.
SOON = """
from jaxsyn import lease
lease.LAPSE = 8.0
"""
# The second checkpoint comes to the store by half.
HALF = """
import time
from jaxsyn import remote

upload = remote.upload

def half(folder, target, names, last=""):
  if "/checkpoints/10" not in str(target):
    return upload(folder, target, names, last)
  upload(folder, target, list(names)[::2])
  print("half of it is there", flush=True)
  time.sleep(100)

remote.upload = half
"""


@pytest.fixture
def start(prepared, environment, bucket):
  """A function of a folder that starts a run there; see `Processes`."""
  words = ["--config", "configs/quickstart.py:pascal"]
  words += [f"--config.data.directory={prepared}"]
  environment = environment | object_store.variables()
  return functools.partial(Processes, words, environment=environment)


def test_a_run_is_killed_ended_and_gone_on_with_there(start, bucket, tmp_path):
  """As one that was never stopped, of one process, in a local folder."""
  folder = f"{bucket}/run"
  run = start(folder, OPTIONS, processes=2, devices=2, code={0: SOON + HALF})
  run.wait_for("half of it is there")
  ended = run.end({1: signal.SIGKILL})
  assert ended.seconds < 30
  assert 0 not in ended.statuses, ended.told
  assert any(
    name.startswith("10/") for name in remote.tags(f"{folder}/checkpoints")
  )
  assert steps(folder) == [5]

  run = start(folder, OPTIONS, processes=2, devices=2, code={0: SOON})
  run.wait_for("train +step 12 ")
  ended = run.end({1: signal.SIGTERM})
  assert ended.statuses == [0, 0], ended.told
  assert "going on from step 5\n" in ended.told[0]
  last = steps(folder)[-1]
  assert f"stopped at step {last} (SIGTERM)" in ended.told[0]
  assert remote.tags(folder, "lock-") == {}

  goal = OPTIONS | {"train.steps": last + 2, "train.evaluate_every": last + 2}
  for place in (folder, tmp_path):
    ended = start(place, goal, devices=2).end()
    assert ended.statuses == [0], ended.told
  assert difference(folder, tmp_path) == (0.0, 0.0)
  pages = [Reader(place).last.page(last + 2) for place in (folder, tmp_path)]
  assert pages[0]["arrays"] == pages[1]["arrays"]
