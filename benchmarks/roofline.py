"""What a training step could do at best on a machine that is not there.

  python -m benchmarks.roofline --config configs/multi30k_en_de.py:pascal \\
    --topology v5e:2x4 [--length 64] [--rows 64] [--vocabulary 32000] [--search]

Compiles the step of the config (mesh, dtype and all) for the topology, as
JAX does with the wheels of the extra "ahead", and prints of each device, one
line a figure (name=value unit): FLOPs and bytes, memory, collectives; seconds
that arithmetic, memory and network take at least, and the bound that follows
on MFU, the share of the chip's bfloat16 peak. FLOPs are those of matrix
products; bytes are XLA's count, in which the body of a loop is once, so that
the bound of a recurrent model is a mild one. --search does the same for the
search: reading, and a step of it, on one device.

Sizes are those of the prepared data and its most frequent batch; without it, or
with --length or --vocabulary, of sentences of 64 subwords and of
config.prepare.vocabulary.size. --topology cpu, this processor, has no published
peaks, and so no bounds.

A base model takes minutes. JAX_OPTIMIZATION_LEVEL=O1 is quicker, and its memory
is more than would be needed.
"""

from __future__ import annotations

import time

from absl import flags

from benchmarks.ahead import hlo, machines, programs
from benchmarks.ahead.machines import Machine
from benchmarks.figures import Figures, show
from jaxsyn import cli
from jaxsyn.config import Config, read_config
from jaxsyn.training.flops import product_flops
from jaxsyn.training.mesh import Program

MIB = 2**20


def of_step(task: programs.Task, machine: Machine) -> Figures:
  """Of the training step."""
  began = time.perf_counter()
  program = programs.compile_step(task)
  rows, source = task.batch["source_id_BS"].shape
  target = task.batch["target_id_BT"].shape[1]
  devices = len(machine.devices)
  flops = product_flops(task.step, task.state, task.batch) / devices
  return {
    "devices": (devices, "devices"),
    "rows": (rows / task.layout.rows, "sentences a device"),
    "source": (source, "subwords"),
    "target": (target, "subwords"),
    "vocabulary": (task.plan.spec.target_vocabulary, "subwords"),
    "compiled": (time.perf_counter() - began, "s"),
    **of_program(program, machine, flops),
  }


def of_program(
  program: Program, machine: Machine, flops: float | None = None
) -> dict[str, tuple[float, str]]:
  """Of any program, on each device.

  Args:
    program: compiled.
    machine: for this one.
    flops: that it does, where more is known than XLA counts.
  """
  cost = hlo.cost(program, machine)
  flops = cost.flops if flops is None else flops
  figures = {
    "flops": (flops / 1e9, "GFLOP"),
    "bytes": (cost.bytes / 1e9, "GB"),
    "arguments": (cost.arguments / MIB, "MiB"),
    "temporaries": (cost.temporaries / MIB, "MiB"),
    "peak_memory": (cost.peak / MIB, "MiB"),
  }
  for kind, all_of_it in cost.collectives.items():
    figures[kind] = all_of_it.number, "collectives"
    figures[f"{kind}.bytes"] = all_of_it.bytes / MIB, "MiB"
  if machine.target is None:
    return figures
  seconds = cost.seconds(machine, flops)
  for name, least in seconds.items():
    figures[f"least.{name}"] = 1000 * least, "ms"
  figures["memory_share"] = 100 * cost.peak / machine.target.memory, "% of HBM"
  bound = seconds["compute"] / max(seconds.values())
  figures["mfu_bound"] = 100 * bound, "% of the bfloat16 peak"
  return figures


def run(
  config: Config,
  machine: Machine,
  *,
  search: bool = False,
  rows: int = 0,
  length: int = 0,
  vocabulary: int = 0,
) -> Figures:
  """The figures of a config on a machine; see `programs.task`."""
  task = programs.task(
    config, machine, rows=rows, length=length, vocabulary=vocabulary
  )
  figures = dict(of_step(task, machine))
  if search:
    read, step = programs.compile_search(task, machine)
    for name, program in (("read", read), ("search", step)):
      own = of_program(program, machine)
      figures |= {f"{name}.{figure}": value for figure, value in own.items()}
  return figures


def _main(values: flags.FlagValues) -> None:
  machine = machines.machine(values.topology)
  show(
    run(
      read_config(values.config),
      machine,
      search=values.search,
      rows=values.rows,
      length=values.length,
      vocabulary=values.vocabulary,
    )
  )


if __name__ == "__main__":
  cli.config_flag()
  flags.DEFINE_string("topology", "v5e:2x4", "v5e:1x1, h100:4, ..., or cpu.")
  flags.DEFINE_integer(
    "rows", 0, "Sentences a device; 0: config.batch.tokens.", lower_bound=0
  )
  flags.DEFINE_integer(
    "length", 0, "Subwords a side; 0: of the prepared data.", lower_bound=0
  )
  flags.DEFINE_integer(
    "vocabulary", 0, "Subwords; 0: of the prepared data.", lower_bound=0
  )
  flags.DEFINE_bool("search", False, "Of the search as well.")
  cli.main(_main)
