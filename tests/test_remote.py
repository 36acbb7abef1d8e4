"""Object stores: atomic files, datasets and checkpoints."""

import errno
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys

import jax
import numpy as np
import object_store
import pytest
import raw_corpora
import web_server

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.data.sentence import text
from jaxsyn.data.store import fetch, manifests
from jaxsyn.errors import InputError, StoreError
from jaxsyn.preprocess import build, verify
from jaxsyn.session import Session, workdir
from jaxsyn.storage import checksums, files, lock, remote
from jaxsyn.storage.checksums import CorruptFileError
from jaxsyn.training import log
from jaxsyn.training.checkpoint_folder import CheckpointFolder
from jaxsyn.training.checkpoint_reader import CheckpointReader
from jaxsyn.training.checkpoint_writer import CheckpointWriter, Progress
from jaxsyn.utils import exits


@pytest.fixture
def folder(bucket, request):
  """An empty directory on s3:// for each test."""
  return f"{bucket}/{request.node.name}"


@pytest.fixture
def google_folder(google_bucket, request):
  """An empty directory on gs:// for each test."""
  name = re.sub(r"\W", "_", request.node.name)
  return f"{google_bucket}/{name}"


def tree(value):
  params = {"w": np.full((3, 4), value, np.float32)}
  return {"params": params, "step": np.int32(value)}


def abstract(value):
  return jax.tree.map(np.zeros_like, tree(value))


def save(folder, *steps):
  """Saves checkpoints as a run does."""
  checkpoints = CheckpointWriter(folder, keep=2)
  for step in steps:
    checkpoints.save(step, tree(step), Progress(epoch=step))
  checkpoints.close()


def test_reads_plain_and_compressed_text(folder):
  lines = ["one", "", "é " * 1000]
  data = "".join(line + "\n" for line in lines).encode()
  files.write_bytes(f"{folder}/a.en", data)
  files.write_bytes(f"{folder}/a.en.gz", gzip.compress(data))
  for name in ("a.en", "a.en.gz"):
    assert list(text.lines_of(f"{folder}/{name}")) == lines
  with pytest.raises(InputError, match="is missing or is not a file"):
    list(text.lines_of(f"{folder}/b.en"))


def test_locking_logs_a_warning(folder, caplog):
  with lock.exclusive_lock(folder), lock.shared_lock(folder):
    assert f"object store of {folder} has no locks" in caplog.text
  assert remote.sizes(folder) == {}


def test_orbax_writes_checkpoints_to_gs(google_folder):
  save(google_folder, 1, 2, 3)
  checkpoints = CheckpointReader(google_folder)
  assert checkpoints.steps() == [2, 3]
  assert not any(
    name.startswith("1/")
    for name in remote.sizes(f"{google_folder}/checkpoints")
  )
  loaded, record = checkpoints.last.read(3, abstract(3))
  assert loaded["params"]["w"][0, 0] == 3 and record["content"]["epoch"] == 3
  params = checkpoints.restore_params(
    "2", abstract(2)["params"], ema=False
  ).params
  assert params["w"][2, 3] == 2


def test_unfinished_checkpoints_on_gs_are_ignored_and_removed(google_folder):
  save(google_folder, 1, 2)
  # It is written last.
  remote.remove(f"{google_folder}/checkpoints/2", ["metadata.json"])
  files.write_text(f"{google_folder}/checkpoints/notes", "mine")
  assert CheckpointReader(google_folder).steps() == [1]
  assert "2/state/_METADATA" in remote.sizes(f"{google_folder}/checkpoints")
  checkpoints = CheckpointWriter(google_folder)
  names = remote.sizes(f"{google_folder}/checkpoints")
  assert {name.partition("/")[0] for name in names} == {"1", "notes"}
  step, result, _ = checkpoints.restore(abstract(1))
  assert (step, result["step"]) == (1, 1)
  checkpoints.close()


def largest_file(directory):
  """The file that holds the arrays of a checkpoint."""
  sizes = remote.sizes(directory, "state/d/")
  return f"{directory}/{max(sizes, key=sizes.get)}"


