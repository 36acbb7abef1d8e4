"""Caches of columns: damaged, hostile, half-written, and out of place."""

import json
import multiprocessing
import os
import pathlib
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading

import disks
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from jaxsyn.data.loader import column_cache
from jaxsyn.data.loader.loading import load
from jaxsyn.data.store.rows import together
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, from_config
from jaxsyn.storage import checksums, files, private

NAMES = ("source_id", "source_parent_mid", "source_tree_distance")
FILES = ("columns.arrow", "lengths.arrow")


def examples(notes):
  """Eleven, some of which have no words."""
  for i in range(11):
    words = i % 4
    notes["made"] += 1
    yield {
      "source_id": np.arange(i, i + words + 1, dtype=np.int32),
      "target_id": np.array([3], np.int32),
      "source_parent_mid": np.arange(words + 1, dtype=np.float32) / 2,
      "source_tree_distance": np.full(words**2, i, np.uint8),
    }


def rows(notes):
  return together(examples(notes))


EXPECTED = {
  name: np.concatenate([example[name] for example in examples({"made": 0})])
  for name in NAMES
}
START = {
  name: np.cumsum([0] + [len(one[name]) for one in examples({"made": 0})])
  for name in NAMES
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  """The user's own cache folder, and none of before."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
  monkeypatch.setattr(private, "_temporary", {})


def opened(cache, make=rows, gib=1.0):
  """Opens a cache; True if that was right in all values."""
  files, messages = column_cache.open_columns(
    make, NAMES, cache, memory_gib=gib
  )
  assert messages == {"made": 11}
  loaded = load(files, NAMES)
  for name, expected in EXPECTED.items():
    assert loaded.flat[name].dtype == expected.dtype
    assert_array_equal(loaded.flat[name], expected)
    assert_array_equal(loaded.start[name], START[name])
  return True


def never(_):
  raise AssertionError("the cache is there, and was not used")


def harms():
  for file in (*FILES, column_cache.RECORD_FILE):
    for kind in ("flip", "cut", "grow", "empty", "delete"):
      yield file, kind


def harm(path, kind, where=-3, bit=4):
  data = bytearray(path.read_bytes())
  if kind == "delete":
    path.unlink()
    return
  if kind == "flip":
    data[where] ^= 1 << bit
  elif kind == "cut":
    del data[where:]
  elif kind == "grow":
    data += b"0000"
  else:
    data.clear()
  path.write_bytes(data)


@pytest.mark.parametrize(("file", "kind"), list(harms()))
def test_what_is_damaged_is_made_again_with_a_line(
  tmp_path, capsys, file, kind
):
  cache = tmp_path / "cache"
  assert opened(cache)
  assert opened(cache, never)
  assert capsys.readouterr().err == ""
  harm(cache / file, kind)
  if (file, kind) == (column_cache.RECORD_FILE, "grow"):
    harm(cache / file, "grow")  # zeros after the page: no JSON
  assert opened(cache)
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith(f"{cache} is made again from the examples: ")
  assert opened(cache, never)
  assert capsys.readouterr().err == ""
  assert os.listdir(tmp_path) == ["cache"]


def test_values_of_another_type_become_those_of_the_feature_or_are_refused(
  tmp_path,
):
  def of_type(name, dtype):
    def make(notes):
      for example in examples(notes):
        yield {**example, name: example[name].astype(dtype)}

    return lambda messages: together(make(messages))

  assert opened(tmp_path / "long", make=of_type("source_id", np.int64))
  for name, dtype in [
    ("source_id", np.float32),
    ("source_tree_distance", np.int32),
  ]:
    with pytest.raises(TypeError, match="Cannot cast"):
      opened(tmp_path / "cache", make=of_type(name, dtype))
  assert os.listdir(tmp_path) == ["long"]


def test_flips_and_cuts_anywhere(tmp_path):
  cache, rng = tmp_path / "cache", random.Random(1)
  opened(cache)
  original = {p.name: p.read_bytes() for p in cache.iterdir()}
  for _ in range(30):
    file = cache / rng.choice(sorted(original))
    kind = rng.choice(["flip", "cut", "grow", "empty", "delete"])
    if original[file.name]:
      where = rng.randrange(len(original[file.name]))
      harm(file, kind, where, rng.randrange(8))
    assert opened(cache)
    # What it says is the same again, and so is every file.
    for name in set(original):
      assert (cache / name).read_bytes() == original[name]


def sealed(cache, edit):
  """Changes the page and gives it a right checksum."""
  document = checksums.verify_checksum(
    json.loads((cache / column_cache.RECORD_FILE).read_text())
  )
  edit(document)
  files.write_json(
    cache / column_cache.RECORD_FILE, checksums.add_checksum(document)
  )


HOSTILE = {
  "format": lambda page: page.update(format=7),
  "text": lambda page: page.update(format="1"),
  "more": lambda page: page.update(more=1),
  "no files": lambda page: page.pop("files"),
  "a list": lambda page: page.update(files=[1]),
  "a path": lambda page: page["files"].update(
    {"../../x": {"bytes": 1, "crc32c": "00000000"}}
  ),
  "bytes": lambda page: page["files"]["columns.arrow"].update(bytes="a"),
  "huge": lambda page: page["files"]["columns.arrow"].update(bytes=2**70),
  "less than none": lambda page: page["files"]["columns.arrow"].update(
    bytes=-4
  ),
  "sum": lambda page: page["files"]["columns.arrow"].update(crc32c=None),
  "examples": lambda page: page.update(examples=12),
  "notes": lambda page: page.update(notes={"made": "11"}),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_pages_that_lie(tmp_path, capsys, name):
  cache = tmp_path / "cache"
  opened(cache)
  sealed(cache, HOSTILE[name])
  assert opened(cache)
  assert "is made again" in capsys.readouterr().err


@pytest.mark.parametrize(
  "text", ["", "[]", "3", "{}", '{"crc32c": 1}', "[" * 99999, "\xff", "NaN"]
)
def test_pages_that_are_none(tmp_path, text):
  cache = tmp_path / "cache"
  opened(cache)
  (cache / column_cache.RECORD_FILE).write_bytes(text.encode("latin-1"))
  assert opened(cache)


def test_files_of_more_than_4_gib_can_be_said():
  file = {"bytes": 2**40, "crc32c": "00000000"}
  document = {"format": 1, "examples": 1, "files": {"a": file}, "notes": {}}
  result = from_config(column_cache._CacheRecord, document, ConfigPath("page"))
  assert result.files["a"].bytes == 2**40


def test_large_files_are_checked_as_they_are_read(tmp_path):
  cache = tmp_path / "cache"
  assert opened(cache)
  original = (cache / "columns.arrow").read_bytes()
  rejected = 0
  for place in range(0, len(original), 7):
    harm(cache / "columns.arrow", "flip", place)
    try:
      assert opened(cache, never, gib=0.0)
    except InputError as error:
      assert f"Remove {cache}: it is made again" in str(error)
      rejected += 1
    (cache / "columns.arrow").write_bytes(original)
  assert rejected > 10


def test_one_of_other_features_is_made_again(tmp_path):
  cache = tmp_path / "cache"
  column_cache.open_columns(rows, NAMES[:2], cache, memory_gib=1.0)
  assert opened(cache)


def test_another_puts_its_own_there_while_it_is_read(tmp_path, monkeypatch):
  cache, aside = tmp_path / "cache", tmp_path / "aside"
  opened(cache)
  checked = checksums.crc_of

  def gone(path):
    monkeypatch.setattr(checksums, "crc_of", checked)
    shutil.copytree(cache, aside)
    shutil.rmtree(cache)
    threading.Timer(0.02, os.rename, (aside, cache)).start()
    return checked(path)

  monkeypatch.setattr(checksums, "crc_of", gone)
  assert opened(cache, never)


def _at_once(cache, barrier, results):
  barrier.wait()
  results.put(opened(cache))


def test_processes_that_make_the_same_at_once(tmp_path):
  context = multiprocessing.get_context("spawn")
  barrier, results = context.Barrier(3), context.Queue()
  work = tmp_path / "cache", barrier, results
  children = [context.Process(target=_at_once, args=work) for _ in range(3)]
  for child in children:
    child.start()
  assert [results.get(timeout=60) for _ in range(3)] == [True] * 3
  for child in children:
    child.join()
    assert child.exitcode == 0
  assert os.listdir(tmp_path) == ["cache"]


def _dies(notes):
  yield next(rows(notes))
  os.kill(os.getpid(), signal.SIGKILL)


def test_killed_while_it_is_made(tmp_path):
  child = multiprocessing.get_context("spawn").Process(
    target=opened, args=(tmp_path / "cache", _dies)
  )
  child.start()
  child.join()
  (left,) = tmp_path.iterdir()
  assert left.name.endswith(files.PARTIAL)
  assert opened(tmp_path / "cache")
  assert left.exists()  # perhaps somebody is still at it
  os.utime(left, (0, 0))
  shutil.rmtree(tmp_path / "cache")
  assert opened(tmp_path / "cache")
  assert not left.exists()


def test_a_full_disk(tmp_path, capsys):
  with disks.disk(tmp_path / "disk", "16k") as disk:
    (disk / "rest").write_bytes(bytes(12_000))
    assert opened(disk / "columns" / "cache")
    assert "No space left" in capsys.readouterr().err
    assert opened(disk / "columns" / "cache", make=never)
    assert not list((disk / "columns").iterdir())
  assert os.listdir(tmp_path / "home/jaxsyn/columns") == ["cache"]


def test_a_read_only_disk(tmp_path, capsys):
  with disks.disk(tmp_path / "disk", "1m") as disk:
    assert opened(disk / "used")
    disks.read_only(disk)
    assert opened(disk / "used", make=never)
    assert capsys.readouterr().err == ""
    assert opened(disk / "new")
    (line,) = capsys.readouterr().err.splitlines()
    aside = tmp_path / "home/jaxsyn/columns/new"
    assert line.startswith(f"columns are cached in {aside}: ")
    assert "Read-only file system" in line
    assert opened(disk / "new", make=never)
    harm(aside / "columns.arrow", "flip")
    assert opened(disk / "new")
    # One that is damaged and cannot be mended: said when another is made.
    disks.change(disk, "rw")
    harm(disk / "used" / "columns.arrow", "flip")
    disks.read_only(disk)
    capsys.readouterr()
    assert opened(disk / "used")
    output = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[0] for line in output] == [
      f"{disk / 'used'} is made again from the examples",
      f"columns are cached in {aside.with_name('used')}",
    ]
    assert opened(disk / "used", make=never)
    assert capsys.readouterr().err == ""


def _as_nobody(folder, home, results):
  import numpy.ma  # noqa: F401  # pyarrow does, and nobody may read packages

  os.setgroups([])
  os.setgid(65534)
  os.setuid(65534)
  os.environ["XDG_CACHE_HOME"] = str(home)
  results.put(opened(folder / "cache"))
  results.put(str(private.folder(make=False)))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_folder_of_somebody_else(tmp_path):
  for path in (tmp_path, *tmp_path.parents):
    if not path.stat().st_mode & stat.S_IXOTH:
      path.chmod(path.stat().st_mode | stat.S_IXOTH)
  folder, home = tmp_path / "data", tmp_path / "of_nobody"
  folder.mkdir()
  home.mkdir(mode=0o700)
  os.chown(home, 65534, 65534)
  context = multiprocessing.get_context("spawn")
  results = context.Queue()
  work = folder, home, results
  child = context.Process(target=_as_nobody, args=work)
  child.start()
  assert results.get(timeout=60)
  assert results.get(timeout=60) == str(home / "jaxsyn")
  child.join()
  assert os.stat(home / "jaxsyn").st_mode & 0o777 == 0o700
  assert list(folder.iterdir()) == []


def in_the_way(home, kind):
  """Makes what another user could have made in our place."""
  if kind == "a home of others":
    home.mkdir()
    home.chmod(0o777)
    return
  home.mkdir(mode=0o700)
  path = home / "jaxsyn"
  if kind == "a link":
    (home / "elsewhere").mkdir()
    path.symlink_to("elsewhere")
  elif kind == "a file":
    path.write_text("")
  else:
    path.mkdir()
    path.chmod(0o775 if kind == "of a group" else 0o700)
    if kind == "of another":
      os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
  "kind", ["of another", "of a group", "a link", "a file", "a home of others"]
)
def test_no_cache_is_taken_that_others_could_write(tmp_path, kind):
  if kind == "of another" and os.getuid():
    pytest.skip("only root can give a folder away")
  # What they put there is whole, and wrong.
  home, forged = tmp_path / "home", tmp_path / "forged"
  column_cache.open_columns(
    lambda messages: together(list(examples(messages))[::-1]),
    NAMES,
    forged,
    memory_gib=1.0,
  )
  in_the_way(home, kind)
  with disks.disk(tmp_path / "disk", "1m") as disk:
    disks.read_only(disk)
    if (home / "jaxsyn").is_dir():
      shutil.copytree(forged, home / "jaxsyn/columns/cache")
    assert opened(disk / "cache")
    result = private.temporary()
    assert os.stat(result).st_mode & 0o777 == 0o700
    assert (result / "columns/cache").is_dir()
    assert opened(disk / "cache", make=never)  # in the same process
    shutil.rmtree(result)


def test_the_private_folder(tmp_path, monkeypatch):
  with pytest.raises(OSError):
    private.folder(make=False)
  assert private.existing() == []
  path = private.folder(make=True)
  assert path == tmp_path / "home/jaxsyn"
  assert private.existing() == [path]
  for place in (path, path.parent):
    assert os.stat(place).st_mode & 0o777 == 0o700
  monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
  monkeypatch.setenv("HOME", str(tmp_path))
  assert private.folder(make=True) == tmp_path / ".cache/jaxsyn"


def test_the_temporary_folder_goes_with_its_process(tmp_path, monkeypatch):
  code = (
    "import os\nfrom jaxsyn.storage import private\n"
    "print(private.temporary())\n"
    "if os.fork() == 0: raise SystemExit\n"
    "os.wait()\nassert private.temporary().is_dir()"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  paths = {pathlib.Path(line) for line in done.stdout.split()}
  assert len(paths) == 1
  assert not paths.pop().exists()


def test_nowhere_to_write_is_said(tmp_path, monkeypatch):
  """A limit on the size of files holds everywhere."""
  signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
  try:
    with pytest.raises(
      InputError, match=r"no place for the columns.*too large"
    ):
      opened(tmp_path / "cache")
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  shutil.rmtree(private.temporary())
