"""Machines by name, as devices to compile for, and what their chips can do.

A topology is a chip and how many: "v5e:1x1", "v5e:2x4", "h100:4". JAX compiles
for it with the wheels of the extra "ahead", without a device or its driver.
"cpu" is the processor here.

After it: `programs`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Callable, Sequence

import jax
from jax.experimental import topologies

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.training import chips

# What XLA asks of a GPU; the device's own answers, as XLA names them.
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000
  l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


@dataclasses.dataclass(frozen=True)
class Target:
  """A chip that can be compiled for.

  Attributes:
    chip: what one can do at most, by its maker.
    memory: bytes on the chip's board.
    network: bytes/s to other chips, each way.
    devices: of a size, e.g. "2x4".
    module: of Python, that compiles for it.
  """

  chip: chips.Chip
  memory: float
  network: float
  devices: Callable[[str], Sequence[jax.Device]]
  module: str


def _tpu(chip: str) -> Callable[[str], Sequence[jax.Device]]:
  def devices(size: str) -> Sequence[jax.Device]:
    options = {"chips_per_host_bounds": [1, 1, 1]} if size == "1x1" else {}
    return topologies.get_topology_desc(
      platform="tpu", topology_name=f"{chip}:{size}", **options
    ).devices

  return devices


def _gpu(config: str) -> Callable[[str], Sequence[jax.Device]]:
  def devices(size: str) -> Sequence[jax.Device]:
    return topologies.get_topology_desc(
      platform="cuda",
      topology_name="",
      target_config=config,
      topology=f"1x1x{size}",  # of one host
    ).devices

  return devices


TARGETS = {
  # cloud.google.com/tpu/docs/v5e: 16 GB, 1,600 Gbit/s between chips.
  "v5e": Target(chips.CHIPS["TPU v5e"], 16e9, 200e9, _tpu("v5e"), "libtpu"),
  # cloud.google.com/tpu/docs/v6e: 32 GB, 800 GB/s between chips, both ways
  # together.
  "v6e": Target(chips.CHIPS["TPU v6e"], 32e9, 400e9, _tpu("v6e"), "libtpu"),
  # NVIDIA's data sheet of the H100 SXM: 80 GB, NVLink of 900 GB/s, both ways
  # together.
  "h100": Target(
    *(chips.CHIPS["NVIDIA H100"], 80e9, 450e9),
    *(_gpu(_H100), "jax_plugins.xla_cuda12"),
  ),
}


@dataclasses.dataclass(frozen=True)
class Machine:
  """What is compiled for; `target` is None for the processor here."""

  name: str
  devices: Sequence[jax.Device]
  target: Target | None = None


def machine(topology: str) -> Machine:
  """The machine of a topology's name.

  To be called before JAX is used: it sets what makes compilers start without
  their devices.

  Raises:
    InputError: the name is none, or what compiles for it is not installed.
  """
  # No accelerator of this machine is asked for.
  jax.config.update("jax_platforms", "cpu")
  if topology == "cpu":
    return Machine(topology, jax.devices())
  kind, _, size = topology.partition(":")
  if kind == "cpu":
    raise InputError(
      f"--topology={topology}: the processor here is 'cpu', without a size."
    )
  target = TARGETS.get(kind)
  if target is None:
    raise InputError(
      f"--topology={topology}: no chip {kind!r}. "
      f"{did_you_mean(kind, [*TARGETS, 'cpu'])}"
    )
  if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", size):
    raise InputError(
      f"--topology={topology} says no number of chips; as in v5e:2x4, h100:4."
    )
  if not installed(kind):
    raise InputError(
      f"--topology={topology} needs compilers that are not installed: "
      "pip install -e '.[ahead]'."
    )
  os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
  os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
  # There is no device to try kernels on.
  fixed = "--xla_gpu_autotune_level=0"
  flags = os.environ.get("XLA_FLAGS", "")
  if fixed not in flags:
    os.environ["XLA_FLAGS"] = f"{flags} {fixed}".strip()
  try:
    devices = target.devices(size)
  except (RuntimeError, ValueError) as error:
    reason = str(error).splitlines()[0].rstrip(".")
    raise InputError(
      f"--topology={topology}: there is no such {kind} ({reason}). Sizes are "
      "as in v5e:2x4, h100:4."
    ) from None
  wanted = math.prod(map(int, size.split("x")))
  if len(devices) != wanted:
    raise InputError(
      f"--topology={topology} has {len(devices)} devices, not {wanted}."
    )
  return Machine(topology, devices, target)


def installed(kind: str) -> bool:
  """Whether what compiles for a chip of TARGETS is."""
  try:
    return importlib.util.find_spec(TARGETS[kind].module) is not None
  except ModuleNotFoundError:  # of the package that it would be in
    return False
