"""Placement of arrays and programs on devices.

`Layout` places train states and batches on devices and compiles programs for them.
With "jit", arrays are cut over a mesh with the axes data, fsdp and tensor; with
"pmap", each device has a replica.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import DictKey

from jaxsyn.data.loader.loader import HostShard
from jaxsyn.errors import InputError
from jaxsyn.training.flops import traced_flops
from jaxsyn.training.options import Mesh as MeshConfig

AXES = ("data", "fsdp", "tensor")

# (state, batch) -> (state, metrics); with pmap, it is also passed axis="data".
Step = Callable[..., tuple[Any, Any]]
Program = jax.stages.Compiled


def make_mesh(
  config: MeshConfig, devices: Sequence[jax.Device] | None = None
) -> Mesh:
  """Returns a mesh of all devices with the sizes in `config.train.mesh`.

  Neighbors in the mesh are neighbors in the machine, so that "tensor", which
  communicates most, has the fastest connections. Between slices (of TPUs; of
  GPUs, the machines), only "data" is cut if its size allows that.

  Args:
    config: Sizes of the axes; -1 takes the remaining devices.
    devices: Devices, which may be those of a topology that is only compiled for;
      None: all devices.

  Raises:
    InputError: The sizes do not multiply to the number of devices.
  """
  devices = jax.devices() if devices is None else devices
  requested = f"config.train.mesh.fsdp={config.fsdp}, tensor={config.tensor}"
  sizes = [config.fsdp, config.tensor]
  if sizes.count(-1) > 1:
    raise InputError(f"{requested}: at most one may be -1 (the rest).")
  sizes.insert(0, 1 if -1 in sizes else -1)
  known = int(np.prod([s for s in sizes if s > 0]))
  sizes = [len(devices) // known if s == -1 else s for s in sizes]
  if int(np.prod(sizes)) != len(devices):
    raise InputError(
      f"{requested} does not divide the {len(devices)} devices there are."
    )
  slices = len({getattr(device, "slice_index", 0) for device in devices})
  if slices == 1:
    ordered = mesh_utils.create_device_mesh(
      sizes, devices, allow_split_physical_axes=True
    )
  elif sizes[0] % slices == 0:
    ordered = mesh_utils.create_hybrid_device_mesh(
      [sizes[0] // slices, *sizes[1:]],
      [slices, 1, 1],
      devices,
      allow_split_physical_axes=True,
    )
  else:  # in JAX's order, slice by slice
    ordered = np.array(devices).reshape(sizes)
  # The axes of jax.make_mesh are explicit, but Flax layers need automatic ones.
  return Mesh(ordered, AXES)


# (module, parameter, number of axes) -> axis that "tensor" cuts, and the option
# that is its size, if the size must be a multiple.
_HEADS, _UNITS = "transformer.heads", "transformer.feed_forward"
_TENSOR_AXES = {
  **{(name, "kernel", 3): (1, _HEADS) for name in ("query", "key", "value")},
  **{(name, "bias", 2): (0, _HEADS) for name in ("query", "key", "value")},
  ("output", "kernel", 3): (0, _HEADS),
  ("inner", "kernel", 2): (1, _UNITS),
  ("inner", "bias", 1): (0, _UNITS),
  ("outer", "kernel", 2): (0, _UNITS),
  ("source_table", "embedding", 2): (0, ""),
  ("target_table", "embedding", 2): (0, ""),
  ("output", "kernel", 2): (1, ""),  # an output layer that is not tied
}


def parameter_spec(path: Sequence[Any], x: Any, mesh: Mesh) -> PartitionSpec:
  """Returns the partition of a train-state array over the mesh axes.

  "tensor" cuts attention heads, feed-forward units and the vocabulary, as in
  Megatron-LM (Shoeybi et al. 2019, section 3): attention and feed-forward then
  need one all-reduce each. Everything else is replicated over "tensor": norms,
  sizes that it does not divide, and recurrent layers, which would communicate
  at each word. "fsdp" cuts the largest of the other axes that it divides.

  Args:
    path: Path of the array, as `jax.tree_util.tree_map_with_path` gives it. In
      an optimizer state, it ends with the path of the parameter.
    x: The array, or its shape and type.
    mesh: Mesh of the devices.

  Raises:
    InputError: "tensor" does not divide the heads or the feed-forward units.
  """
  spec: list[str | None] = [None] * len(x.shape)
  size = mesh.shape["tensor"]
  axis, option = _tensor_axis(path, x.ndim)
  if size > 1 and axis is not None:
    if x.shape[axis] % size == 0:
      spec[axis] = "tensor"
    elif option:
      raise InputError(
        f"config.model.{option}={x.shape[axis]} is not a multiple of "
        f"config.train.mesh.tensor={size}, which splits it. Set one of them so "
        "that it is."
      )
  size = mesh.shape["fsdp"]
  free = [i for i, n in enumerate(x.shape) if spec[i] is None and n % size == 0]
  if size > 1 and free and x.ndim > 1:
    spec[max(free, key=lambda i: x.shape[i])] = "fsdp"
  return PartitionSpec(*spec)


def _tensor_axis(path: Sequence[Any], ndim: int) -> tuple[int | None, str]:
  """Returns the axis split by tensor parallelism, and its config option."""
  names = [str(key.key) for key in path if isinstance(key, DictKey)]
  module, name = ["", "", *names][-2:]
  if entry := _TENSOR_AXES.get((module, name, ndim)):
    return entry
  # The names of modifiers' parameters end with their axes. A modifier may use
  # only some of the heads, so the size need not be a multiple.
  letters = name.rpartition("_")[2]
  if letters.isupper() and "H" in letters and len(letters) == ndim:
    return letters.index("H"), ""
  # Muon orthogonalizes each matrix of a stack independently.
  if re.fullmatch(r"\d+x\d+", name):
    return 0, ""
  return None, ""


class Layout:
  """Devices of a run, the placement of its arrays, and its compiled programs.

  Attributes:
    mesh: Mesh of the devices.
    is_pmap: Whether steps run with pmap.
    rows: Divisor that the rows of every batch, over all hosts, must have.
    host_shard: Rows of the devices of this host. If "tensor" is cut over hosts, they
      have the same rows.
    compilations: Numbers of compiled programs by purpose.
  """

  def __init__(
    self,
    parallelism: str,
    config: MeshConfig,
    devices: Sequence[jax.Device] | None = None,
  ):
    """Creates the mesh, and determines which batch rows this host has.

    Args:
      parallelism: "jit" or "pmap".
      config: Sizes of the mesh.
      devices: Devices; see `make_mesh`.

    Raises:
      InputError: The mesh does not fit the devices or pmap.
    """
    self.mesh = make_mesh(config, devices)
    self.is_pmap = parallelism == "pmap"
    if self.is_pmap and self.mesh.size != self.mesh.shape["data"]:
      raise InputError(
        "config.train.parallelism='pmap' splits data alone; set "
        "config.train.mesh.fsdp and .tensor to 1."
      )
    self.rows = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
    process_index = jax.process_index()
    by_row = self.mesh.devices.reshape(self.rows, -1)
    parts = [
      part
      for part, row_devices in enumerate(by_row)
      if any(each.process_index == process_index for each in row_devices)
    ]
    self.host_shard = HostShard(tuple(parts), self.rows)
    self.compilations: collections.Counter[str] = collections.Counter()
    self._programs: dict[Any, Program] = {}
    self._flops: dict[Program, float] = {}
    self._replicated = NamedSharding(self.mesh, PartitionSpec())
    self._by_rows = NamedSharding(self.mesh, PartitionSpec(("data", "fsdp")))

  def shardings(self, tree: Any) -> Any:
    """Returns the shardings of a train state's arrays; replicated with pmap."""
    return jax.tree_util.tree_map_with_path(
      lambda path, x: NamedSharding(
        self.mesh, parameter_spec(path, x, self.mesh)
      ),
      tree,
    )

  def with_shardings(self, tree: Any) -> Any:
    """Returns the shapes, types and shardings of a train state's arrays."""
    return jax.tree.map(
      lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
      tree,
      self.shardings(tree),
    )

  def place_state(self, state: Any) -> Any:
    """Places a train state on the devices."""
    return jax.tree.map(jax.device_put, state, self.shardings(state))

  def replicate(self, tree: Any) -> Any:
    """Copies complete arrays to every device."""
    if all(x.is_fully_replicated for x in jax.tree.leaves(tree)):
      return tree
    return jax.jit(lambda x: x, out_shardings=self._replicated)(tree)

  def place_batch(self, batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Builds global arrays of a training batch from this host's rows."""
    if self.is_pmap:
      n = len(self.host_shard.parts)
      batch = {
        name: array.reshape(n, len(array) // n, *array.shape[1:])
        for name, array in batch.items()
      }
    return self.place_rows(batch)

  def place_rows(self, batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Builds global arrays for jitted programs from this host's rows."""
    return {name: self._global_array(array) for name, array in batch.items()}

  def _global_array(self, array: np.ndarray) -> jax.Array:
    parts, of = self.host_shard
    size = len(array) // len(parts)

    def rows_of(index: tuple[slice, ...] | None) -> np.ndarray:
      assert index is not None
      begin, end, _ = index[0].indices(of * size)
      start = parts.index(begin // size) * size
      return array[start : start + end - begin]

    shape = (of * size, *array.shape[1:])
    return jax.make_array_from_callback(shape, self._by_rows, rows_of)

  def compile_train(
    self, step: Step, state: Any, batch: Mapping[str, Any]
  ) -> Program:
    """Returns a training step compiled for the shapes of its arguments.

    Args:
      step: Function of (state, batch, axis=...).
      state: Placed state, which the program donates, or its shapes and
        shardings.
      batch: Placed batch, or its shapes and shardings.
    """
    if not self.is_pmap:
      # Otherwise the compiler could place the new state differently, and the
      # next call would reject it.
      out = self.shardings(state), self._replicated
      step = jax.jit(step, donate_argnums=0, out_shardings=out)
      return self._compile("train", step, state, batch)
    step = jax.pmap(
      functools.partial(step, axis="data"),
      axis_name="data",
      in_axes=(None, 0),  # each device has a replica of the state,
      out_axes=None,  # and computes the same new state
      donate_argnums=0,
      devices=list(self.mesh.devices.flat),
    )
    # With several processes, pmap takes the shapes of arrays with a sharding for
    # those of one process.
    state, batch = jax.tree.map(
      lambda x: jax.core.ShapedArray(x.shape, x.dtype), (state, batch)
    )
    return self._compile("train", step, state, batch)

  def compile(
    self,
    purpose: str,
    function: Callable[..., Any],
    *arguments: Any,
    out_shardings: Any = None,
  ) -> Program:
    """Returns a function compiled for the shapes of its arguments.

    Args:
      purpose: Key in `compilations`.
      function: Function to compile.
      *arguments: Placed arrays, or their shapes and shardings.
      out_shardings: Shardings of the results; None replicates them.
    """
    out = self._replicated if out_shardings is None else out_shardings
    jitted = jax.jit(function, out_shardings=out)
    return self._compile(purpose, jitted, *arguments)

  def _compile(self, purpose: str, jitted: Any, *arguments: Any) -> Program:
    leaves, tree = jax.tree.flatten(arguments)
    shapes = tuple((np.shape(x), str(x.dtype)) for x in leaves)
    key = (purpose, tree, shapes)
    if key not in self._programs:
      program = jitted.lower(*arguments).compile()
      if not self.is_pmap:  # functions of pmap cannot be traced
        traced = jitted.trace(*arguments)  # cached by the compilation
        self._flops[program] = traced_flops(traced.jaxpr.jaxpr)
      self._programs[key] = program
      self.compilations[purpose] += 1
    return self._programs[key]

  def flops(self, program: Program) -> float:
    """Returns the FLOPs of one call of a jitted program, over all devices."""
    return self._flops[program]
