"""Memory that stays with the process: seen in page faults of a real one."""

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
from jaxsyn.training.memory import keep_memory
done = keep_memory()
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
