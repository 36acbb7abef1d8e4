"""Compiled programs are kept where only their user can write, or not at all."""

import os
import subprocess
import sys

import pytest

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
  """(whether programs were reused, standard error) of a new process."""
  env = {k: v for k, v in environment.items() if "CACHE" not in k}
  done = subprocess.run(
    [sys.executable, "-W", "ignore", "-c", COMPILE],
    env=env | {name: str(value) for name, value in variables.items()},
    capture_output=True,
    text=True,
    check=True,
  )
  return done.stdout == "reused\n", done.stderr


def mode_of(path):
  return path.stat().st_mode & 0o7777


@pytest.fixture(scope="module")
def filled(environment, tmp_path_factory):
  """A folder of compiled programs with the program of `compile_program`."""
  home = tmp_path_factory.mktemp("cache") / "home"
  assert compile_program(environment, XDG_CACHE_HOME=home) == (False, "")
  return home / "jaxsyn" / "programs"


@pytest.fixture
def cache(filled):
  """The same, with its modes and owner as they were."""
  yield filled
  os.chown(filled, os.getuid(), -1)
  for path in (filled, filled.parent, filled.parent.parent):
    path.chmod(0o700)


def test_the_folder_is_made_for_its_user_alone(environment, tmp_path):
  home = tmp_path / "home"
  assert compile_program(environment, XDG_CACHE_HOME=home) == (False, "")
  path = home / "jaxsyn" / "programs"
  assert [mode_of(p) for p in (home, path.parent, path)] == [0o700] * 3
  assert any(path.iterdir())


def check_refused(found, message):
  reused, output = found
  assert not reused
  assert output.startswith("warning: compiled programs are neither kept nor ")
  assert message in output and len(output.splitlines()) == 1


def test_programs_in_a_private_folder_are_reused(cache, environment):
  home = cache.parent.parent
  assert compile_program(environment, XDG_CACHE_HOME=home) == (True, "")
  chosen = compile_program(environment, JAX_COMPILATION_CACHE_DIR=cache)
  assert chosen == (True, "")


@pytest.mark.parametrize(
  ("depth", "mode"),
  [(0, 0o1777), (1, 0o770), (2, 0o1777)],
)
def test_a_folder_that_others_can_write_to_is_not_used(
  cache, environment, depth, mode
):
  home = cache.parent.parent
  path = (cache, cache.parent, home)[depth]
  path.chmod(mode)
  before = sorted(cache.iterdir())
  result = compile_program(environment, XDG_CACHE_HOME=home)
  if path == home and mode == 0o1777:  # others cannot replace what is in it
    assert result == (True, "")
    return
  check_refused(result, f"can be written to by others: chmod go-w {path}.")
  assert sorted(cache.iterdir()) == before
  path.chmod(mode & ~0o022)  # the remedy
  assert compile_program(environment, XDG_CACHE_HOME=home) == (True, "")


def test_a_chosen_folder_that_others_can_write_to_is_not_used(
  cache, environment, tmp_path
):
  cache.chmod(0o777)
  (tmp_path / "link").symlink_to(cache)
  variables = {"JAX_COMPILATION_CACHE_DIR": tmp_path / "link"}
  result = compile_program(environment, **variables)
  check_refused(result, f"can be written to by others: chmod go-w {cache}.")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(cache, environment):
  os.chown(cache, 65534, 65534)
  home = cache.parent.parent
  result = compile_program(environment, XDG_CACHE_HOME=home)
  check_refused(result, f"{cache} belongs to user 65534: remove it, or ")
