"""Fixtures of all tests, and the setup of JAX before any test imports it."""

from __future__ import annotations

import fcntl
import gc
import importlib.metadata
import os
import pathlib
import resource
import tempfile

import pytest
from absl import logging

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")  # see `eight_devices`
# Programs of the tests are tiny, so they are compiled quickly rather than well:
# without LLVM's passes, and with XLA's older loop emitters, since those based on
# MLIR take three times as long.
_FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]
if importlib.metadata.version("jaxlib").startswith("0.10."):
  # jaxlib 0.11 only has the newer ones, and rejects the flag.
  _FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["XLA_FLAGS"] = " ".join(_FLAGS)

# Programs are compiled once in a run of the tests: all processes share a cache,
# which is empty at first. Workers inherit these environment variables.
if "PYTEST_XDIST_WORKER" not in os.environ:
  _programs = tempfile.TemporaryDirectory(
    prefix="jaxsyn_programs_", ignore_cleanup_errors=True
  )
  os.environ["JAX_COMPILATION_CACHE_DIR"] = _programs.name
  # Writing the smallest programs takes longer than compiling them.
  os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
  # Bytecode of the thousands of modules that a command imports is shared, too.
  os.environ["PYTHONPYCACHEPREFIX"] = f"{_programs.name}/bytecode"
  os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tracing creates many objects that are rarely garbage: collect less often.
gc.set_threshold(50_000)

ROOT = pathlib.Path(__file__).resolve().parent.parent


# Folders whose tests are quick unless they use a fixture that trains or prepares.
QUICK_FOLDERS = ("data", "decode", "models", "scoring", "syntax")
SLOW_FIXTURES = {"prepared", "runs", "tiny"}


def pytest_collection_modifyitems(config, items):
  """Marks quick tests; deselects slow tests unless -m slow is given."""
  for item in items:
    folders = {*item.path.relative_to(ROOT).parts[1:2]}  # below tests/
    if folders & {*QUICK_FOLDERS} and not SLOW_FIXTURES & {*item.fixturenames}:
      item.add_marker("quick")
  if "slow" not in config.option.markexpr:
    slow = [item for item in items if item.get_closest_marker("slow")]
    items[:] = [item for item in items if item not in slow]
    config.hook.pytest_deselected(items=slow)


@pytest.fixture(autouse=True)
def same_verbosity():
  """Restores the log level, which commands set for their process."""
  before = logging.get_verbosity()
  yield
  logging.set_verbosity(before)


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
  """Environment of commands in processes, which cache all their programs."""
  return os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


def _devices(count: int) -> None:
  import jax
  from jax.extend.backend import clear_backends

  clear_backends()
  jax.config.update("jax_num_cpu_devices", count)


@pytest.fixture(scope="module")
def eight_devices():
  """Eight simulated devices during a test file; all other files have one."""
  # On few cores, collectives deadlock unless there are more threads than devices
  # (XLA's in-process rendezvous).
  os.environ["PJRT_NPROC"] = "64"
  _devices(8)
  yield
  os.environ.pop("PJRT_NPROC")
  _devices(int(os.environ["JAX_NUM_CPU_DEVICES"]))


@pytest.fixture
def little_memory():
  """Limits the memory of this process to 4 GiB more than it uses."""
  pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
  now = pages * os.sysconf("SC_PAGE_SIZE")
  before = resource.getrlimit(resource.RLIMIT_AS)
  resource.setrlimit(resource.RLIMIT_AS, (now + 2**32, before[1]))
  yield
  resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
  """Folder of real corpora, treebanks and parsers; skips the test without it."""
  path = pathlib.Path(
    os.environ.get("JAXSYN_DATA", ROOT.parent / "shared" / "data")
  )
  if not path.is_dir():
    pytest.skip(f"no real data at {path}; set JAXSYN_DATA to its folder")
  return path


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
  """Returns a function (name, make) for a folder that all workers share.

  `make(folder)` is called once per name, while other workers wait. Tests only
  read the folder.
  """
  base = tmp_path_factory.getbasetemp()
  if "PYTEST_XDIST_WORKER" in os.environ:
    base = base.parent

  def folder(name, make) -> pathlib.Path:
    path, done = base / name, base / f"{name}.done"
    with (base / f"{name}.lock").open("w") as lock:
      fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
      if not done.exists():
        make(path)
        done.touch()
    return path

  return folder


