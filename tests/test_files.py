"""Tests atomic files and checksums, on a local disk and on an object store."""

import os
import re
import resource
import signal
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from jaxsyn.storage import checksums, files, remote


@pytest.fixture(params=["local", "s3"])
def folder(request, tmp_path):
  """An empty directory, local and on a store."""
  if request.param == "local":
    return tmp_path
  name = re.sub(r"\W", "_", request.node.name)
  return files.path_of(f"{request.getfixturevalue('bucket')}/{name}")


def test_failed_writes_leave_only_the_old_content(folder):
  path = folder / "a" / "b.json"
  files.write_json(path, {"é": 1})
  with pytest.raises(RuntimeError), files.publish(path, "w") as file:
    file.write("half")
    raise RuntimeError
  assert files.read_json(path) == {"é": 1}
  with files.publish(path, flush=False) as file:
    file.write(b"2")
  assert files.read_json(path) == 2
  assert files.is_file(path) and not files.is_file(path.parent)
  assert files.names(folder) == ["a/b.json"]
  for content in ("1", "2"):  # a directory is replaced with all its files
    with files.publish_folder(folder / "f", f"file{content}") as new:
      (new / f"file{content}").write_text(content)
    assert files.names(folder / "f") == [f"file{content}"]
  with pytest.raises(RuntimeError), files.publish_folder(folder / "f", "file2"):
    raise RuntimeError
  assert files.names(folder / "f") == ["file2"]
  files.remove_folder(folder / "f", "file2")
  assert files.names(folder) == ["a/b.json"]


def test_lists_files_of_stores_as_local_files(bucket, tmp_path):
  stored = f"{bucket}/list"
  for name in ("a.en", "a-b/c", "a/b.en", "a[1].en", "b1.en", "b2.de"):
    for folder in (tmp_path, stored):
      files.write_bytes(f"{folder}/{name}", b"1")
  for pattern in ("", "*.en", "a/*", "b?.*", "a[[]1].en", "b[1-9].en", "c*"):
    assert files.names(stored, pattern) == files.names(tmp_path, pattern)
  for prefix in ("a", "b"):
    names = [path.name for path in files.folders(stored, prefix)]
    assert names == [path.name for path in files.folders(tmp_path, prefix)]


def test_detects_and_names_corrupt_files(folder):
  data = np.random.default_rng(0).bytes(3_000_000)
  files.write_bytes(folder / "original", data)
  files.copy(folder / "original", folder / "a")
  files.write_bytes(folder / "b", b"")
  assert files.size_of(folder / "a") == len(data)
  digests = [checksums.sha256_of(folder / n) for n in ("original", "a")]
  assert digests[0] == digests[1]
  expected = checksums.file_checksums(folder, ["b", "a"])
  assert expected["a"] == {"bytes": len(data), "crc32c": checksums.crc32c(data)}
  assert checksums.corrupt_files(folder, expected) == ""
  flipped = data[:-1] + bytes([data[-1] ^ 1])
  for changed in (flipped, data[:-1], data + b"0", None):
    if changed is None:
      files.remove(folder / "a")
    else:
      files.write_bytes(folder / "a", changed)
    assert f"{folder}/a" in checksums.corrupt_files(folder, expected)
    by_size = checksums.corrupt_files(folder, expected, lambda name: False)
    assert bool(by_size) == (changed != flipped)


def test_reads_from_any_position(folder):
  data = np.random.default_rng(0).bytes(10_000)
  files.write_bytes(folder / "a", data)
  with files.open_read(folder / "a", read_ahead=1000) as file:
    for begin, size in [(0, 10), (9_990, 100), (2_500, 3_000), (2_510, 5)]:
      file.seek(begin)
      assert file.read(size) == data[begin : begin + size]
    assert file.seek(-4, os.SEEK_END) == 9_996 and file.read() == data[-4:]
    assert file.seek(20_000) and file.read(1) == b""
  with files.local_file(folder / "a") as local:
    assert local.read_bytes() == data
  assert local.exists() == (not remote.is_remote(folder))


