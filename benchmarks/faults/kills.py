"""Processes that end at any moment, and are started again until they are done.

What is there then must be what an undisturbed process leaves: the same state to
the bit, the same prepared files.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from benchmarks.faults.crew import FOREIGN, HANG, RIGHT, SILENT, Tally, rng_of
from benchmarks.faults.flips import files_of
from benchmarks.faults.world import World
from jaxsyn import progress
from jaxsyn.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 1200.0  # seconds that a process may take altogether
SIGNALS = (signal.SIGKILL,) * 8 + (signal.SIGTERM, signal.SIGINT)


@dataclasses.dataclass(frozen=True)
class Job:
  """A command that can be killed.

  Attributes:
    command: folder -> its words.
    moves: pattern of what appears in the folder while it works; most kills
      come after something did, since starting takes longer than working.
    span: seconds after that in which kills fall.
    result: folder -> what is to be equal.
    share: thirds of all kills.
  """

  command: Callable[[pathlib.Path], list[str]]
  moves: str
  span: float
  result: Callable[[pathlib.Path], object]
  share: int


def state_of(workdir: pathlib.Path) -> object:
  """Step, arrays and page (without its clock) of the newest checkpoint."""
  import jax
  import orbax.checkpoint as ocp

  folder = workdir / "checkpoints"
  step = max(int(p.name) for p in folder.iterdir() if p.name.isdigit())
  with ocp.StandardCheckpointer() as reader:
    state = reader.restore(folder / str(step) / "state")
  leaves, shape = jax.tree.flatten(state)
  page = json.loads((folder / str(step) / "page.json").read_text())
  progress = page["content"]
  del progress["minutes"]
  arrays = [
    (a.dtype.str, a.shape, a.tobytes()) for a in map(np.asarray, leaves)
  ]
  return step, arrays, str(shape), progress


def _config(world: World, directory: pathlib.Path) -> pathlib.Path:
  """A config file of the world, for commands."""
  path = directory.with_suffix(".py")
  path.write_text(
    "import pathlib\nfrom benchmarks.faults.world import World\n"
    "def get_config():\n"
    f"  config = World(pathlib.Path({str(world.folder)!r})).config()\n"
    f"  config.data.directory = {str(directory)!r}\n"
    "  return config\n"
  )
  return path


def jobs(world: World) -> dict[str, Job]:
  """What is killed, by name."""
  python = (sys.executable, "-m")

  def train(workdir: pathlib.Path) -> list[str]:
    return [
      *(*python, "jaxsyn.train", "--workdir", str(workdir)),
      *("--config", str(_config(world, world.prepared))),
      *("--config.train.steps=120", "--config.train.save_every=2"),
      *("--config.train.evaluate_every=40", "--config.train.log_every=10"),
    ]

  def build(directory: pathlib.Path) -> list[str]:
    config = _config(world, directory)
    return [*python, "preprocess.build", "--config", str(config)]

  return {
    "kill.train": Job(train, "checkpoints/*", 3.0, state_of, share=2),
    "kill.prepare": Job(build, "work/*", 2.0, files_of, share=1),
  }


def run(world: World, kills: int, seed: int) -> dict[str, Tally]:
  """Kills until there were as many kills, two thirds of them of training.

  Args:
    world: of `world.make`.
    kills: how many signals are sent, all jobs together.
    seed: of their moments.
  """
  with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name)
    return {
      job: _job(job, made, -(-kills * made.share // 3), place=place, seed=seed)
      for job, made in jobs(world).items()
    }


def _job(
  name: str, job: Job, kills: int, *, place: pathlib.Path, seed: int
) -> Tally:
  """One job, killed so often, in as many runs as that takes."""
  whole = place / f"{name}-whole"
  code, output, _ = _start(job, whole, moment=None, which=None)
  if code or output == HANG:
    raise InputError(
      f"{name}: undisturbed it ends with {code}: {output[-400:]}"
    )
  wanted = job.result(whole)
  tally, sent, number = Tally(), 0, 0
  with progress.bar(name, kills, unit="kill") as bar:
    while sent < kills:
      folder = place / f"{name}-{number}"
      rng, here, ended = rng_of(seed, name, number), 0, False
      number += 1
      while not ended:  # the last run goes on to its end
        with_signal = sent + here < kills
        moment = rng.random() if with_signal else None
        which = SIGNALS[int(rng.integers(len(SIGNALS)))]
        code, output, was_sent = _start(job, folder, moment=moment, which=which)
        here += was_sent
        told = _fault(code, output, which if was_sent else None)
        if told:
          outcome = HANG if told == HANG else FOREIGN
          tally.add(Tally.one(outcome, f"{name} {number}: {told}"))
          break
        ended = code == 0 and not was_sent
      if ended and job.result(folder) != wanted:
        told = f"{name} {number}: another result after {here} kills"
        tally.add(Tally.one(SILENT, told))
      elif ended:
        tally.count[RIGHT] += here
      sent += here
      bar.advance(here)
      shutil.rmtree(folder, ignore_errors=True)
      if not ended and not here:
        break  # it fails without being killed: no use to go on
  return tally


def _start(
  job: Job,
  folder: pathlib.Path,
  *,
  moment: float | None,
  which: signal.Signals | None,
) -> tuple[int, str, bool]:
  """Starts a process, maybe kills it; returns status, output, whether."""
  before = set(folder.glob(job.moves))
  process = subprocess.Popen(
    job.command(folder),
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    env={**os.environ, "TQDM_DISABLE": "1"},
  )
  began, sent = time.monotonic(), False
  try:
    if moment is not None:
      if moment < 0.25:  # while it starts
        time.sleep(moment * 4 * job.span)
      else:
        while process.poll() is None and set(folder.glob(job.moves)) <= before:
          if time.monotonic() - began > PATIENCE:
            return 0, HANG, False
          time.sleep(0.005)
        time.sleep((moment - 0.25) / 0.75 * job.span)
      if which is not None and process.poll() is None:
        process.send_signal(which)
        sent = True
    output, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, output, sent
  except subprocess.TimeoutExpired:
    return 0, HANG, sent
  finally:
    process.kill()
    process.wait()


def _fault(code: int, output: str, which: signal.Signals | None) -> str:
  """What is wrong with how a process ended; "" where nothing is."""
  if output == HANG:
    return HANG
  fine = {0}
  if which is not None:
    # Before it listens a process ends as the system, or Python, does it.
    fine |= {-which, 130, 128 + which}
  early = which == signal.SIGINT and "KeyboardInterrupt" in output
  if code in fine and ("Traceback" not in output or early):
    return ""
  return f"status {code}: {output[-400:]!r}"
