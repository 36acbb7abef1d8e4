"""Memory that stays with the process, and a message where there is none left."""

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

FAULTS = """
import resource
from jaxsyn.training.runtime import keep_freed_memory
done = keep_freed_memory()
for _ in range(3):  # 64 MiB that are written to, and freed
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  b"x" * 2**26
print(done, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 2**26 // os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(
  platform.libc_ver()[0] != "glibc", reason="another C library"
)
@pytest.mark.parametrize("variable", [None, "MALLOC_TOP_PAD_"])
def test_freed_memory_is_had_again_without_page_faults(variable):
  env = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
  if variable:  # the user's own settings stay
    env[variable] = "0"
  result = subprocess.run(
    [sys.executable, "-c", FAULTS], env=env, capture_output=True, text=True
  )
  done, faults = result.stdout.split()
  assert done == str(variable is None)
  assert int(faults) < PAGES / 10 if done == "True" else int(faults) >= PAGES


def test_too_little_memory_is_one_message(little_memory):
  for allocate in (
    lambda: jnp.zeros(2**34).block_until_ready(),  # XLA's
    lambda: np.ones(2**34),  # Python's
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
    enough_memory("adding", "the sum"),  # other faults stay what they are
  ):
    raise jax.errors.JaxRuntimeError("something else")


def test_a_training_that_does_not_fit_says_what_to_lower(
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
