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
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxsyn.config import Mesh as MeshConfig
from jaxsyn.errors import InputError
from jaxsyn.training.memory import keep_memory

AXES = ("data", "fsdp", "tensor")

# (state, batch) -> (state, metrics); under pmap called with axis="data" too.
Step = Callable[..., tuple[Any, Any]]
Program = jax.stages.Compiled


def make_mesh(config: MeshConfig) -> Mesh:
  """All devices in the shape of `config.train.mesh`; -1 takes what is left.

  Raises:
    InputError: the sizes do not multiply to the number of devices.
  """
  devices = np.array(jax.devices())
  sizes = [config.data, config.fsdp, config.tensor]
  known = int(np.prod([s for s in sizes if s > 0]))
  if sizes.count(-1) > 1 or any(s == 0 or s < -1 for s in sizes):
    raise InputError(
      f"config.train.mesh={dict(zip(AXES, sizes))}: sizes are 1 or more, and "
      "at most one may be -1 (the rest)."
    )
  sizes = [len(devices) // known if s == -1 else s for s in sizes]
  if int(np.prod(sizes)) != len(devices):
    raise InputError(
      f"config.train.mesh={dict(zip(AXES, sizes))} does not make up the "
      f"{len(devices)} devices there are."
    )
  # Mesh, not make_mesh: its axes are automatic, which Flax layers need.
  return Mesh(devices.reshape(sizes), AXES)


def parameter_spec(shape: tuple[int, ...], mesh: Mesh) -> PartitionSpec:
  """How one array of the state is cut: the largest axes that divide.

  "tensor" takes the largest axis it divides, "fsdp" the largest of the
  others; axes of size 1 cut nothing. XLA inserts what communication follows.
  """
  cut: list[str | None] = [None] * len(shape)
  for axis in ("tensor", "fsdp"):
    size = mesh.shape[axis]
    free = [i for i, n in enumerate(shape) if cut[i] is None and n % size == 0]
    if size > 1 and free and len(shape) > 1:
      cut[max(free, key=lambda i: shape[i])] = axis
  return PartitionSpec(*cut)


def set_up_jax() -> None:
  """Settings for a command: keeps compiled programs, and memory once gotten.

  Tracing makes many objects that stay: Python looked through all of them so
  often that a fifth of the time went there (1.07 s a shape of a
  Transformer-Tiny, now 0.83).

  Called by entry points only; importing jaxsyn changes nothing. The folder of
  programs is JAX_COMPILATION_CACHE_DIR, or one in the user's cache.
  """
  keep_memory()
  gc.set_threshold(50_000, 20, 100)
  if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]  # JAX adds it at run time
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(home, "jaxsyn", "programs")
    jax.config.update("jax_compilation_cache_dir", folder)


class Layout:
  """Puts data in place and runs steps of one parallelism.

  Attributes:
    is_pmap: one replica a device instead of arrays on a mesh.
    rows: every batch's rows must be a multiple of this (all hosts together).
    compilations: programs compiled so far, by what they are for.
  """

  def __init__(self, parallelism: str, config: MeshConfig):
    self.mesh = make_mesh(config)
    self.is_pmap = parallelism == "pmap"
    if self.is_pmap and self.mesh.size != self.mesh.shape["data"]:
      raise InputError(
        "config.train.parallelism='pmap' splits data alone; set "
        "config.train.mesh.fsdp and .tensor to 1."
      )
    self.rows = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
    self.compilations: collections.Counter[str] = collections.Counter()
    self._programs: dict[Any, Program] = {}
    self._whole = NamedSharding(self.mesh, PartitionSpec())
    self._split = NamedSharding(self.mesh, PartitionSpec(("data", "fsdp")))

  def shardings(self, tree: Any) -> Any:
    """How a state (arrays or their shapes) lies on the mesh."""
    if self.is_pmap:
      split = NamedSharding(self.mesh, PartitionSpec("data"))
      return jax.tree.map(lambda x: split, tree)
    return jax.tree.map(
      lambda x: NamedSharding(self.mesh, parameter_spec(x.shape, self.mesh)),
      tree,
    )

  def storage(self, tree: Any) -> Any:
    """How a state of a checkpoint lies: without the device axis of pmap."""
    if self.is_pmap:
      return jax.tree.map(lambda x: self._whole, tree)
    return self.shardings(tree)

  def place_state(self, state: Any) -> Any:
    """A host state (or one on a single device) laid out for the steps."""
    if self.is_pmap:
      count = self.mesh.size
      state = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (count, *np.shape(x))), state
      )
    return jax.tree.map(jax.device_put, state, self.shardings(state))

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

  def take_state(self, state: Any) -> Any:
    """The state as arrays without the device axis that pmap adds."""
    if not self.is_pmap:
      return state
    # One jitted copy: a loop of eager slices would queue many collectives.
    return jax.jit(
      lambda tree: jax.tree.map(lambda x: x[0], tree), out_shardings=self._whole
    )(state)

  def place_batch(self, batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """This host's rows of a batch as global arrays."""
    if self.is_pmap:
      n = self.mesh.size
      return {
        k: v.reshape(n, len(v) // n, *v.shape[1:]) for k, v in batch.items()
      }
    return self.place_rows(batch)

  def place_rows(self, batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """This host's rows of a batch as global arrays, also beside pmap."""
    return {
      name: jax.make_array_from_process_local_data(self._split, array)
      for name, array in batch.items()
    }

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
        )
      # Left to the compiler the new state lies otherwise than the old one, and
      # the compiled step refuses it.
      out = self.shardings(state), self._whole
      return jax.jit(step, donate_argnums=0, out_shardings=out)

    return self._compile("train", wrapped, state, batch)

  def compile(
    self, name: str, function: Callable[..., Any], *arguments: Any
  ) -> Program:
    """Any function of placed arrays, compiled once a set of shapes.

    Args:
      name: what it is for.
      function: to be compiled.
      arguments: in place, or their shapes and shardings.
    """
    return self._compile(name, lambda: jax.jit(function), *arguments)

  def _compile(
    self, name: str, wrapped: Callable[[], Any], *arguments: Any
  ) -> Program:
    """The program of these shapes; what is jitted is asked for at first use."""
    leaves, tree = jax.tree.flatten(arguments)
    key = (name, tree, tuple((np.shape(x), str(x.dtype)) for x in leaves))
    if key not in self._programs:
      self._programs[key] = wrapped().lower(*arguments).compile()
      self.compilations[name] += 1
    return self._programs[key]
