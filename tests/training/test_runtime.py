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
from jaxsyn.training.runtime import enough_memory, set_up_jax

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
  config.batch.update(tokens=8_000_000, shapes=1)
  config.model.transformer.encoder_layers = 1
  with pytest.raises(
    InputError,
    match=r"(?s)out of memory \(.*training on batches of sentences x source x "
    r"target: \d+ x \d+ x \d+\. Lower config\.batch\.tokens",
  ):
    train.run(config, tmp_path / "run")


@pytest.fixture
def program_cache(monkeypatch, tmp_path):
  """A function that calls set_up_jax; returns the cache of compiled programs."""
  monkeypatch.setattr("jaxsyn.training.runtime.keep_freed_memory", lambda: True)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  before = jax.config.jax_compilation_cache_dir

  def set_up(folder=None):
    jax.config.update("jax_compilation_cache_dir", folder and str(folder))
    set_up_jax()
    return jax.config.jax_compilation_cache_dir

  yield set_up
  jax.config.update("jax_compilation_cache_dir", before)


def test_only_a_private_program_cache_is_used(program_cache, tmp_path, capsys):
  path = tmp_path / "jaxsyn" / "programs"
  assert program_cache() == str(path)
  for each in (path.parent, path):
    assert each.stat().st_mode & 0o022 == 0
  (tmp_path / "link").symlink_to(path)
  assert program_cache(tmp_path / "link") == str(path)
  tmp_path.chmod(0o1777)  # as /tmp
  assert program_cache() == str(path)
  assert capsys.readouterr().err == ""
  for shared, mode in ((path, 0o1777), (path.parent, 0o770)):
    before = shared.stat().st_mode
    shared.chmod(mode)
    for chosen in (None, path):
      assert program_cache(chosen) is None
      message = capsys.readouterr().err
      assert "warning: compiled programs are neither kept nor reused" in message
      assert f"can be written to by others: chmod go-w {shared}." in message
    shared.chmod(before)
  if os.getuid() == 0:  # only root can change an owner
    os.chown(path, 65534, 65534)
    assert program_cache(path) is None
    message = capsys.readouterr().err
    assert f"{path} belongs to user 65534: remove it" in message


LOG = """
import logging
import jax
from jaxsyn.training.runtime import set_up_jax
set_up_jax()
jax.jit(lambda x: x).lower(1).compile()
logging.getLogger('jax').warning('a warning of JAX')
"""


def test_xla_log_is_hidden_unless_the_environment_sets_its_level(tmp_path):
  """The error is one that XLA logs with the level of its compilation alarm."""
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
      [sys.executable, "-c", LOG],
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
