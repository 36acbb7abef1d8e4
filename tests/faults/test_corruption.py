"""Every file that jaxsyn reads back, under every kind of corruption.

Each case copies intact files, corrupts one, and runs the code that reads it.
It passes if

- the result equals that of the intact files (the file was rebuilt, or this command
  does not need what was corrupted),
- there is an InputError whose message names the file, or
- training resumes from an older checkpoint, and a warning names the corrupt one.

By default, one file gets each of a few corruptions; JAXSYN_EXHAUSTIVE=1 corrupts all
files in all ways, at five random positions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import logging
import os
import pathlib
import shutil
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from corruptions import CORRUPTIONS

from jaxsyn.comparison import run_result
from jaxsyn.data import schema
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, publish, verify
from jaxsyn.storage import checksums, lock

EXHAUSTIVE = os.environ.get("JAXSYN_EXHAUSTIVE") == "1"
POSITIONS = 5 if EXHAUSTIVE else 1
RESULTS = pathlib.Path(__file__).parents[2] / "results" / "E0"
LINES = ("the small dog sees a cat .", "a bird that sings sleeps .")
Digests = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Folder:
  """Copy of a dataset directory, run directory or other folder.

  Attributes:
    path: Path of the copy.
    origin: Path of the intact folder.
  """

  path: pathlib.Path
  origin: pathlib.Path


def digest(*items: Any) -> str:
  """Returns one SHA-256 of arrays, texts, numbers and tuples."""
  sha256 = hashlib.sha256()
  for item in items:
    if isinstance(item, np.ndarray):
      item = (str(item.dtype), item.shape, item.tobytes())
    elif isinstance(item, tuple):
      item = digest(*item)
    sha256.update(repr(item).encode())
  return sha256.hexdigest()


def config_of(prepared: pathlib.Path, raw: pathlib.Path) -> Any:
  """Returns the config with which the fixture `prepared` was made."""
  from jaxsyn.configs import quickstart

  config = quickstart.get_config("pascal")
  config.data.directory = str(prepared)
  config.prepare.parse.source.udpipe.model = str(raw / "quickstart.udpipe")
  config.prepare.vocabulary.size = 300
  config.prepare.workers = 1
  return config


# Commands: each reads a folder like a command of jaxsyn, and returns what it read.


def read_dataset(folder: Folder) -> Digests:
  """Reads all that training reads of a dataset directory."""
  dataset = Dataset(folder.path)
  items: list[Any] = []
  for split in ("train", "validation"):
    for example in dataset.split(split):
      items += sorted(example.items())
  items.append(dataset.text("validation", "target"))
  for side in schema.SIDES:
    items += map(dataset.vocabulary(side).encode, LINES)
  return {"data": digest(*items)}


def verify_dataset(folder: Folder) -> Digests:
  """Runs `jaxsyn prepare --verify`."""
  verify.run(folder.path)
  return {}


def prepare_again(folder: Folder) -> Digests:
  """Prepares a dataset directory again, which rebuilds corrupt files."""
  raw = (folder.origin.parent / "raw").resolve()
  build.run(config_of(folder.path, raw), str(raw))
  digests: Digests = {}
  for path in sorted(folder.path.rglob("*")):
    name = str(path.relative_to(folder.path))
    if path.is_file() and name != lock.FILE and not name.startswith("work/"):
      digests[name] = digest(path.read_bytes())
  manifest = json.loads((folder.path / manifests.FILE).read_text())
  content = checksums.verify_checksum(manifest)
  del content["seconds"]
  return {**digests, manifests.FILE: digest(content)}


def translate(folder: Folder) -> Digests:
  """Reads all that translation reads of a run directory or an exported model."""
  import jax

  from jaxsyn.session import Session

  session = Session(folder.path)
  arrays = map(np.asarray, jax.tree.leaves(session.params))
  examples = [
    digest(*sorted(session.sources.example(x).items())) for x in LINES
  ]
  return {"parameters": digest(*arrays), "inputs": digest(*examples)}


def resume(folder: Folder) -> Digests:
  """Reads the train state with which a run is resumed."""
  import jax

  from jaxsyn.training.checkpoint_writer import CheckpointWriter

  checkpoints = CheckpointWriter(folder.path, 3)
  try:
    restored = checkpoints.restore(abstract_state_of(folder.origin))
  finally:
    checkpoints.close()
  if restored is None:
    return {"parameters": "none"}
  step, state, progress = restored
  arrays = map(np.asarray, jax.tree.leaves(state))
  return {"parameters": digest(step, *arrays, repr(progress))}


@functools.cache
def abstract_state_of(run: pathlib.Path) -> Any:
  """Returns shapes and types of the train state of an intact run."""
  import jax
  import orbax.checkpoint as ocp

  (path, *_) = (run / "checkpoints").glob("*/state")
  with ocp.StandardCheckpointer() as reader:
    state = reader.restore(path)
  return jax.eval_shape(lambda: state)


def parse(folder: Folder) -> Digests:
  """Parses with a model, whose checksum is unknown."""
  from jaxsyn.data.sentence.parsers.udpipe import UDPipe

  parser = UDPipe(folder.path / "quickstart.udpipe")
  return {"parses": digest(*map(repr, parser.parses(LINES)))}


def read_results(folder: Folder) -> Digests:
  """Reads the result files from which a report is made."""
  return {"results": digest(repr(run_result.read_all([folder.path])))}


@dataclasses.dataclass(frozen=True)
class Artifact:
  """Files of one kind, and the command that reads them.

  Attributes:
    folder: Fixture of the intact folder.
    files: Pattern of the files, relative to the folder.
    command: Function that reads the folder.
    removed: Pattern of files to remove first, so that the corrupt file is needed.
    always: Whether the command must detect every corruption.
    optional: Whether files may be missing, since the command reads what exists.
  """

  folder: str
  files: str
  command: Callable[[Folder], Digests]
  removed: str = ""
  always: bool = False
  optional: bool = False


INTACT = "intact"  # name of a folder whose copies are named "tiny"
TFDS = "quickstart/1.0.0"
ARTIFACTS = {
  "records": Artifact("prepared", f"{TFDS}/*tfrecord*", read_dataset),
  "index": Artifact("prepared", f"{TFDS}/index-*.npy", read_dataset),
  "references": Artifact("prepared", "text/*", read_dataset),
  "manifest": Artifact("prepared", "manifest.json", read_dataset),
  "vocabulary": Artifact("prepared", "*.model", read_dataset),
  "dataset_verified": Artifact(
    "prepared", "[!lw]*/**/*", verify_dataset, always=True
  ),
  "models_verified": Artifact("prepared", "[pv]*", verify_dataset, always=True),
  "dataset_rebuilt": Artifact("prepared", "[!lw]*/**/*", prepare_again),
  "manifest_rebuilt": Artifact("prepared", "[!lw]*.*", prepare_again),
  "reused": Artifact(
    "prepared", "work/**/*", prepare_again, removed=manifests.FILE
  ),
  "unfinished": Artifact("interrupted", "work/**/*", prepare_again),
  "unpublished": Artifact("interrupted", "*.new-*/**/*", prepare_again),
  "run": Artifact("run", "*.*", translate),
  "best": Artifact("run", "best/**/*", translate),
  "checkpoint": Artifact("run", "checkpoints/**/*", resume),
  "exported": Artifact("exported", "**/*", translate),
  "parser": Artifact("parser_model", "*.udpipe", parse),
  "result": Artifact("results", "*.json", read_results, optional=True),
}
KINDS = ("flip", "delete", "truncate", "swap", "extend", "empty")


def kinds_of(artifact: Artifact) -> tuple[str, ...]:
  """Returns the corruptions of an artifact."""
  kinds = tuple(dict.fromkeys((*KINDS, *CORRUPTIONS)))
  if not EXHAUSTIVE:  # preparing again takes seconds
    kinds = KINDS[:2] if artifact.command is prepare_again else KINDS
  return tuple(k for k in kinds if not (artifact.optional and k == "delete"))


@pytest.fixture(scope="module")
def run(runs):
  return runs["pascal"]


@pytest.fixture(scope="module")
def interrupted(prepared, tmp_path_factory):
  """A dataset directory whose preparation was interrupted before publishing."""
  folder = tmp_path_factory.mktemp("interrupted") / "tiny"
  raw = prepared.parent / "raw"
  (folder.parent / "raw").symlink_to(raw)

  def interrupt(*args, **kwargs):
    raise KeyboardInterrupt

  with pytest.MonkeyPatch.context() as patch, messages():
    patch.setattr(publish, "publish", interrupt)
    with pytest.raises(KeyboardInterrupt):
      build.run(config_of(folder, raw), str(raw))
  assert not (folder / manifests.FILE).exists()
  # Its files have absolute paths in them, so each case has a copy in its place.
  return folder.rename(folder.parent / INTACT)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
  """A run exported to safetensors, which Session opens."""
  pytest.importorskip("safetensors", reason="extra hub")
  from jaxsyn import export

  folder = tmp_path_factory.mktemp("exported") / "model"
  export.run(run, folder, "safetensors")
  return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory):
  """Result files of real runs."""
  folder = tmp_path_factory.mktemp("results")
  for path in sorted(RESULTS.glob("*.json"))[:2]:
    shutil.copy(path, folder)
  return folder


@pytest.fixture(scope="module")
def parser_model(prepared, tmp_path_factory):
  """A model of UDPipe alone."""
  folder = tmp_path_factory.mktemp("parser")
  shutil.copy(prepared.parent / "raw" / "quickstart.udpipe", folder)
  return folder


def corrupt(path: pathlib.Path, corruption: str, rng: Any) -> None:
  """Corrupts, deletes or swaps a file."""
  data = path.read_bytes()
  if corruption == "delete":
    path.unlink()
  elif corruption == "swap":  # with a neighbor, or else with other content
    contents = [
      other.read_bytes()
      for other in sorted(path.parent.iterdir())
      if other.is_file()
    ]
    others = [content for content in contents if content != data]
    others = others or [data[::-1]]
    path.write_bytes(others[int(rng.integers(len(others)))])
  else:
    path.write_bytes(CORRUPTIONS[corruption](data, rng))


@contextlib.contextmanager
def messages() -> Iterator[io.StringIO]:
  """Collects output and log messages."""
  text = io.StringIO()
  handler = logging.StreamHandler(text)
  logging.getLogger("absl").addHandler(handler)
  try:
    with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
      yield text
  finally:
    logging.getLogger("absl").removeHandler(handler)


def copied(origin: pathlib.Path, default: pathlib.Path) -> Folder:
  """Copies an intact folder to a path, or to its own place."""
  path = origin.parent / "tiny" if origin.name == INTACT else default
  return Folder(shutil.copytree(origin, path), origin)


@functools.cache
def intact_result(name: str, origin: pathlib.Path) -> Digests:
  folder = copied(origin, origin.parent / f"{origin.name} for {name}")
  with messages():
    result = ARTIFACTS[name].command(folder)
  shutil.rmtree(folder.path)
  return result


@functools.cache
def older_checkpoints(origin: pathlib.Path, command: Any) -> set[str]:
  """Digests of the parameters of all checkpoints of a run."""
  digests = set()
  steps = sorted(int(path.name) for path in (origin / "checkpoints").iterdir())
  for step in steps:
    folder = copied(origin, origin.parent / f"{origin.name} until {step}")
    for other in steps:
      if other > step:
        shutil.rmtree(folder.path / "checkpoints" / str(other))
    with messages():
      digests.add(command(folder)["parameters"])
  return digests


def outcome_of(
  artifact: Artifact, folder: Folder, path: pathlib.Path, expected: Digests
) -> str:
  """Runs the command on a folder with a corrupt file; describes the outcome."""
  with messages() as text:
    try:
      result = artifact.command(folder)
    except InputError as error:
      text.write(str(error))
      named = path.relative_to(folder.path).parts
      if any(part in text.getvalue() for part in named):
        return "detected"
      return f"an error that does not name the file: {error}"
  if result == expected:
    if artifact.always:
      return "undetected"
    return "rebuilt" if "corrupt" in text.getvalue() else "no effect"
  changed = {name for name in expected if expected[name] != result.get(name)}
  if changed == {"parameters"}:
    known = older_checkpoints(folder.origin, artifact.command)
    if result["parameters"] in known and "skipped" in text.getvalue():
      return "older checkpoint"
  return f"undetected: other {', '.join(sorted(changed))}"


PASSES = {"detected", "rebuilt", "no effect", "older checkpoint"}


@pytest.mark.parametrize("name", ARTIFACTS)
def test_corrupt_files_are_detected_or_rebuilt(name, request, tmp_path):
  artifact = ARTIFACTS[name]
  origin = request.getfixturevalue(artifact.folder)
  expected = intact_result(name, origin)
  rng = np.random.default_rng(zlib.crc32(name.encode()))
  files = sorted(p for p in origin.glob(artifact.files) if p.is_file())
  failures = []
  for corruption in kinds_of(artifact):
    chosen = files if EXHAUSTIVE else [files[int(rng.integers(len(files)))]]
    for file in chosen * POSITIONS:
      folder = copied(origin, tmp_path / "copy")
      for path in folder.path.glob(artifact.removed or "nothing"):
        path.unlink()
      path = folder.path / file.relative_to(origin)
      corrupt(path, corruption, rng)
      if not path.exists() or path.read_bytes() != file.read_bytes():
        outcome = outcome_of(artifact, folder, path, expected)
        if outcome not in PASSES:
          failures.append(f"{path.name}, {corruption}: {outcome}")
      shutil.rmtree(folder.path)
  assert not failures, "\n".join(failures)


def test_every_file_is_in_the_table(prepared, run):
  for name, folder in (("prepared", prepared), ("run", run)):
    left = {path for path in folder.rglob("*") if path.is_file()}
    for artifact in ARTIFACTS.values():
      if artifact.folder == name:
        matched = {p for p in folder.glob(artifact.files) if p.is_file()}
        assert matched, artifact.files
        left -= matched
    assert {path.name for path in left} <= {lock.FILE}, left


def test_a_model_that_would_end_the_process_is_rejected(shared_data, tmp_path):
  """UDPipe throws a C++ exception that Python cannot catch."""
  from jaxsyn.data.sentence.parsers.udpipe import UDPipe

  data = (shared_data / "udpipe" / "english.udpipe").read_bytes()
  path = tmp_path / "swapped.udpipe"
  path.write_bytes(CORRUPTIONS["swap_parts"](data, np.random.default_rng()))
  with pytest.raises(InputError, match=r"swapped\.udpipe: not a \(complete\)"):
    UDPipe(path)
