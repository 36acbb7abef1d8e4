"""Folders on object stores: whole files, one holder, whole checkpoints."""

import errno
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import object_store
import pytest
import raw_corpora
import web_server

from jaxsyn import exits, train
from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.data.sentence import text
from jaxsyn.data.store import fetch, manifests
from jaxsyn.errors import InputError, StoreError
from jaxsyn.preprocess import build, verify
from jaxsyn.session import Session
from jaxsyn.storage import checksums, files, lease, lock, remote
from jaxsyn.trained import workdir
from jaxsyn.training import log
from jaxsyn.training.checkpoint import Checkpoints, Progress
from jaxsyn.training.folder import CheckpointFolder, CorruptFileError
from jaxsyn.training.reader import CheckpointReader


@pytest.fixture
def folder(bucket, request):
  """A folder of its own for each test, with nothing in it."""
  return f"{bucket}/{request.node.name}"


@pytest.fixture
def quick_locks(monkeypatch):
  monkeypatch.setattr(lease, "LAPSE", 0.8)


@pytest.fixture
def live_locks(monkeypatch):
  """Long enough for who holds one to renew it on a busy machine."""
  monkeypatch.setattr(lease, "LAPSE", 4.0)


def tree(value):
  params = {"w": np.full((3, 4), value, np.float32)}
  return {"params": params, "step": np.int32(value)}


def abstract(value):
  return jax.tree.map(np.zeros_like, tree(value))


def keep(folder, *steps):
  """Saves checkpoints as a run does."""
  checkpoints = Checkpoints(folder, keep=2)
  for step in steps:
    checkpoints.save(step, tree(step), Progress(epoch=step))
  checkpoints.close()


def test_a_file_is_there_whole_or_as_it_was(folder):
  path = files.path_of(folder) / "a" / "b.json"
  files.write_json(path, {"é": 1})
  assert files.read_json(path) == {"é": 1}
  with pytest.raises(RuntimeError), files.publish(path) as file:
    file.write(b"half")
    raise RuntimeError
  assert files.read_json(path) == {"é": 1}
  assert files.is_file(path) and not files.is_file(path.parent)
  assert remote.tags(folder).keys() == {"a/b.json"}


def test_files_are_copied_and_compared_across_the_two_worlds(folder, tmp_path):
  data = np.random.default_rng(0).bytes(3_000_000)
  (tmp_path / "a").write_bytes(data)
  files.copy(tmp_path / "a", f"{folder}/a")
  files.copy(f"{folder}/a", tmp_path / "b")
  assert (tmp_path / "b").read_bytes() == data
  assert checksums.sha256_of(f"{folder}/a") == checksums.sha256_of(
    tmp_path / "a"
  )
  sums = checksums.file_checksums(tmp_path, ["a"])
  assert checksums.file_checksums(folder, ["a"]) == sums
  assert checksums.corrupt_files(folder, sums) == ""
  remote.write(f"{folder}/a", data[:-1] + b"?")
  assert "another checksum" in checksums.corrupt_files(folder, sums)
  remote.write(f"{folder}/a", data[:-1])
  assert "has 2999999 bytes" in checksums.corrupt_files(folder, sums)
  remote.remove(folder, ["a"])
  assert "No such file" in checksums.corrupt_files(folder, sums)


def test_a_file_is_read_from_any_place(folder):
  data = np.random.default_rng(0).bytes(10_000)
  remote.write(f"{folder}/a", data)
  with files.open_read(f"{folder}/a", read_ahead=1000) as file:
    for begin, size in [(0, 10), (9_990, 100), (2_500, 3_000), (2_510, 5)]:
      file.seek(begin)
      assert file.read(size) == data[begin : begin + size]
    assert file.seek(-4, os.SEEK_END) == 9_996 and file.read() == data[-4:]
    assert file.seek(20_000) and file.read(1) == b""


def test_text_is_read_of_a_store(folder):
  lines = ["one", "", "é " * 1000]
  data = "".join(line + "\n" for line in lines).encode()
  remote.write(f"{folder}/a.en", data)
  remote.write(f"{folder}/a.en.gz", gzip.compress(data))
  for name in ("a.en", "a.en.gz"):
    assert list(text.lines_of(f"{folder}/{name}")) == lines
  with pytest.raises(InputError, match="is missing or no file"):
    list(text.lines_of(f"{folder}/b.en"))


