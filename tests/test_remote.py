"""Object stores: datasets, checkpoints, logs and errors of stores."""

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
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.store import fetch, manifests
from jaxsyn.errors import InputError, StoreError
from jaxsyn.preprocess import build, verify
from jaxsyn.session import Session, workdir
from jaxsyn.storage import checksums, files, lock, remote
from jaxsyn.storage.checksums import CorruptFileError
from jaxsyn.training import log
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
  return f"{google_bucket}/{request.node.name}"


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


def top_names(folder):
  return {name.partition("/")[0] for name in remote.sizes(folder)}


def flip_bit(directory):
  """Changes the largest file of a checkpoint, which contains its arrays."""
  sizes = remote.sizes(directory, "state/d/")
  path = f"{directory}/{max(sizes, key=sizes.get)}"
  data = bytearray(files.read_bytes(path))
  data[len(data) // 2] ^= 1
  files.write_bytes(path, bytes(data))


def upload_folder(source, target, but=()):
  """Copies a directory to a store, as a user does with the tools of a store."""
  names = [n for n in files.names(source) if not n.startswith(but)]
  remote.upload(source, target, names)


def test_locking_logs_a_warning(folder, caplog):
  with lock.exclusive_lock(folder), lock.shared_lock(folder):
    assert f"object store of {folder} has no locks" in caplog.text
  assert remote.sizes(folder) == {}


def test_checkpoints_on_gs(google_folder):
  """Unfinished checkpoints are removed, corrupt ones set aside."""
  stored = f"{google_folder}/checkpoints"
  save(google_folder, 1, 2, 3)
  checkpoints = CheckpointReader(google_folder)
  assert checkpoints.steps() == [2, 3] and top_names(stored) == {"2", "3"}
  loaded, record = checkpoints.last.read(3, abstract(3))
  assert loaded["params"]["w"][0, 0] == 3 and record["content"]["epoch"] == 3
  params = abstract(2)["params"]
  restored = checkpoints.restore_params("2", params, ema=False).params
  assert restored["w"][2, 3] == 2
  save(google_folder, 4, 5)
  remote.remove(f"{stored}/5", ["commit_success.txt"])  # it is written last
  for name in ("notes", "mine/notes"):
    files.write_text(f"{stored}/{name}", "mine")
  assert CheckpointReader(google_folder).steps() == [4]
  assert "5/state/_METADATA" in remote.sizes(stored)
  CheckpointWriter(google_folder).close()
  assert top_names(stored) == {"4", "notes", "mine"}
  save(google_folder, 6)
  flip_bit(f"{stored}/6")
  writer = CheckpointWriter(google_folder)
  step, result, _ = writer.restore(abstract(4))
  writer.close()
  assert (step, result["step"]) == (4, 4)
  assert CheckpointReader(google_folder).steps() == [4]
  (renamed,) = (n for n in top_names(google_folder) if n.startswith("corrupt-"))
  assert renamed.startswith("corrupt-6-")
  assert "metadata/metadata.json" in remote.sizes(f"{google_folder}/{renamed}")


def test_reads_checkpoints_copied_to_s3(google_folder, folder, tmp_path):
  save(tmp_path, 1)
  upload_folder(tmp_path, folder)
  save(google_folder, 2)
  for name in files.names(google_folder):
    files.copy(f"{google_folder}/{name}", f"{folder}/{name}")
  checkpoints = CheckpointReader(folder)
  for step in (1, 2):
    loaded, _ = checkpoints.last.read(step, abstract(step))
    assert loaded["params"]["w"][0, 0] == step
    flip_bit(f"{folder}/checkpoints/{step}")
    with pytest.raises(CorruptFileError, match=f"checkpoints/{step}"):
      checkpoints.last.read(step, abstract(step))


def test_checkpoints_cannot_name_files_outside(folder, tmp_path):
  save(tmp_path, 1)
  upload_folder(tmp_path, folder)
  checkpoints = CheckpointReader(folder)
  name, path = "state/../../a", f"{folder}/checkpoints/1"
  files.write_bytes(f"{path}/{name}", b"x")
  with pytest.raises(CorruptFileError, match=f"has a file '{re.escape(name)}'"):
    checkpoints.last.read(1, abstract(1))
  remote.remove(path, [name])
  document = checkpoints.last.metadata(1)
  for listed in (name, "/a"):
    entry = {listed: {"bytes": 1, "crc32c": "00000000"}}
    changed = document | {"files": document["files"] | entry}
    files.write_json(
      f"{path}/metadata/metadata.json", checksums.add_checksum(changed)
    )
    message = f"must be a file of the checkpoint, got '{listed}'"
    with pytest.raises(CorruptFileError, match=re.escape(message)):
      checkpoints.last.read(1, abstract(1))


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


def test_resumes_a_run_with_the_arrays_of_a_local_one(
  tiny, folder, google_folder, tmp_path
):
  """Run directory on gs://, data on s3://, where runs cannot be."""
  config = tiny()
  config.model.transformer.encoder_layers = config.batch.shapes = 1
  config.train.update(
    steps=4, evaluate_every=4, selection="log_likelihood", profile="4-4"
  )
  with pytest.raises(InputError, match=r"cannot be written to s3://"):
    train.run(config, f"{folder}/run")
  assert remote.sizes(folder) == {}
  with pytest.raises(InputError, match="without these characters"):
    train.run(config, "gs://bucket/run[1]")  # Orbax takes it for a pattern
  local, stored = tmp_path / "run", files.path_of(f"{google_folder}/run")
  train.run(config, local)
  upload_folder(local, stored, but=("checkpoints/4/", "best/", "plugins/"))
  upload_folder(config.data.directory, f"{folder}/data")
  config.data.directory = f"{folder}/data"
  assert train.run(config, stored).step == 4  # from 2
  assert CheckpointReader(stored).steps() == CheckpointReader(local).steps()
  for checkpoint in ("last", "best"):
    params, expected = (
      Session(run, checkpoint=checkpoint, beam=1).params
      for run in (stored, local)
    )
    jax.tree.map(np.testing.assert_array_equal, params, expected)
  for run in (local, stored):
    assert [r["step"] for r in log.records(run)[0]] == [2, 4, 4]
  names = files.names(stored)
  assert any(name.startswith("plugins/profile/") for name in names)
  assert any(name.startswith("events.out.tfevents.") for name in names)
  sentence = ["the small dog sees a red house"]
  ((expected,),) = Session(local, beam=1)(sentence)
  ((best,),) = Session(stored, beam=1)(sentence)
  assert best.text == expected.text
  assert not os.path.exists("s3:") and not os.path.exists("gs:")


class Killed(BaseException):
  """Stands for a signal that ends the process."""


def kill(patch, store, kind, index):
  """Makes a store fail at the request of a kind with this index."""
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
  # While pieces are made, and while finished pieces are moved.
  for kind, index, present in (("put_file", 20, True), ("cp_file", 9, False)):
    with monkeypatch.context() as patch, pytest.raises(Killed):
      kill(patch, store, kind, index)
      build.run(config)
    assert files.is_file(f"{data}/manifest.json") == present
  assert build.run(config) == files.path_of(data)
  assert {
    name: files.read_bytes(f"{data}/{name}")
    for name in files.names(data)
    if name != "manifest.json"
  } == raw_corpora.records_of(local.data.directory)
  first, second = (
    files.read_json(f"{place}/manifest.json")
    for place in (local.data.directory, data)
  )
  assert first["files"] == second["files"] and first["key"] == second["key"]
  verify.run(data)
  files.write_bytes(f"{data}/report.txt", b"x")
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


def test_errors_of_stores_name_path_and_remedy(
  folder, google_bucket, monkeypatch
):
  def check_output():
    exits.check_target(folder, "--output", folder=True)

  def read_lines():
    list(text.lines_of(f"{folder}/a.en"))

  files.write_text(f"{folder}/bad.udpipe", "<html>")
  no_bucket = "bucket does not exist"
  for kind, message, call in (
    (StoreError, no_bucket, lambda: remote.check("s3://none/a")),
    (StoreError, no_bucket, lambda: files.write_text("s3://none/a", "x")),
    (StoreError, no_bucket, lambda: files.write_text("gs://none/a", "x")),
    (InputError, "name of a bucket is missing", lambda: remote.check("s3://")),
    (InputError, "ftp://", lambda: files.path_of("ftp://host/run")),
    (InputError, "--output .* only writes to local folders", check_output),
    (InputError, "not the folder of a run", lambda: workdir.open_run(folder)),
    (InputError, "there is no s3://bucket/", lambda: manifests.read(folder)),
    (InputError, "is missing or is not a file", read_lines),
    (InputError, "no such parser", lambda: UDPipe(f"{folder}/a.udpipe")),
    (InputError, "not a .* model", lambda: UDPipe(f"{folder}/bad.udpipe")),
  ):
    with pytest.raises(kind, match=message):
      call()
  with pytest.raises(FileNotFoundError) as missing:
    files.read_bytes(f"{folder}/a")
  assert missing.value.errno == errno.ENOENT
  message, status = exits.error_message(missing.value)
  assert f"{folder}/a" in message and status == 2
  monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # or ten seconds
  # An unreachable store is neither a missing nor a corrupt file.
  with (
    object_store.found_at("http://127.0.0.1:1"),
    pytest.raises(StoreError, match="request to the store failed") as error,
  ):
    exits.check_target(folder, "--workdir", folder=True, store=True)
  assert exits.error_message(error.value)[1] == 2


def test_wrong_credentials_are_reported(folder, tmp_path):
  port = object_store.free_port()
  command = object_store.rclone(port, str(tmp_path))
  with object_store.running(command, port):
    os.environ["AWS_SECRET_ACCESS_KEY"] = "wrong"
    for call in (files.read_bytes, remote.check):
      with pytest.raises(StoreError, match=r"denied \(.*\)\. Credentials come"):
        call("s3://bucket/a")


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
