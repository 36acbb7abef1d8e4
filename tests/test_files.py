"""Atomic files and checksums."""

import os
import resource
import signal
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from jaxsyn.storage import checksums, files


def names(folder):
  return sorted(os.listdir(folder))


def test_failed_writes_leave_only_the_old_file(tmp_path):
  path = tmp_path / "a"
  path.write_text("old")
  with pytest.raises(RuntimeError), files.publish(path, "w") as file:
    file.write("new")
    raise RuntimeError
  assert path.read_text() == "old"
  assert names(tmp_path) == ["a"]


def test_leaves_no_file_on_a_full_disk(tmp_path):
  """A limit on the size of files, which is noticed at the last bytes."""
  signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
  try:
    with pytest.raises(OSError, match=r"File too large"):
      files.write_text(tmp_path / "a", "a" * 18)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert names(tmp_path) == []


def test_permissions_are_those_of_plain_files(tmp_path):
  files.write_text(tmp_path / "a", "é\n")
  (tmp_path / "b").write_text("é\n")
  assert (tmp_path / "a").read_bytes() == "é\n".encode()
  assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "b").st_mode


def test_writes_through_links_and_special_files(tmp_path):
  (tmp_path / "link").symlink_to(tmp_path / "real")
  files.write_text(tmp_path / "link", "x")
  assert (tmp_path / "link").is_symlink()
  assert (tmp_path / "real").read_text() == "x"
  files.write_text("/dev/null", "x")
  assert not os.path.isfile("/dev/null")


def test_replaces_directories_atomically(tmp_path):
  for content in ("1", "2"):
    with files.publish_folder(tmp_path / "f") as new:
      (new / f"file{content}").write_text(content)
    assert names(tmp_path / "f") == [f"file{content}"]
  with pytest.raises(RuntimeError), files.publish_folder(tmp_path / "f"):
    raise RuntimeError
  assert names(tmp_path) == ["f"]
  assert names(tmp_path / "f") == ["file2"]


def test_writes_files_with_the_longest_names(tmp_path):
  name = "語" * 85  # 255 bytes, the longest there is
  files.write_text(tmp_path / name, "x")
  assert names(tmp_path) == [name]


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
  assert path.read_text() == "old"
  assert len(names(tmp_path)) == 2
  files.remove_unfinished(tmp_path)
  assert names(tmp_path) == ["a"]


def test_checksums_of_arrays_equal_those_of_their_bytes(tmp_path):
  array = np.arange(1_000_003, dtype=np.int32).reshape(-1, 1)
  array.tofile(tmp_path / "a")
  assert checksums.crc_of(tmp_path / "a") == checksums.crc32c(array)


@pytest.mark.parametrize("dtype", ["float32", "bool", ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 2)])
def test_checksums_support_all_dtypes_and_shapes(dtype, shape):
  array = np.ones(shape, dtype)
  assert checksums.crc32c(array) == checksums.crc32c(array.tobytes())


@pytest.mark.parametrize("change", ["flip", "cut", "grow", "remove"])
def test_detects_and_names_corrupt_files(tmp_path, change):
  path = tmp_path / "a"
  path.write_bytes(b"0123456789")
  (tmp_path / "b").write_bytes(b"")
  expected = checksums.file_checksums(tmp_path, ["b", "a"])
  assert checksums.corrupt_files(tmp_path, expected) == ""
  if change == "flip":
    path.write_bytes(b"0123456788")
    assert checksums.corrupt_files(tmp_path, expected, lambda name: False) == ""
  elif change == "cut":
    path.write_bytes(b"012345678")
  elif change == "grow":
    path.write_bytes(b"01234567890")
  else:
    path.unlink()
  assert str(path) in checksums.corrupt_files(tmp_path, expected)


def test_new_files_never_replace_others(tmp_path):
  path = tmp_path / "folder" / "a"
  files.write_new(path, "old\n")
  with pytest.raises(FileExistsError):
    files.write_new(path, "new\n")
  assert path.read_text() == "old\n"
  assert os.listdir(path.parent) == ["a"]


@pytest.mark.parametrize(
  ("size", "text"),
  [
    (0, "0 bytes"),
    (1023, "1023 bytes"),
    (1024, "1.0 KiB"),
    (2**20 - 1, "1024.0 KiB"),
    (2**20, "1.0 MiB"),
    (5 * 2**29, "2.5 GiB"),
  ],
)
def test_sizes_are_formatted_with_units(size, text):
  assert files.readable(size) == text