def test_a_folder_counts_when_its_page_is_there(folder, tmp_path, monkeypatch):
  (tmp_path / "b").mkdir()
  for name in ("page.json", "z", "b/c"):
    (tmp_path / name).write_text(name)
  files.replace_folder(tmp_path, folder, "page.json")
  (tmp_path / "z").rename(tmp_path / "y")
  seen = []
  store = remote.filesystem(folder)
  put = store.put_file

  def watched(path, target):
    seen.append((remote.is_file(f"{folder}/page.json"), target[-4:]))
    put(path, target)

  monkeypatch.setattr(store, "put_file", watched)
  files.replace_folder(tmp_path, folder, "page.json")
  assert [present for present, _ in seen] == [
    False
  ] * 3  # as long as any is missing
  assert seen[-1][1] == "json"
  assert sorted(remote.tags(folder)) == ["b/c", "page.json", "y"]
  files.remove_folder(folder, "page.json")
  assert remote.tags(folder) == {}


def test_who_holds_a_folder_is_told(folder, live_locks, capsys):
  with lock.exclusive_lock(folder), lock.exclusive_lock(folder):
    other = lease.Lease(folder)
    assert not other.take()  # it is renewed meanwhile
    assert other.holder().startswith(f"process {os.getpid()} on ")
    assert f"{folder} was in use by process" in capsys.readouterr().err
    assert (
      lock.lock_owner(f"{folder}/") == other.holder()
    )  # whatever was renewed
    lease.check(f"{folder}/a")
  assert remote.tags(folder) == {}
  with pytest.raises(FileNotFoundError):
    lock.lock_owner(folder)
  with lock.exclusive_lock(folder):  # at once, since it was given back
    assert remote.tags(folder).keys() == {"lock-1"}


def test_what_a_killed_process_held_goes_to_one_of_many(folder, quick_locks):
  assert lease.Lease(folder).take()  # and never renews it
  leases = [lease.Lease(folder) for _ in range(4)]
  chosen = [False] * len(leases)

  def take(i):
    chosen[i] = leases[i].take()

  threads = [threading.Thread(target=take, args=[i]) for i in range(4)]
  began = time.monotonic()
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert chosen.count(True) == 1
  assert time.monotonic() - began > lease.LAPSE
  assert remote.tags(folder).keys() == {"lock-2"}


def test_a_holder_that_slept_finds_out(folder, monkeypatch):
  monkeypatch.setattr(lease.Lease, "renew", lambda self: None)
  with lock.exclusive_lock(folder):
    lease.check(f"{folder}/a")
    monkeypatch.setattr(lease, "LAPSE", 0.8)
    time.sleep(lease.LAPSE)
    with pytest.raises(StoreError, match="another process may work there"):
      lease.check(f"{folder}/a")
    lease.check(f"{folder}2/a")


def test_a_store_without_conditions_is_told(tmp_path, live_locks, caplog):
  port = object_store.free_port()
  (tmp_path / "bucket").mkdir()
  command = object_store.rclone(port, str(tmp_path))
  with object_store.running(command, port):
    folder = f"{object_store.BUCKET}/run"
    with lock.exclusive_lock(folder):
      assert "do not see each other" in caplog.text
      assert not lease.Lease(folder).take()  # one after the other do
    keep(folder, 1, 2)
    assert CheckpointReader(folder).steps() == [1, 2]


def test_checkpoints_are_there_whole(folder):
  keep(folder, 1, 2, 3)
  checkpoints = CheckpointReader(folder)
  assert checkpoints.steps() == [2, 3]
  loaded, page = checkpoints.last.read(3, abstract(3))
  assert loaded["params"]["w"][0, 0] == 3 and page["content"]["epoch"] == 3
  params = checkpoints.restore_params(
    "2", abstract(2)["params"], ema=False
  ).params
  assert params["w"][2, 3] == 2


def test_what_a_kill_left_of_a_checkpoint_is_none(folder):
  keep(folder, 1, 2)
  remote.remove(f"{folder}/checkpoints/2", ["page.json"])  # is written last
  files.write_text(f"{folder}/checkpoints/notes", "mine")
  assert CheckpointReader(folder).steps() == [1]
  assert "2/state/_METADATA" in remote.tags(f"{folder}/checkpoints")
  checkpoints = Checkpoints(folder)
  names = remote.tags(f"{folder}/checkpoints")
  assert {name.partition("/")[0] for name in names} == {"1", "notes"}
  step, result, _ = checkpoints.restore(abstract(1))
  assert (step, result["step"]) == (1, 1)
  checkpoints.close()


