"""Several processes train one model: is it the same one, and how do they end?

  python -m benchmarks.hosts --config configs/quickstart.py:pascal

Real commands on this machine, their devices simulated, each process with a part
of the four. The first table compares runs over several processes with that of
one, by layout: the largest relative difference of anything logged, and whether
translations are equal. The second stops runs, in every way that there is: the
seconds until all processes are gone, their exit statuses, the last checkpoint,
and how far the run that goes on, in one process, is from one that never stopped.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from absl import flags

from jaxsyn import cli
from jaxsyn.data.store import integrity, manifests
from jaxsyn.errors import InputError
from jaxsyn.training import log

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICES = 4
PATIENCE = 300.0  # seconds after which a run that does not end is killed

LAYOUTS: Mapping[str, Mapping[str, object]] = {
  "data": {},
  "fsdp": {"mesh.data": 1, "mesh.fsdp": 4},
  "tensor": {"mesh.data": 2, "mesh.tensor": 2},
  "tensor over all": {"mesh.data": 1, "mesh.tensor": 4},
  "pmap": {"parallelism": "pmap"},
}

SMALL = {
  "model.width": 32,
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.transformer.feed_forward": 32,
  "batch.tokens": 1024,
  "batch.shapes": 2,
  "train.steps": 40,
  "train.log_every": 10,
  "train.evaluate_every": 20,
  "train.save_every": 20,
  "train.validation_sentences": 20,
}


class Ended(NamedTuple):
  """How the processes of a run ended.

  Attributes:
    seconds: from the signal, or the end of the first, until all were gone.
    statuses: of each.
    told: what each printed.
  """

  seconds: float
  statuses: list[int]
  told: list[str]


class Processes:
  """The processes of one run of `jaxsyn.train`, on simulated devices."""

  def __init__(
    self,
    words: Sequence[str],
    workdir: pathlib.Path,
    options: Mapping[str, object],
    *,
    processes: int = 1,
    devices: int = DEVICES,
    faulty: int | None = None,
    own: Mapping[int, Sequence[str]] | None = None,
    environment: Mapping[str, str] | None = None,
  ):
    """Starts them.

    Args:
      words: --config FILE, and what of it is another than there.
      workdir: of the run.
      options: others of the config, without "config.".
      processes: how many, each with as many of the devices.
      devices: of all.
      faulty: the process that is to raise an exception.
      own: further words of some processes.
      environment: None: this process's own.
    """
    arguments = [*words, "--workdir", str(workdir)]
    arguments += [f"--config.{name}={value}" for name, value in options.items()]
    if processes > 1:
      arguments += [f"--coordinator=127.0.0.1:{free_port()}"]
      arguments += [f"--processes={processes}"]
    # A thread pool of few cores would dead-lock in collectives.
    simulated = {
      "JAX_PLATFORMS": "cpu",
      "JAX_NUM_CPU_DEVICES": str(devices // processes),
      "PJRT_NPROC": "64",
    }
    self._open = contextlib.ExitStack()
    self._files = [
      self._open.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115  # end() closes it
      for _ in range(processes)
    ]
    self.processes = [
      subprocess.Popen(
        [
          sys.executable,
          *(["-c", FAULTY] if i == faulty else ["-m", "jaxsyn.train"]),
          *arguments,
          *([f"--process={i}"] if processes > 1 else []),
          *(own or {}).get(i, []),
        ],
        cwd=ROOT,
        env={**(environment or os.environ), **simulated},
        stdout=file,
        stderr=subprocess.STDOUT,
      )
      for i, file in enumerate(self._files)
    ]

  def wait_for(self, text: str, process: int = 0) -> None:
    """Returns when a process has printed what matches, or ended."""
    while self.processes[process].poll() is None:
      if re.search(text, self.told(process)):
        return
      time.sleep(0.05)

  @property
  def alive(self) -> bool:
    """Whether all of them still run."""
    return all(process.poll() is None for process in self.processes)

  def told(self, process: int) -> str:
    """What it has printed so far."""
    file = self._files[process].fileno()
    return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

  def end(self, signals: Mapping[int, signal.Signals] | None = None) -> Ended:
    """Waits until all are gone.

    Args:
      signals: that are sent to some before.
    """
    began = time.monotonic()
    for i, number in (signals or {}).items():
      self.processes[i].send_signal(number)
    last = began + PATIENCE
    since = began if signals else None
    try:
      while None in (now := [each.poll() for each in self.processes]):
        if since is None and now.count(None) < len(now):
          since = time.monotonic()
        if time.monotonic() > last:
          break
        time.sleep(0.02)
    finally:
      for process in self.processes:
        process.kill()
    seconds = time.monotonic() - (since or time.monotonic())
    statuses = [process.wait() for process in self.processes]
    told = [self.told(i) for i in range(len(self.processes))]
    self._open.close()
    return Ended(seconds, statuses, told)


def free_port() -> int:
  """One that nobody listens at."""
  with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    return probe.getsockname()[1]


def steps(workdir: pathlib.Path) -> list[int]:
  """Of the checkpoints that a run has kept."""
  folder = workdir / "checkpoints"
  names = [path.name for path in folder.glob("*")] if folder.is_dir() else []
  return sorted(int(name) for name in names if name.isdigit())


TIMES = ("time", "tokens_per_s", "waiting", "flops", "minutes", "seconds")


class Difference(NamedTuple):
  """The largest relative ones of what two runs logged.

  Attributes:
    scores: of losses, and of all that validation says.
    gradient: of the gradient's norm, which jumps where a rounding moves a unit
      over the kink of its ReLU.
  """

  scores: float
  gradient: float


def difference(
  one: pathlib.Path, other: pathlib.Path, after: int = 0
) -> Difference:
  """Between two runs, after a step.

  Raises:
    InputError: they did not log the same lines.
  """
  logs = [
    {
      (record["kind"], record["step"]): record
      for record in log.records(workdir)[0]
      if record["step"] > after
    }
    for workdir in (one, other)
  ]
  if logs[0].keys() != logs[1].keys() or not logs[0]:
    raise InputError(f"{one} and {other} logged other steps.")
  worst = {True: 0.0, False: 0.0}
  for key, record in logs[0].items():
    for name, value in record.items():
      if isinstance(value, float) and not name.endswith(TIMES):
        largest = max(abs(value), abs(logs[1][key][name]), 1e-30)
        share = abs(value - logs[1][key][name]) / largest
        gradient = name == "grad_norm"
        worst[gradient] = max(worst[gradient], share)
  return Difference(scores=worst[False], gradient=worst[True])


def translations(workdir: pathlib.Path, lines: Sequence[str]) -> str:
  """Of some lines, by the last checkpoint of a run, on one device."""
  command = [sys.executable, "-m", "jaxsyn.translate", "--workdir"]
  done = subprocess.run(
    [*command, str(workdir), "--checkpoint=last"],
    input="".join(line + "\n" for line in lines),
    capture_output=True,
    text=True,
    cwd=ROOT,
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
  )
  if done.returncode:
    raise InputError(done.stderr)
  return done.stdout


def compare_layouts(
  words: Sequence[str],
  folder: pathlib.Path,
  lines: Sequence[str],
  counts: Sequence[int],
) -> Iterator[str]:
  """Rows of the first table.

  Args:
    words: of the command, as for `Processes`.
    folder: of the runs.
    lines: to translate.
    counts: of processes that are compared with one.
  """
  yield "| layout | processes | scores | gradient | translations |"
  yield "|---|---|---|---|---|"
  for name, options in LAYOUTS.items():
    layout = {f"train.{key}": value for key, value in options.items()}
    one = folder / f"{name} 1"
    _finish(Processes(words, one, SMALL | layout))
    expected = translations(one, lines)
    for count in counts:
      several = folder / f"{name} {count}"
      _finish(Processes(words, several, SMALL | layout, processes=count))
      same = translations(several, lines) == expected
      apart = difference(one, several)
      yield (
        f"| {name} | {count} | {apart.scores:.1e} | {apart.gradient:.1e} | "
        f"{'equal' if same else 'DIFFER'} |"
      )


def _finish(run: Processes) -> None:
  """Waits for the end; InputError if it is not a good one."""
  ended = run.end()
  if any(ended.statuses):
    raise InputError(
      f"a run ended with {ended.statuses}:\n" + "\n".join(ended.told)
    )


# The command, but that this process has a fault of its own after some batches.
FAULTY = """
import runpy
from jaxsyn.data.loader import split

