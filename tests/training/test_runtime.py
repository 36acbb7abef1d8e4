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


SET_UP = """
import logging, resource
import jax
from jaxsyn.training.runtime import set_up_jax
set_up_jax()
jax.jit(lambda x: x).lower(1).compile()
logging.getLogger('jax').warning('a warning of JAX')
for _ in range(3):  # 64 MiB that are written and freed
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  b"x" * 2**26
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 2**26 // os.sysconf("SC_PAGE_SIZE")


def test_settings_of_memory_and_log_unless_the_environment_has_them(tmp_path):
  """Freed memory is used again without page faults, and XLA's log is hidden.

  The log has an error with the level of XLA's compilation alarm.
  """
  (tmp_path / "file").touch()
  prefixes = ("XLA_", "JAX_", "MALLOC_", "TF_CPP_")
  env = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
  env |= {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
    "XLA_FLAGS": f"--xla_dump_to={tmp_path / 'file' / 'folder'}",
  }
  ours, theirs = (
    subprocess.run(
      [sys.executable, "-c", SET_UP],
      env=env | changed,
      capture_output=True,
      text=True,
      check=True,
    )
    for changed in ({}, {"TF_CPP_MIN_LOG_LEVEL": "2", "MALLOC_TOP_PAD_": "0"})
  )
  assert ours.stderr == "a warning of JAX\n"
  *errors, last = theirs.stderr.splitlines()
  assert last == "a warning of JAX"
  assert errors and all(line[0] == "E" for line in errors), errors
  if platform.libc_ver()[0] == "glibc":
    assert int(ours.stdout) < PAGES / 10
    assert int(theirs.stdout) >= PAGES
