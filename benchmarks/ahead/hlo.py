"""What a compiled program does, read off it.

A collective's time is that of a ring: an all-reduce of n bytes on p devices
sends 2 · n · (p - 1) / p, a gather or a scatter of n bytes half of that.

Before this file: `programs`. After it: `benchmarks.roofline`.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import jax

from benchmarks.ahead.machines import Machine
from jaxsyn.training.mesh import Program

COLLECTIVES = (
  "all-reduce",
  "all-gather",
  "reduce-scatter",
  "all-to-all",
  "collective-permute",
)
# Bits of an element, where the type's name does not say it.
_BITS = {"pred": 8, "bf16": 16}
_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,]*)\]")
_INSTRUCTION = re.compile(
  r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>.*?) (?P<op>[a-z][\w\-]*)\("
)
_LISTED = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_IOTA = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_AXES = re.compile(r"replica_groups=mesh\[(.*?)\]\s*\{(.*?)\}")


@dataclasses.dataclass(frozen=True)
class Instruction:
  """A line of a program's text."""

  name: str
  type: str
  op: str
  line: str

  @property
  def bytes(self) -> int:
    """Of what it gives."""
    total = 0
    for name, sizes in _ARRAY.findall(self.type):
      bits = _BITS.get(name) or int(re.findall(r"\d+", name)[0])
      total += math.prod(int(n) for n in sizes.split(",") if n) * bits // 8
    return total

  @property
  def group(self) -> int:
    """Devices that a collective is among; 0 where it does not say."""
    if match := _LISTED.search(self.line):
      return len(match[1].split(","))
    if match := _AXES.search(self.line):
      size = dict(re.findall(r"'(\w+)'=(\d+)", match[1]))
      return math.prod(int(size[n]) for n in re.findall(r"'(\w+)'", match[2]))
    match = _IOTA.search(self.line)
    return int(match[1]) if match else 0


def instructions(text: str) -> Iterator[Instruction]:
  """All of a program, those inside of fusions and loops too."""
  for line in text.splitlines():
    if match := _INSTRUCTION.match(line):
      yield Instruction(match["name"], match["type"], match["op"], line)


def count(text: str) -> collections.Counter[str]:
  """How often each operation stands in a program; begun and ended are one."""
  return collections.Counter(
    one.op.removesuffix("-start")
    for one in instructions(text)
    if not one.op.endswith("-done")
  )


def callbacks(text: str) -> list[str]:
  """What waits for the host: Python's functions, and transfers."""
  transfers = ("infeed", "outfeed", "send", "recv")
  return [
    one.line.strip()
    for one in instructions(text)
    if one.op in transfers
    or (one.op == "custom-call" and "callback" in one.line)
  ]


@dataclasses.dataclass(frozen=True)
class Collective:
  """All collectives of a kind in a program.

  Attributes:
    number: of them.
    bytes: of their larger side, on each device.
    sent: bytes that each device sends, and gets.
  """

  number: int
  bytes: float
  sent: float


def collectives(text: str, devices: int) -> dict[str, Collective]:
  """By kind; those of a loop count once.

  Args:
    text: of a program.
    devices: that it runs on.
  """
  every = [
    one
    for one in instructions(text)
    if re.sub("-(start|done)$", "", one.op) in COLLECTIVES
  ]
  # The type of what is begun holds what it was given, too.
  ended = {
    begun[1]: one.bytes
    for one in every
    if (begun := re.search(r"-done\(.*?%?([\w.\-]+)\)", one.line))
  }
  made: dict[str, dict[str, tuple[float, float]]] = collections.defaultdict(
    dict
  )
  for one in every:
    if one.op.endswith("-done"):
      continue
    kind = one.op.removesuffix("-start")
    group = one.group or devices
    share = (group - 1) / group
    whole = ended.get(one.name, one.bytes)
    whole *= group if kind == "reduce-scatter" else 1
    times = {"all-reduce": 2 * share, "collective-permute": 1.0}
    # What is done beside other work stands in a TPU's program several times.
    channel = re.search(r"channel_id=\d+", one.line)
    name = channel[0] if channel else one.name
    made[kind][name] = whole, whole * times.get(kind, share)
  return {
    kind: Collective(len(each), *map(sum, zip(*each.values())))
    for kind, each in sorted(made.items())
  }


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a program costs each device.

  Attributes:
    flops, bytes: done and moved as XLA counts them: the body of a loop once.
    arguments, temporaries, peak: bytes of memory.
    collectives: by kind.
  """

  flops: float
  bytes: float
  arguments: int
  temporaries: int
  peak: int
  collectives: dict[str, Collective]

  def seconds(
    self, machine: Machine, flops: float | None = None
  ) -> dict[str, float]:
    """The least that its work, its memory and its network take.

    Args:
      machine: with a chip.
      flops: done, where more is known than XLA counts.
    """
    target = machine.target
    assert target is not None
    sent = sum(one.sent for one in self.collectives.values())
    return {
      "compute": (self.flops if flops is None else flops) / target.chip.flops,
      "memory": self.bytes / target.chip.bandwidth,
      "network": sent / target.network,
    }


def cost(program: Program, machine: Machine) -> Cost:
  """The cost of a program that was compiled for a machine."""
  memory: Any = program.memory_analysis()
  counted = program.cost_analysis() or _counted(program)
  return Cost(
    flops=float(counted["flops"]),
    bytes=float(counted["bytes accessed"]),
    arguments=memory.argument_size_in_bytes,
    temporaries=memory.temp_size_in_bytes,
    peak=memory.peak_memory_in_bytes,
    collectives=collectives(program.as_text() or "", len(machine.devices)),
  )


def _counted(program: Program) -> dict[str, float]:
  """XLA's count of a program whose compiler gives none, as that for GPUs."""
  from jaxlib import _jax  # not public: only where it is needed

  executable: Any = program.runtime_executable()
  (module,) = executable.hlo_modules()
  return _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