changed, calls = split.changed, 0

def faulty(batch, change):
  global calls
  calls += 1
  if calls > 60:
    raise RuntimeError("a fault of this process alone")
  return changed(batch, change)

split.changed = faulty
runpy.run_module("jaxsyn.train", run_name="__main__", alter_sys=True)
"""


class Ending(NamedTuple):
  """A way to end a run of two processes.

  Attributes:
    options: of the config, beside SMALL.
    signals: what is sent to which process, once it has logged some steps.
    faulty: whether process 1 raises an exception of its own.
    saves: whether a step is saved that the run can go on from.
  """

  options: Mapping[str, object] = {}
  signals: Mapping[int, signal.Signals] = {}
  faulty: bool = False
  saves: bool = True


_ENDLESS = {
  "train.steps": 100_000,
  "train.evaluate_every": 50_000,
  "train.log_every": 1,
}
_NO_PROGRESS = {
  "train.patience": 1,
  "train.evaluate_every": 20,
  "optimiser.learning_rate": 1e-12,
}
ENDINGS: Mapping[str, Ending] = {
  "SIGTERM to 0": Ending(signals={0: signal.SIGTERM}),
  "SIGTERM to 1": Ending(signals={1: signal.SIGTERM}),
  "SIGINT to both": Ending(signals={0: signal.SIGINT, 1: signal.SIGINT}),
  "minutes": Ending({"train.minutes": 0.05}),
  "patience": Ending(_NO_PROGRESS),
  "NaN": Ending({"optimiser.learning_rate": 1e30}, saves=False),
  "SIGKILL of 0": Ending(signals={0: signal.SIGKILL}),
  "SIGKILL of 1": Ending(signals={1: signal.SIGKILL}),
  "exception in 1": Ending(faulty=True),
}


def compare_endings(
  words: Sequence[str], folder: pathlib.Path
) -> Iterator[str]:
  """Rows of the second table; arguments as of `compare_layouts`."""
  yield "| ended by | seconds | statuses | last step saved | difference after it |"
  yield "|---|---|---|---|---|"
  for name, ending in ENDINGS.items():
    workdir = folder / name
    options = SMALL | _ENDLESS | dict(ending.options)
    run = Processes(
      words,
      workdir,
      options,
      processes=2,
      faulty=1 if ending.faulty else None,
    )
    if ending.signals:
      run.wait_for("train +step 70 ")
    ended = run.end(ending.signals)
    for number, told in enumerate(ended.told):
      (folder / f"{name}.{number}.log").write_text(told)
    saved = (steps(workdir) or [0])[-1]
    after = "-"
    if ending.saves:
      # Both by one process; the other from the first step on.
      goal = options | {"train.steps": saved + 20, "train.minutes": 0.0}
      goal |= {"train.patience": 0, "train.evaluate_every": 50_000}
      _finish(Processes(words, workdir, goal))
      straight = folder / f"{name} straight"
      _finish(Processes(words, straight, goal))
      after = f"{difference(workdir, straight, after=saved).scores:.1e}"
    yield (
      f"| {name} | {ended.seconds:.1f} | {ended.statuses} | {saved} | {after} |"
    )


def _main(values: flags.FlagValues) -> None:
  own = re.compile("--?(no)?(processes|layouts|endings|folder)(=|$)")
  words = [word for word in sys.argv[1:] if not own.match(word)]
  data = values.config.data
  source = integrity.read_text(
    data.directory, manifests.read(data.directory), data.validation, "source"
  )
  with tempfile.TemporaryDirectory() as made:
    folder = pathlib.Path(values.folder or made)
    folder.mkdir(parents=True, exist_ok=True)
    if values.layouts:
      counts = [int(count) for count in values.processes]
      for row in compare_layouts(words, folder, source[:20], counts):
        print(row, flush=True)
    if values.endings:
      for row in compare_endings(words, folder):
        print(row, flush=True)


if __name__ == "__main__":
  cli.config_flag()
  flags.DEFINE_list(
    "processes", ["2", "4"], "Numbers of processes compared with one."
  )
  flags.DEFINE_bool("layouts", True, "Whether the first table is made.")
  flags.DEFINE_bool("endings", True, "Whether the second table is made.")
  flags.DEFINE_string("folder", "", "Keeps the runs and what they said.")
  cli.main(_main)