@pytest.fixture(scope="session")
def amazon_server():
  """URL of an S3 server with a bucket."""
  import object_store

  from jaxsyn.storage import remote

  port = object_store.free_port()
  with object_store.started(object_store.moto(port), port) as url:
    with object_store.found_at(url):
      remote.filesystem(object_store.BUCKET).mkdir(object_store.BUCKET)
    yield url


@pytest.fixture(scope="module")
def bucket(amazon_server):
  """Name of the bucket on an S3 server; tests use folders of their own in it."""
  import object_store

  with object_store.found_at(amazon_server):
    yield object_store.BUCKET


@pytest.fixture(scope="session")
def google_server():
  """URL of an emulator of Google Cloud Storage with a bucket."""
  import object_store

  port = object_store.free_port()
  with object_store.started(object_store.google(port), port) as url:
    yield url


@pytest.fixture(scope="module")
def google_bucket(google_server):
  """Name of the bucket on the emulator; tests use folders of their own in it."""
  import object_store

  with object_store.found_at(google_server, "gs"):
    yield object_store.GOOGLE_BUCKET


@pytest.fixture(scope="session")
def prepared(made_once) -> pathlib.Path:
  """Dataset directory of a generated corpus with 600 training pairs."""

  def make(folder):
    from jaxsyn.configs import quickstart as config_file
    from jaxsyn.preprocess import build, quickstart

    raw = folder / "raw"
    sizes = quickstart.Sizes(train=600, validation=24, test=24, parser=150)
    quickstart.run(raw, sizes=sizes)
    config = config_file.get_config("pascal")
    config.data.directory = str(folder / "tiny")
    config.prepare.parse.source.udpipe.model = str(raw / quickstart.PARSER)
    config.prepare.vocabulary.size = 300
    config.prepare.workers = 1
    build.run(config, str(raw))

  return made_once("prepared", make) / "tiny"


@pytest.fixture
def tiny(prepared):
  """Returns a function from a system to a tiny config on the prepared corpus."""
  from jaxsyn.configs import quickstart as config_file

  def make(system: str = "pascal"):
    config = config_file.get_config(system)
    config.data.directory = str(prepared)
    config.model.update(width=32)
    config.model.transformer.update(
      encoder_layers=2, decoder_layers=1, feed_forward=32, heads=4
    )
    config.batch.update(tokens=1024, shapes=2)
    config.train.update(
      steps=6, evaluate_every=3, save_every=2, log_every=2, minutes=0.0
    )
    # Outputs of an untrained model have the maximum length, and there is a
    # program for each of 16, 32, 64, ... subwords.
    config.decode.update(beam=2, max_length_factor=0.0, max_length_offset=15)
    return config

  return make


@pytest.fixture(scope="session")
def runs(made_once, prepared) -> dict[str, pathlib.Path]:
  """Run directories of tiny systems, trained for 20 steps."""
  names = ("pascal", "deps_san", "gru_global")

  def make(folder):
    from jaxsyn import train
    from jaxsyn.configs import quickstart as config_file

    for seed, system in enumerate(names):
      config = config_file.get_config(system)
      config.data.directory, config.seed = str(prepared), seed
      config.model.width = 32
      config.model.transformer.update(
        encoder_layers=1, decoder_layers=1, feed_forward=32
      )
      config.batch.update(tokens=1024, shapes=1)
      config.train.update(steps=20, evaluate_every=10, save_every=10)
      config.train.update(minutes=0.0, selection="log_likelihood")
      config.decode.update(max_length_factor=1.0, max_length_offset=4, beam=3)
      train.run(config, folder / system)

  folder = made_once("runs", make)
  return {name: folder / name for name in names}
