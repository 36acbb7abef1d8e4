"""Memory, the cache of compiled programs, and XLA's log."""

import os
import platform
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsyn import train
from jaxsyn.errors import InputError
from jaxsyn.training.runtime import enough_memory

PAGE_FAULTS = """
import resource
from jaxsyn.training.runtime import keep_freed_memory
done = keep_freed_memory()
for _ in range(3):  # 64 MiB that are written and freed
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  b"x" * 2**26
print(done, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 2**26 // os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(
  platform.libc_ver()[0] != "glibc", reason="another C library"
)
@pytest.mark.parametrize("variable", [None, "MALLOC_TOP_PAD_"])
def test_freed_memory_is_reused_without_page_faults(variable):
  env = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
  if variable:  # the settings of the user stay
    env[variable] = "0"
  result = subprocess.run(
    [sys.executable, "-c", PAGE_FAULTS], env=env, capture_output=True, text=True
  )
  done, faults = result.stdout.split()
  assert done == str(variable is None)
  assert int(faults) < PAGES / 10 if done == "True" else int(faults) >= PAGES


def test_too_little_memory_is_one_message(little_memory):
  for allocate in (
    lambda: jnp.zeros(2**34).block_until_ready(),  # XLA
    lambda: np.ones(2**34),  # Python
  ):
    with (
      pytest.raises(
        InputError, match=r"out of memory \(.*\) adding 2 x 3\. Lower the sum\."
      ),
      enough_memory("adding 2 x 3", "the sum"),
    ):
      allocate()
  with (
    pytest.raises(jax.errors.JaxRuntimeError, match="else"),
    enough_memory("adding", "the sum"),
  ):
    raise jax.errors.JaxRuntimeError("something else")


def test_training_out_of_memory_names_the_batches(
  tiny, tmp_path, little_memory
):
  config = tiny("transformer")
  config.batch.update(tokens=20_000_000, shapes=1)
  config.model.transformer.encoder_layers = 1
  config.train.parallelism = "jit"
  with pytest.raises(
    InputError,
    match=r"(?s)out of memory \(.*training on batches of sentences x source x "
    r"target: \d+ x \d+ x \d+\. Lower config\.batch\.tokens",
  ):
    train.run(config, tmp_path / "run")


COMPILE = """
import jax, jax.numpy as jnp
from jaxsyn.training.runtime import set_up_jax
set_up_jax()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
hits = []
jax.monitoring.register_event_listener(
  lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None
)
jax.jit(lambda x: jnp.sin(x) + 41)(jnp.ones(3)).block_until_ready()
print("reused" if hits else "compiled")
"""


def compile_program(environment, **variables):
  """Returns whether a new process reused a program, and its standard error."""
  env = {k: v for k, v in environment.items() if "CACHE" not in k}
  done = subprocess.run(
    [sys.executable, "-W", "ignore", "-c", COMPILE],
    env=env | {name: str(value) for name, value in variables.items()},
    capture_output=True,
    text=True,
    check=True,
  )
  return done.stdout == "reused\n", done.stderr


@pytest.fixture(scope="module")
def filled(environment, tmp_path_factory):
  """A private cache with the program of `compile_program`."""
  home = tmp_path_factory.mktemp("cache") / "home"
  assert compile_program(environment, XDG_CACHE_HOME=home) == (False, "")
  path = home / "jaxsyn" / "programs"
  for each in (home, path.parent, path):
    assert each.stat().st_mode & 0o7777 == 0o700
  return path


@pytest.fixture
def cache(filled):
  """The same, with its modes and owner restored afterwards."""
  yield filled
  os.chown(filled, os.getuid(), -1)
  for path in (filled, filled.parent, filled.parent.parent):
    path.chmod(0o700)


def test_programs_in_a_private_cache_are_reused(cache, environment):
  chosen = compile_program(environment, JAX_COMPILATION_CACHE_DIR=cache)
  assert chosen == (True, "")


@pytest.mark.parametrize(
  ("depth", "mode", "is_used"),
  [(0, 0o1777, False), (1, 0o770, False), (2, 0o1777, True)],
)
def test_a_cache_that_others_can_write_to_is_not_used(
  cache, environment, depth, mode, is_used
):
  home = cache.parent.parent
  path = (cache, cache.parent, home)[depth]
  path.chmod(mode)
  before = sorted(cache.iterdir())
  reused, output = compile_program(environment, XDG_CACHE_HOME=home)
  assert reused == is_used
  assert (output == "") == is_used and output.count("\n") == (not is_used)
  if not is_used:
    assert output.startswith("warning: compiled programs are neither kept nor ")
    assert f"can be written to by others: chmod go-w {path}." in output
    assert sorted(cache.iterdir()) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change an owner")
def test_a_cache_of_another_user_is_not_used(cache, environment, tmp_path):
  os.chown(cache, 65534, 65534)
  (tmp_path / "link").symlink_to(cache)
  reused, output = compile_program(
    environment, JAX_COMPILATION_CACHE_DIR=tmp_path / "link"
  )
  assert not reused
  assert f"{cache} belongs to user 65534: remove it, or " in output


def test_xla_log_is_hidden_unless_the_environment_sets_its_level(tmp_path):
  """The error is one that XLA logs with the level of its compilation alarm."""
  code = (
    "import jax\n"
    "from jaxsyn.training.runtime import set_up_jax\n"
    "set_up_jax()\n"
    "jax.jit(lambda x: x).lower(1).compile()\n"
    "import logging\n"
    "logging.getLogger('jax').warning('a warning of JAX')\n"
  )
  (tmp_path / "file").touch()
  env = {k: v for k, v in os.environ.items() if k[:4] not in ("XLA_", "JAX_")}
  env |= {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
    "XLA_FLAGS": f"--xla_dump_to={tmp_path / 'file' / 'folder'}",
  }
  env.pop("TF_CPP_MIN_LOG_LEVEL", None)
  shown = {}
  for level in ("", "2"):
    done = subprocess.run(
      [sys.executable, "-c", code],
      env=env | ({"TF_CPP_MIN_LOG_LEVEL": level} if level else {}),
      capture_output=True,
      text=True,
      check=True,
    )
    shown[level] = done.stderr
  assert shown[""] == "a warning of JAX\n"
  *errors, last = shown["2"].splitlines()
  assert last == "a warning of JAX"
  assert errors and all(line[0] == "E" for line in errors), errors