@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_checkpoint_is_set_aside(folder, lost):
  keep(folder, 1, 2)
  place = f"{folder}/checkpoints/2"
  names = [name for name in remote.tags(place) if name != "page.json"]
  name = max(names, key=lambda n: remote.size(f"{place}/{n}"))
  if lost:
    remote.remove(place, [name])
  else:
    data = bytearray(remote.read(f"{place}/{name}"))
    data[len(data) // 2] ^= 1
    remote.write(f"{place}/{name}", bytes(data))
  checkpoints = Checkpoints(folder)
  step, _, _ = checkpoints.restore(abstract(1))
  checkpoints.close()
  assert step == 1 and CheckpointReader(folder).steps() == [1]
  assert "page.json" in remote.tags(f"{folder}/damaged-2")


@pytest.mark.parametrize("name", ["/a", "state/../../a"])
def test_a_page_names_no_files_elsewhere(folder, name):
  keep(folder, 1)
  checkpoints = CheckpointReader(folder)
  document = checkpoints.last.record(1)
  document["files"][name] = {"bytes": 1, "crc32c": "00000000"}
  path = f"{folder}/checkpoints/1/page.json"
  files.write_json(path, checksums.add_checksum(document))
  message = f"must be a file of the checkpoint, got '{name}'"
  with pytest.raises(CorruptFileError, match=re.escape(message)):
    checkpoints.last.read(1, abstract(1))


def test_nothing_is_saved_by_who_lost_the_folder(folder, monkeypatch):
  monkeypatch.setattr(lease.Lease, "renew", lambda self: None)
  with lock.exclusive_lock(folder):
    keep(folder, 1)
    # Shorter only now: a busy machine may take longer than that to save.
    monkeypatch.setattr(lease, "LAPSE", 0.8)
    time.sleep(lease.LAPSE)
    with pytest.raises(StoreError, match="was not renewed"):
      keep(folder, 2)
  assert CheckpointReader(folder).steps() == [1]


def test_a_log_is_published_and_gone_on_with(folder):
  first = log.Log(
    files.path_of(folder), read_config(base.get_config()), start=0
  )
  for step in (1, 2, 3):
    first.record("train", step, {"loss": 1.0, "minutes": 0.1})
  assert log.records(folder) == ([], [])
  first.publish()
  first.record("train", 4, {"loss": 1.0, "minutes": 0.1})  # and is killed
  second = log.Log(
    files.path_of(folder), read_config(base.get_config()), start=2
  )
  second.record("train", 3, {"loss": 2.0, "minutes": 0.1})
  second.close()
  result, corrupt = log.records(folder)
  assert [(r["step"], r["loss"]) for r in result] == [(1, 1), (2, 1), (3, 2)]
  assert not corrupt
  first.close()


def upload_folder(source, target, but=()):
  names = [p.relative_to(source) for p in source.rglob("*") if p.is_file()]
  names = [name.as_posix() for name in names]
  remote.upload(source, target, [n for n in names if not n.startswith(but)])


def test_a_run_goes_on_there_as_it_does_here(
  tiny, folder, tmp_path, monkeypatch
):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  config = tiny()
  config.batch.shapes = 1
  config.train.update(steps=4, evaluate_every=4, selection="log_likelihood")
  local, existing = tmp_path / "run", files.path_of(f"{folder}/run")
  train.run(config, local)
  upload_folder(local, existing, but=("checkpoints/4/", "best/"))
  upload_folder(files.path_of(config.data.directory), f"{folder}/data")
  config.data.directory = f"{folder}/data"
  assert train.run(config, existing).step == 4  # from 2
  for checkpoints in (
    CheckpointReader(local).last,
    CheckpointReader(local).best,
  ):
    name, step = checkpoints.folder.name, checkpoints.steps()[-1]
    stored = CheckpointFolder(
      existing / name, checkpoints.item, checkpoints.content
    )
    assert stored.steps() == checkpoints.steps()
    assert stored.record(step)["arrays"] == checkpoints.record(step)["arrays"]
  steps = [
    [r["step"] for r in log.records(run)[0]] for run in (local, existing)
  ]
  assert steps == [[2, 4, 4], [2, 4, 4]]
  ((best,),) = Session(existing, beam=1)(["the small dog sees a red house"])
  assert best.text
  assert not os.path.exists("s3:")


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


def test_data_is_prepared_there_as_it_is_here(folder, tmp_path, monkeypatch):
  """Also by a process that is killed, where data of before is replaced."""
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
  for name in ("manifest.json", "text/old.gz", ".new-1.partial/a"):
    remote.write(f"{data}/{name}", b"{}")
  store = remote.filesystem(folder)
  # While pieces are made, and while what was made of them is moved.
  for kind, index, present in (("put_file", 50, True), ("cp_file", 9, False)):
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
  remote.write(result["report.txt"], b"x")
  with pytest.raises(InputError, match=r"report\.txt has 1 bytes and had"):
    verify.run(data)


def test_what_is_fetched_lies_there(folder):
  """With its record; what is damaged is fetched anew, and must be the same."""
  body = gzip.compress(b"one line\n")
  path = files.path_of(f"{folder}/raw/a.en.gz")
  with web_server.serve() as server:
    server.answers["a"] = body
    address = fetch.Download(server.url("a"))
    digest = fetch.get(path, address)
    assert fetch.get(path, address) == digest and server.asked == ["/a"]
    remote.write(path, body[:-1])
    assert fetch.get(path, address) == digest
    assert files.read_bytes(path) == body
    files.remove(path)
    server.answers["a"] = gzip.compress(b"another line\n")
    with pytest.raises(InputError, match=r"changed .*raw/a\.en\.gz\.sha256"):
      fetch.get(path, address)
  assert remote.sizes(folder).keys() == {"raw/a.en.gz.sha256"}


def test_files_are_listed_there_as_they_are_here(folder, tmp_path):
  for name in ("a.en", "a-b/c", "a/b.en", "a[1].en", "b1.en", "b2.de"):
    files.write_text(tmp_path / name, "")
    remote.write(f"{folder}/{name}", b"1")
  for pattern in ("", "*.en", "a/*", "b?.*", "a[[]1].en", "b[1-9].en", "c*"):
    assert files.names(folder, pattern) == files.names(tmp_path, pattern)
  for begin in ("a", "b"):
    current, existing = (files.folders(f, begin) for f in (tmp_path, folder))
    assert [path.name for path in current] == [path.name for path in existing]


def test_a_copy_of_a_model_is_checked_and_kept(
  prepared, folder, tmp_path, monkeypatch
):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  manifest = manifests.read(prepared)
  digest = manifest["vocabulary"]["source"]["sha256"]
  path = f"{folder}/vocabulary.model"
  files.copy(prepared / "vocabulary.model", path)
  copy = fetch.local(path, digest)
  remote.write(path, b"another")
  assert fetch.local(path, digest) == copy
  copy.write_bytes(b"damaged here")
  with pytest.raises(InputError, match="copy the folder again"):
    fetch.local(path, digest)
  assert not copy.exists()


def test_of_many_who_need_a_copy_one_makes_it(folder, tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  remote.write(f"{folder}/a", b"1" * 1_000_000)
  digest = checksums.sha256_of(f"{folder}/a")
  copied, copy = [], files.copy

  def counted(source, target):
    copied.append(source)
    copy(source, target)

  monkeypatch.setattr(files, "copy", counted)
  result = remote.each(lambda _: fetch.local(f"{folder}/a", digest), range(8))
  assert len(set(result)) == len(copied) == 1


def test_doors_say_what_is_wrong_with_a_store(folder, monkeypatch):
  with pytest.raises(StoreError, match="there is no such bucket"):
    exits.check_target("s3://none/run", "--workdir", folder=True, store=True)
  with pytest.raises(StoreError, match="there is no such bucket"):
    files.write_text("s3://none/a", "x")
  with pytest.raises(InputError, match="name of a bucket is missing"):
    remote.check("s3://")
  with pytest.raises(InputError, match="local, s3:// or gs://; ftp://"):
    files.path_of("ftp://host/run")
  with pytest.raises(InputError, match="writes to local folders alone"):
    exits.check_target(folder, "--output", folder=True)
  with pytest.raises(InputError, match="is not the folder of a run"):
    workdir.open_run(folder)
  with pytest.raises(InputError, match="there is no s3://bucket/"):
    manifests.read(folder)
  with pytest.raises(FileNotFoundError) as error:
    files.read_bytes(f"{folder}/a")
  assert error.value.errno == errno.ENOENT
  assert exits.error_message(error.value) == (
    f"error: No such file or directory: {folder}/a. Check the name, and what is "
    "there.",
    2,
  )
  monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # or ten seconds
  with object_store.found_at("http://127.0.0.1:1"):
    with pytest.raises(StoreError, match="does not answer") as error:
      manifests.read(folder)  # and is neither missing nor damaged
    assert exits.error_message(error.value)[1] == 2


def test_no_keys_are_told(folder, tmp_path):
  port = object_store.free_port()
  command = object_store.rclone(port, str(tmp_path))
  with object_store.running(command, port):
    os.environ["AWS_SECRET_ACCESS_KEY"] = "wrong"
    with pytest.raises(StoreError, match=r"refuses \(.*\)\. Keys are looked"):
      files.read_bytes("s3://bucket/a")
    with pytest.raises(StoreError, match="refuses"):
      remote.check("s3://bucket/a")


def test_local_folders_need_no_library_of_stores(tmp_path):
  code = f"""
import sys
from jaxsyn.storage import files, lock
from jaxsyn.data.store import fetch, integrity, manifests
from jaxsyn.data.sentence import text
with lock.alone({str(tmp_path)!r}):
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