def test_the_last_file_is_uploaded_last_and_removed_first(bucket, monkeypatch):
  folder, last_file = f"{bucket}/last", "metadata.json"

  def write(names):
    with files.publish_folder(folder, last_file) as new:
      for name in names:
        files.write_text(new / name, name)

  write((last_file, "z", "b/c"))
  uploads = []
  store = remote.filesystem(folder)
  put = store.put_file

  def recorded(path, target):
    uploads.append((files.is_file(f"{folder}/{last_file}"), target))
    put(path, target)

  monkeypatch.setattr(store, "put_file", recorded)
  write((last_file, "y", "b/c"))
  assert [exists for exists, _ in uploads] == [False] * 3
  assert uploads[-1][1].endswith(last_file)
  assert files.names(folder) == ["b/c", "metadata.json", "y"]
  removed, remove = [], store.rm_file
  monkeypatch.setattr(
    store, "rm_file", lambda path: removed.append(path) or remove(path)
  )
  remote.move(folder, f"{folder}_2", last=last_file)
  assert removed[0].endswith(last_file) and len({*removed}) == 3
  assert files.names(folder) == []
  assert files.names(f"{folder}_2") == ["b/c", "metadata.json", "y"]


def test_writes_every_byte_to_google_storage(google_bucket):
  for end in (b"\r", b"\n", b"\r\n", b"\n\n--"):
    files.write_bytes(f"{google_bucket}/a", b"\x00\xff" + end)
    assert files.read_bytes(f"{google_bucket}/a") == b"\x00\xff" + end


def test_leaves_no_file_on_a_full_disk(tmp_path, monkeypatch):
  """A limit on the size of files, which is noticed at the last bytes."""
  # Bytecode would be truncated too, and break the next processes.
  monkeypatch.setattr(sys, "dont_write_bytecode", True)
  signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
  try:
    with pytest.raises(OSError, match=r"File too large"):
      files.write_text(tmp_path / "a", "a" * 18)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert os.listdir(tmp_path) == []


def test_written_files_equal_plain_files(tmp_path):
  """Permissions, links, special files and names of 255 bytes."""
  (tmp_path / "plain").write_text("é\n")
  files.write_text(tmp_path / "a", "é\n")
  assert (tmp_path / "a").read_bytes() == "é\n".encode()
  assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "plain").st_mode
  (tmp_path / "link").symlink_to(tmp_path / "target")
  files.write_text(tmp_path / "link", "x")
  assert (tmp_path / "link").is_symlink()
  assert (tmp_path / "target").read_text() == "x"
  files.write_text("/dev/null", "x")
  assert not os.path.isfile("/dev/null")
  longest = "語" * 85
  files.write_text(tmp_path / longest, "x")
  assert {*os.listdir(tmp_path)} == {"a", "link", "plain", "target", longest}


def test_killed_writers_leave_the_old_file(tmp_path):
  path = tmp_path / "a"
  path.write_text("old")
  code = (
    "import os, signal, sys\nfrom jaxsyn.storage import files\n"
    "with files.publish(sys.argv[1], 'w') as f:\n"
    "  f.write('n' * 100_000); f.flush()\n"
    "  os.kill(os.getpid(), signal.SIGKILL)\n"
  )
  done = subprocess.run([sys.executable, "-c", code, path])
  assert done.returncode == -signal.SIGKILL
  assert path.read_text() == "old" and len(os.listdir(tmp_path)) == 2
  files.remove_unfinished(tmp_path)
  assert os.listdir(tmp_path) == ["a"]


def test_checksums_of_arrays_equal_those_of_their_bytes():
  for dtype in ("float32", "int32", "bool", ml_dtypes.bfloat16):
    for shape in [(), (0, 3), (3, 2), (1_000_003, 1)]:
      array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
      assert checksums.crc32c(array) == checksums.crc32c(array.tobytes())