def flip_bit(path):
  data = bytearray(files.read_bytes(path))
  data[len(data) // 2] ^= 1
  files.write_bytes(path, bytes(data))


@pytest.mark.parametrize("missing", [False, True])
def test_corrupt_checkpoints_on_gs_are_set_aside(google_folder, missing):
  save(google_folder, 1, 2)
  path = largest_file(f"{google_folder}/checkpoints/2")
  if missing:
    files.remove(path)
  else:
    flip_bit(path)
  checkpoints = CheckpointWriter(google_folder)
  step, _, _ = checkpoints.restore(abstract(1))
  checkpoints.close()
  assert step == 1 and CheckpointReader(google_folder).steps() == [1]
  (renamed,) = {
    name.partition("/")[0]
    for name in remote.sizes(google_folder)
    if name.startswith("corrupt-2-")
  }
  assert "metadata.json" in remote.sizes(f"{google_folder}/{renamed}")


def copy_to_store(source, target, names):
  """Copies files, as a user does with the tools of a store."""
  for name in names:
    files.copy(f"{source}/{name}", f"{target}/{name}")


def test_reads_checkpoints_copied_to_s3(google_folder, folder, tmp_path):
  """Also those that have checksums of their files, as local ones do."""
  save(tmp_path, 1)
  copy_to_store(tmp_path, folder, files.names(tmp_path))
  save(google_folder, 2)
  copy_to_store(google_folder, folder, files.names(google_folder))
  checkpoints = CheckpointReader(folder)
  for step in (1, 2):
    loaded, _ = checkpoints.last.read(step, abstract(step))
    assert loaded["params"]["w"][0, 0] == step
    flip_bit(largest_file(f"{folder}/checkpoints/{step}"))
    with pytest.raises(CorruptFileError, match=f"checkpoints/{step}"):
      checkpoints.last.read(step, abstract(step))


@pytest.mark.parametrize("name", ["/a", "state/../../a"])
def test_checkpoint_metadata_cannot_name_other_files(folder, tmp_path, name):
  save(tmp_path, 1)
  copy_to_store(tmp_path, folder, files.names(tmp_path))
  checkpoints = CheckpointReader(folder)
  document = checkpoints.last.metadata(1)
  document["files"][name] = {"bytes": 1, "crc32c": "00000000"}
  path = f"{folder}/checkpoints/1/metadata.json"
  files.write_json(path, checksums.add_checksum(document))
  message = f"must be a file of the checkpoint, got '{name}'"
  with pytest.raises(CorruptFileError, match=re.escape(message)):
    checkpoints.last.read(1, abstract(1))


def test_objects_are_not_copied_out_of_the_local_copy(folder, tmp_path):
  save(tmp_path, 1)
  copy_to_store(tmp_path, folder, files.names(tmp_path))
  files.write_bytes(f"{folder}/checkpoints/1/state/../../a", b"x")
  with pytest.raises(CorruptFileError, match=r"has a file 'state/\.\./\.\./a'"):
    CheckpointReader(folder).last.read(1, abstract(1))


def test_runs_cannot_be_written_to_s3(tiny, folder):
  with pytest.raises(
    InputError, match=r"cannot be written to s3://\. Use gs://"
  ):
    train.run(tiny(), f"{folder}/run")
  assert remote.sizes(folder) == {}
  with pytest.raises(InputError, match="without these characters"):
    train.run(tiny(), "gs://bucket/run[1]")  # Orbax takes it for a pattern


def test_the_log_on_gs_is_published_and_resumed(google_folder):
  config = read_config(base.get_config())
  first = log.Log(files.path_of(google_folder), config, start=0)
  for step in (1, 2, 3):
    first.record("train", step, {"loss": 1.0, "minutes": 0.1})
  assert log.records(google_folder) == ([], [])
  first.publish()
  first.record("train", 4, {"loss": 1.0, "minutes": 0.1})  # and is killed
  second = log.Log(files.path_of(google_folder), config, start=2)
  second.record("train", 3, {"loss": 2.0, "minutes": 0.1})
  second.close()
  result, corrupt = log.records(google_folder)
  assert [(r["step"], r["loss"]) for r in result] == [(1, 1), (2, 1), (3, 2)]
  assert not corrupt
  first.close()


def upload_folder(source, target, but=()):
  names = [p.relative_to(source) for p in source.rglob("*") if p.is_file()]
  names = [name.as_posix() for name in names]
  remote.upload(source, target, [n for n in names if not n.startswith(but)])


def test_resumes_a_run_with_the_arrays_of_a_local_one(
  tiny, folder, google_folder, tmp_path, monkeypatch
):
  """Run directory on gs://, data on s3://."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  config = tiny()
  config.batch.shapes = 1
  config.train.update(
    steps=4, evaluate_every=4, selection="log_likelihood", profile="4-4"
  )
  local, stored = tmp_path / "run", files.path_of(f"{google_folder}/run")
  train.run(config, local)
  upload_folder(local, stored, but=("checkpoints/4/", "best/", "plugins/"))
  upload_folder(files.path_of(config.data.directory), f"{folder}/data")
  config.data.directory = f"{folder}/data"
  assert train.run(config, stored).step == 4  # from 2
  for checkpoints in (
    CheckpointReader(local).last,
    CheckpointReader(local).best,
  ):
    name, step = checkpoints.folder.name, checkpoints.steps()[-1]
    copy = CheckpointFolder(
      stored / name, checkpoints.item, checkpoints.content
    )
    assert copy.steps() == checkpoints.steps()
    assert copy.metadata(step)["arrays"] == checkpoints.metadata(step)["arrays"]
  steps = [[r["step"] for r in log.records(run)[0]] for run in (local, stored)]
  assert steps == [[2, 4, 4], [2, 4, 4]]
  names = files.names(stored)
  assert any(name.startswith("plugins/profile/") for name in names)
  assert any(name.startswith("events.out.tfevents.") for name in names)
  ((expected,),) = Session(local, beam=1)(["the small dog sees a red house"])
  copy_to_store(stored, f"{folder}/run", names)
  for run in (stored, f"{folder}/run"):
    ((best,),) = Session(run, beam=1)(["the small dog sees a red house"])
    assert best.text == expected.text
  assert not os.path.exists("s3:") and not os.path.exists("gs:")


class Killed(BaseException):
  pass


def kill(patch, store, kind, index):
  """Lets a process make so many requests of a kind, and no more."""
  call, left = getattr(store, kind), iter(range(index))

  def counted(*args):
    if next(left, None) is None:
      raise Killed
    call(*args)

  patch.setattr(store, kind, counted)


def test_prepares_the_same_data_as_locally_after_kills(
  folder, tmp_path, monkeypatch
):
  """Replaces older data, and is killed at two points."""
  local = raw_corpora.corpus(tmp_path)
  config, data = raw_corpora.corpus(tmp_path / "again"), f"{folder}/data"
  for item in (local, config):
    item.prepare.splits["train"] = ("tra*.en", "train.de.gz")
  build.run(local)
  raw = pathlib.Path(config.prepare.raw_dir)
  upload_folder(raw, f"{folder}/raw")
  shutil.rmtree(raw)
  config.prepare.raw_dir, config.data.directory = f"{folder}/raw", data
  config.prepare.parse.source_conllu["train"] = "train.conllu"
  config.prepare.parse.source_conllu["test"] = f"{folder}/raw/test.conllu"
  for name in ("manifest.json", "text/old.source.gz", ".new-1.partial/a"):
    files.write_bytes(f"{data}/{name}", b"{}")
  store = remote.filesystem(folder)
  # While pieces are made, and while what was made of them is moved.
  for kind, index, present in (("put_file", 20, True), ("cp_file", 9, False)):
    with monkeypatch.context() as patch, pytest.raises(Killed):
      kill(patch, store, kind, index)
      build.run(config)
    assert files.is_file(f"{data}/manifest.json") == present
  assert build.run(config) == files.path_of(data)
  result = {name: f"{data}/{name}" for name in files.names(data)}
  due = raw_corpora.records_of(local.data.directory)
  pages = [
    files.read_json(f"{place}/manifest.json")
    for place in (local.data.directory, data)
  ]
  assert {
    name: files.read_bytes(path)
    for name, path in result.items()
    if not name.startswith(("work/vocabulary-", "manifest.json"))
  } == due
  assert pages[0]["files"] == pages[1]["files"]
  assert pages[0]["key"] == pages[1]["key"]
  verify.run(data)
  files.write_bytes(result["report.txt"], b"x")
  with pytest.raises(InputError, match=r"report\.txt has 1 bytes and had"):
    verify.run(data)


def test_downloads_to_a_store_again_if_the_file_is_corrupt(folder):
  """The SHA-256 is recorded next to the file, and must be the same again."""
  body = gzip.compress(b"one line\n")
  path = files.path_of(f"{folder}/raw/a.en.gz")
  with web_server.serve() as server:
    server.answers["a"] = body
    address = fetch.Download(server.url("a"))
    digest = fetch.get(path, address)
    assert fetch.get(path, address) == digest and server.asked == ["/a"]
    files.write_bytes(path, body[:-1])
    assert fetch.get(path, address) == digest
    assert files.read_bytes(path) == body
    files.remove(path)
    server.answers["a"] = gzip.compress(b"another line\n")
    with pytest.raises(InputError, match=r"changed .*raw/a\.en\.gz\.sha256"):
      fetch.get(path, address)
  assert remote.sizes(folder).keys() == {"raw/a.en.gz.sha256"}


def test_cached_copies_are_verified(prepared, folder, tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  manifest = manifests.read(prepared)
  digest = manifest["vocabulary"]["source"]["sha256"]
  path = f"{folder}/vocabulary.model"
  files.copy(prepared / "vocabulary.model", path)
  copy = fetch.local(path, digest)
  files.write_bytes(path, b"another")
  assert fetch.local(path, digest) == copy
  copy.write_bytes(b"damaged here")
  with pytest.raises(InputError, match="copy the folder again"):
    fetch.local(path, digest)
  assert not copy.exists()


def test_only_one_thread_makes_a_cached_copy(folder, tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  files.write_bytes(f"{folder}/a", b"1" * 1_000_000)
  digest = checksums.sha256_of(f"{folder}/a")
  copied, copy = [], files.copy

  def counted(source, target):
    copied.append(source)
    copy(source, target)

  monkeypatch.setattr(files, "copy", counted)
  result = remote.each(lambda _: fetch.local(f"{folder}/a", digest), range(8))
  assert len(set(result)) == len(copied) == 1


def test_errors_of_stores_name_path_and_remedy(folder, monkeypatch):
  with pytest.raises(StoreError, match="the bucket does not exist"):
    exits.check_target("s3://none/run", "--workdir", folder=True, store=True)
  with pytest.raises(StoreError, match="the bucket does not exist"):
    files.write_text("s3://none/a", "x")
  with pytest.raises(InputError, match="name of a bucket is missing"):
    remote.check("s3://")
  with pytest.raises(InputError, match="local, s3:// or gs://; ftp://"):
    files.path_of("ftp://host/run")
  with pytest.raises(InputError, match="only writes to local folders"):
    exits.check_target(folder, "--output", folder=True)
  with pytest.raises(InputError, match="is not the folder of a run"):
    workdir.open_run(folder)
  with pytest.raises(InputError, match="there is no s3://bucket/"):
    manifests.read(folder)
  with pytest.raises(FileNotFoundError) as error:
    files.read_bytes(f"{folder}/a")
  assert error.value.errno == errno.ENOENT
  assert exits.error_message(error.value) == (
    f"error: No such file or directory: {folder}/a. Check the path.",
    2,
  )
  monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # or ten seconds
  with object_store.found_at("http://127.0.0.1:1"):
    with pytest.raises(
      StoreError, match="request to the store failed"
    ) as error:
      manifests.read(folder)  # and is neither missing nor damaged
    assert exits.error_message(error.value)[1] == 2


def test_wrong_credentials_are_reported(folder, tmp_path):
  port = object_store.free_port()
  command = object_store.rclone(port, str(tmp_path))
  with object_store.running(command, port):
    os.environ["AWS_SECRET_ACCESS_KEY"] = "wrong"
    with pytest.raises(
      StoreError, match=r"access denied \(.*\)\. Credentials come"
    ):
      files.read_bytes("s3://bucket/a")
    with pytest.raises(StoreError, match="access denied"):
      remote.check("s3://bucket/a")


def test_local_paths_load_no_store_libraries(tmp_path):
  code = f"""
import sys
from jaxsyn.storage import files, lock
from jaxsyn.data.store import dataset, fetch, manifests
from jaxsyn.data.sentence import text
with lock.exclusive_lock({str(tmp_path)!r}):
  files.write_json({str(tmp_path / "a")!r}, 1)
  files.read_json({str(tmp_path / "a")!r})
found = {{name.partition(".")[0] for name in sys.modules}}
assert not found & {{"s3fs", "gcsfs", "aiobotocore", "botocore"}}, found
sys.modules["s3fs"] = None
try:
  files.path_of("s3://bucket/a")
except ValueError as error:
  print(error)
"""
  message = subprocess.run(
    [sys.executable, "-c", code], text=True, capture_output=True, check=True
  )
  assert "pip install -e '.[remote]'" in message.stdout
