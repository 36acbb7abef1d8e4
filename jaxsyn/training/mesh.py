"""Where a step runs: one program for one chip, a slice, or many hosts.

`Layout` puts states and batches on devices and compiles steps, one a static
shape. "jit" lays arrays over a mesh ("data", "fsdp", "tensor"); "pmap" wraps
the same step for those who want one replica a device.
"""

from __future__ import annotations

import collections
import functools
import gc
import os
import pathlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import DictKey

from jaxsyn.data.loader.loader import HostShard
from jaxsyn.errors import InputError
from jaxsyn.storage import cache, remote
from jaxsyn.training.flops import traced_flops
from jaxsyn.training.memory import keep_memory
from jaxsyn.training.options import Mesh as MeshConfig

AXES = ("data", "fsdp", "tensor")

# (state, batch) -> (state, metrics); under pmap called with axis="data" too.
Step = Callable[..., tuple[Any, Any]]
Program = jax.stages.Compiled


def make_mesh(
  config: MeshConfig, devices: Sequence[jax.Device] | None = None
) -> Mesh:
  """All devices in the shape of `config.train.mesh`; -1 takes what is left.

  Devices that are neighbours in the mesh are neighbours in the machine, as JAX
  knows it: "tensor", which speaks most, has the shortest ways. Between slices
  (of TPUs; of GPUs the machines), which only a network connects, "data" alone is
  cut where its size allows that.

  Args:
    config: sizes of the axes.
    devices: None: all there are. They may be of a machine that is not there, to
      compile for.

  Raises:
    InputError: the sizes do not multiply to the number of devices.
  """
  devices = jax.devices() if devices is None else devices
  sizes = [config.data, config.fsdp, config.tensor]
  requested = f"config.train.mesh={dict(zip(AXES, sizes))}"
  known = int(np.prod([s for s in sizes if s > 0]))
  if sizes.count(-1) > 1 or any(s == 0 or s < -1 for s in sizes):
    raise InputError(
      f"{requested}: sizes are 1 or more, and at most one may be -1 (the rest)."
    )
  sizes = [len(devices) // known if s == -1 else s for s in sizes]
  if int(np.prod(sizes)) != len(devices):
    raise InputError(
      f"{requested} does not make up the {len(devices)} devices there are."
    )
  slices = len({getattr(device, "slice_index", 0) for device in devices})
  if slices == 1:
    placed = mesh_utils.create_device_mesh(
      sizes, devices, allow_split_physical_axes=True
    )
  elif sizes[0] % slices == 0:
    placed = mesh_utils.create_hybrid_device_mesh(
      [sizes[0] // slices, *sizes[1:]],
      [slices, 1, 1],
      devices,
      allow_split_physical_axes=True,
    )
  else:  # in the order in which JAX lists them, slice after slice
    placed = np.array(devices).reshape(sizes)
  # Mesh, not make_mesh: its axes are automatic, which Flax layers need.
  return Mesh(placed, AXES)


# Which axis "tensor" splits, and the option that is its size, by the module, the
# name and the number of axes of a parameter.
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
  ("output", "kernel", 2): (1, ""),  # the output layer, where it is not tied
}


def parameter_spec(path: Sequence[Any], x: Any, mesh: Mesh) -> PartitionSpec:
  """Returns how an array of the state is split over the devices.

  "tensor" splits attention heads, feed-forward units and the vocabulary, as in
  Megatron-LM (Shoeybi et al. 2019, section 3): attention and feed-forward then
  need one all-reduce each. Everything else is replicated over "tensor": norms,
  sizes that it does not divide, and recurrent layers, which would communicate
  at each word. "fsdp" splits the largest of the other axes that it divides.

  Args:
    path: Path of the array, as `jax.tree_util.tree_map_with_path` gives it. In
      an optimizer state it ends with that of the parameter.
    x: The array, or its shape and type.
    mesh: Mesh of the devices.

  Raises:
    InputError: "tensor" does not divide the heads or the feed-forward units.
  """
  split: list[str | None] = [None] * len(x.shape)
  size = mesh.shape["tensor"]
  axis, option = _tensor_axis(path, x.ndim)
  if size > 1 and axis is not None:
    if x.shape[axis] % size == 0:
      split[axis] = "tensor"
    elif option:
      raise InputError(
        f"config.model.{option}={x.shape[axis]} is not a multiple of "
        f"config.train.mesh.tensor={size}, which splits it. Set one of them so "
        "that it is."
      )
  size = mesh.shape["fsdp"]
  free = [
    i for i, n in enumerate(x.shape) if split[i] is None and n % size == 0
  ]
  if size > 1 and free and x.ndim > 1:
    split[max(free, key=lambda i: x.shape[i])] = "fsdp"
  return PartitionSpec(*split)


def _tensor_axis(path: Sequence[Any], ndim: int) -> tuple[int | None, str]:
  """Returns the axis that "tensor" splits, and the option that is its size."""
  names = [str(key.key) for key in path if isinstance(key, DictKey)]
  module, name = ["", "", *names][-2:]
  if axis := _TENSOR_AXES.get((module, name, ndim)):
    return axis
  # Modifiers' parameters name their axes; the heads may be some of all.
  letters = name.rpartition("_")[2]
  if letters.isupper() and "H" in letters and len(letters) == ndim:
    return letters.index("H"), ""
  # Muon orthogonalizes a stack of matrices of one size, each for itself.
  if re.fullmatch(r"\d+x\d+", name):
    return 0, ""
  return None, ""


def set_up_jax(shared: str = "") -> None:
  """Settings for a command: keeps compiled programs, and memory once gotten.

  Tracing makes many objects that stay: Python looked through all of them so
  often that a fifth of the time went there (1.07 s a shape of a
  Transformer-Tiny, now 0.83).

  XLA's log is off, unless TF_CPP_MIN_LOG_LEVEL is 0 or 2: its errors are
  exceptions as well, and an alarm about slow compilation ("Very slow compile?")
  asks users to file a bug. Progress shows what compiles.

  Called by entry points only; importing jaxsyn changes nothing. The folder of
  programs is JAX_COMPILATION_CACHE_DIR, or one in the user's cache. A program
  that is read from there is run, so a folder to which others can write is not
  used. Of several processes JAX lets only the first one write there, so theirs is
  in a folder that all of them see: otherwise the others compile at each start.

  Args:
    shared: Folder that all processes of the run see; "" for none.
  """
  # "1" may be JAX's own: it sets that when it is imported.
  if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
    level = jax.config.jax_logging_level  # type: ignore[attr-defined]  # JAX adds it at run time
    jax.config.update("jax_logging_level", "CRITICAL")
    # That of Python's loggers again: JAX warns there, of a missing GPU, say.
    jax.config.update("jax_logging_level", level)
  keep_memory()
  gc.set_threshold(50_000, 20, 100)
  chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # JAX adds it at run time
  if chosen and remote.is_remote(chosen):
    return
  folder = None
  try:
    path = pathlib.Path(chosen or _programs_folder(shared)).resolve()
    # Not by the umask: folders that a group can write to are not used.
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    cache.check_private(path)
    folder = str(path)
  except OSError as error:
    if not jax.distributed.is_initialized() or jax.process_index() == 0:
      print(
        f"warning: compiled programs are neither kept nor reused: {error}. "
        "JAX_COMPILATION_CACHE_DIR names another folder.",
        file=sys.stderr,
      )
  jax.config.update("jax_compilation_cache_dir", folder)


def _programs_folder(shared: str) -> pathlib.Path:
  """Returns the folder of compiled programs; see `set_up_jax`."""
  is_multi_host = jax.distributed.is_initialized() and jax.process_count() > 1
  if is_multi_host and shared and not remote.is_remote(shared):
    return pathlib.Path(shared) / "programs"
  of_user = cache.user_folder() / "programs"
  if is_multi_host and jax.process_index() == 0:
    print(
      f"compiled programs are kept in {of_user}, by the first process alone: "
      "where the others do not see it, they compile at each start. Set "
      "JAX_COMPILATION_CACHE_DIR to a folder that all processes see."
    )
  return of_user


class Layout:
  """Puts data in place and runs steps of one parallelism.

  Attributes:
    is_pmap: one replica a device instead of arrays on a mesh.
    rows: every batch's rows must be a multiple of this (all hosts together).
    share: the rows that this host's devices hold: with "tensor" over several
      hosts each of them has the same.
    compilations: programs compiled so far, by what they are for.
  """

  def __init__(
    self,
    parallelism: str,
    config: MeshConfig,
    devices: Sequence[jax.Device] | None = None,
  ):
    """
    Args:
      parallelism, config: of `config.train`.
      devices: as for `make_mesh`.
    """
    self.mesh = make_mesh(config, devices)
    self.is_pmap = parallelism == "pmap"
    if self.is_pmap and self.mesh.size != self.mesh.shape["data"]:
      raise InputError(
        "config.train.parallelism='pmap' splits data alone; set "
        "config.train.mesh.fsdp and .tensor to 1."
      )
    self.rows = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
    me = jax.process_index()
    self.share = HostShard(
      tuple(
        part
        for part, devices in enumerate(self.mesh.devices.reshape(self.rows, -1))
        if any(device.process_index == me for device in devices)
      ),
      self.rows,
    )
    self.compilations: collections.Counter[str] = collections.Counter()
    self._programs: dict[Any, Program] = {}
    self._flops: dict[Program, float] = {}
    self._whole = NamedSharding(self.mesh, PartitionSpec())
    self._split = NamedSharding(self.mesh, PartitionSpec(("data", "fsdp")))

  def shardings(self, tree: Any) -> Any:
    """How a state (arrays or their shapes) lies on the mesh."""
    if self.is_pmap:
      split = NamedSharding(self.mesh, PartitionSpec("data"))
      return jax.tree.map(lambda x: split, tree)
    return jax.tree_util.tree_map_with_path(
      lambda path, x: NamedSharding(
        self.mesh, parameter_spec(path, x, self.mesh)
      ),
      tree,
    )

  def storage(self, tree: Any) -> Any:
    """How a state of a checkpoint lies: without the device axis of pmap."""
    if self.is_pmap:
      return jax.tree.map(lambda x: self._whole, tree)
    return self.shardings(tree)

  def place_state(self, state: Any) -> Any:
    """A state as checkpoints hold it, laid out for the steps."""
    if not self.is_pmap:
      return jax.tree.map(jax.device_put, state, self.shardings(state))
    count = self.mesh.size
    return jax.jit(
      lambda tree: jax.tree.map(
        lambda x: jnp.broadcast_to(x, (count, *x.shape)), tree
      ),
      out_shardings=NamedSharding(self.mesh, PartitionSpec("data")),
    )(state)

  def placed(self, abstract: Any) -> Any:
    """`place_state` of a state's shapes: what steps are compiled for."""
    if self.is_pmap:
      count = self.mesh.size
      abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), abstract
      )
    return jax.tree.map(
      lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
      abstract,
      self.shardings(abstract),
    )

  def placed_rows(self, abstract: Any) -> Any:
    """`place_rows` of a batch's shapes, of all hosts together."""
    return jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._split),
      abstract,
    )

  def everywhere(self, tree: Any) -> Any:
    """The same arrays, whole on each device."""
    if all(x.is_fully_replicated for x in jax.tree.leaves(tree)):
      return tree
    return jax.jit(lambda x: x, out_shardings=self._whole)(tree)

  def take_state(self, state: Any) -> Any:
    """The state as arrays without the device axis that pmap adds."""
    if not self.is_pmap:
      return state
    # One jitted copy: a loop of eager slices would queue many collectives.
    return jax.jit(
      lambda tree: jax.tree.map(lambda x: x[0], tree), out_shardings=self._whole
    )(state)

  def on_host(self, tree: Any) -> Any:
    """What a step returned beside the state, the same on each device."""
    if self.is_pmap:
      tree = jax.tree.map(lambda x: x.addressable_data(0)[0], tree)
    return jax.device_get(tree)

  def place_batch(self, batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """This host's rows of a batch as global arrays."""
    if not self.is_pmap:
      return self.place_rows(batch)
    n = len(self.share.parts)
    return {
      name: self._global(array.reshape(n, len(array) // n, *array.shape[1:]))
      for name, array in batch.items()
    }

  def place_rows(self, batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """This host's rows of a batch as global arrays, also beside pmap."""
    return {name: self._global(array) for name, array in batch.items()}

  def _global(self, array: np.ndarray) -> jax.Array:
    """An array of all hosts, cut along its first axis, from this host's part."""
    parts, of = self.share
    size = len(array) // len(parts)  # of a part

    def held(index: tuple[slice, ...] | None) -> np.ndarray:
      assert index is not None
      begin, end, _ = index[0].indices(of * size)
      place = parts.index(begin // size) * size
      return array[place : place + end - begin]

    shape = (of * size, *array.shape[1:])
    return jax.make_array_from_callback(shape, self._split, held)

  def compile_train(
    self, step: Step, state: Any, batch: Mapping[str, Any]
  ) -> Program:
    """train_step(state, batch) compiled for these shapes, made at first use.

    Args:
      step: of (state, batch, axis=...), all else bound.
      state, batch: in place, or their shapes and shardings.
    """

    def wrapped() -> Any:
      if self.is_pmap:
        return jax.pmap(
          functools.partial(step, axis="data"),
          axis_name="data",
          donate_argnums=0,
          devices=list(self.mesh.devices.flat),
        )
      # Left to the compiler the new state lies otherwise than the old one, and
      # the compiled step refuses it.
      out = self.shardings(state), self._whole
      return jax.jit(step, donate_argnums=0, out_shardings=out)

    if self.is_pmap:
      # Of shapes alone: with several processes pmap takes those of arrays, or
      # of what has a sharding, for the part that this one holds.
      state, batch = jax.tree.map(
        lambda x: jax.core.ShapedArray(x.shape, x.dtype), (state, batch)
      )
    return self._compile("train", wrapped, state, batch)

  def compile(
    self,
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    places: Any = None,
  ) -> Program:
    """Any function of placed arrays, compiled once a set of shapes.

    Args:
      name: what it is for.
      function: to be compiled.
      arguments: in place, or their shapes and shardings.
      places: shardings of what it returns; None: it is whole on each device.
    """
    out = self._whole if places is None else places
    return self._compile(
      name, lambda: jax.jit(function, out_shardings=out), *arguments
    )

  def _compile(
    self, name: str, wrapped: Callable[[], Any], *arguments: Any
  ) -> Program:
    """The program of these shapes; what is jitted is asked for at first use."""
    leaves, tree = jax.tree.flatten(arguments)
    key = (name, tree, tuple((np.shape(x), str(x.dtype)) for x in leaves))
    if key not in self._programs:
      function = wrapped()
      program = function.lower(*arguments).compile()
      if self.is_pmap and name == "train":  # which nothing but XLA counts
        costs = program.cost_analysis() or {}
        flops = float(costs.get("flops", 0.0)) * self.mesh.size
      else:  # traced for the program: this is no second time
        flops = traced_flops(function.trace(*arguments).jaxpr.jaxpr)
      self._flops[program] = flops
      self._programs[key] = program
      self.compilations[name] += 1
    return self._programs[key]

  def flops(self, program: Program) -> float:
    """Of one call of a compiled program, by all devices; see `training.flops`."""
    return self._flops[program]
