"""Dataset directories: wrong records, interrupted publishing, downloads, full disks."""

import gzip
import hashlib
import os
import pathlib
import shutil

import disks
import pytest
import web_server
from raw_corpora import corpus, records_of

from jaxsyn import cli
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, publish, verify
from jaxsyn.storage import checksums


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A config, and the bytes of its prepared files."""
  config = corpus(tmp_path_factory.mktemp("whole"))
  config.prepare.shard_mib = 1.0
  return config, records_of(build.run(config))


def of(whole, tmp_path):
  """Returns the same in a copy of the folder."""
  config, expected = whole
  config = config.copy_and_resolve_references()
  old, config.data.directory = config.data.directory, str(tmp_path / "out")
  shutil.copytree(old, config.data.directory)
  return config, pathlib.Path(config.data.directory), expected


def flip(data):
  middle = len(data) // 2
  return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def test_verification_compares_records_with_the_text(whole, tmp_path, capsys):
  _, folder, expected = of(whole, tmp_path)
  manifest = manifests.read(folder)

  def change(name, old, new):
    text = gzip.decompress(expected[name]).replace(old, new, 1)
    (folder / name).write_bytes(gzip.compress(text))
    made = {
      **manifest,
      "files": checksums.file_checksums(folder, manifest["files"]),
    }
    manifests.write(folder, made)
    with pytest.raises(InputError, match="out is corrupt: ") as error:
      verify.run(folder)
    assert "more, see above" not in str(error.value)
    (folder / name).write_bytes(expected[name])
    return capsys.readouterr().out

  text, trees = "text/test.target.gz", "conllu/test.source.conllu.gz"
  assert "split test, record 0: target_id differs from that of its line" in (
    change(text, b"A", b"I") + change(text, b"E", b"I")
  )
  # Another space does not change the subwords.
  assert "split test, record 0: target_text differs from its line" in (
    change(text, b" ", b"  ")
  )
  assert "has 8 lines, but the shard has 7 records" in (
    change(text, b"\n", b"\n\n")
  )
  first = gzip.decompress(expected[trees]).split(b"\n\n")[0] + b"\n\n"
  # Without the first tree, or with one more.
  assert "test.source.gz" in change(trees, first, b"")
  assert "split test, record 0: source_relation differs from" in (
    change(trees, b"\tdep", b"\troot")
  )


def test_publishing_is_atomic(whole, tmp_path, monkeypatch):
  """After a kill, the folder is rejected, and the next call completes it."""
  config, folder, expected = of(whole, tmp_path)
  rename = os.rename
  stopped = 0
  for moment in (1, 4, 99):
    (folder / "text" / "test.target.gz").write_bytes(b"")
    moves = iter(range(moment))

    def die(old, new, moves=moves):
      if pathlib.Path(new).parent == folder and next(moves, None) is None:
        raise KeyboardInterrupt
      rename(old, new)

    monkeypatch.setattr(publish.os, "rename", die)
    try:
      build.run(config)
    except KeyboardInterrupt:
      stopped += 1
      with pytest.raises(InputError, match="not a prepared folder"):
        manifests.read(folder)
      with pytest.raises(InputError, match="not a prepared folder"):
        verify.run(folder)
      monkeypatch.setattr(publish.os, "rename", rename)
      build.run(config)
      assert records_of(folder) == expected
  assert stopped == 2
  assert records_of(folder) == expected


def test_downloads(tmp_path, capsys):
  """The first download records the hash that later ones must have."""
  config = corpus(tmp_path)
  raw, expected = pathlib.Path(config.prepare.raw_dir), tmp_path / "out" / "raw"
  data = (raw / "test.en").read_bytes()
  (raw / "test.en").unlink()
  with web_server.serve() as server:
    server.answers["test.en"] = data
    config.prepare.downloads = (("test.en", server.url("test.en"), ""),)
    folder = build.run(config)
    sha256 = hashlib.sha256(data).hexdigest()
    record = manifests.read(folder)["downloads"]["test.en"]
    assert record.startswith(f"downloaded from {server.url('test.en')}, 20")
    assert record.endswith(f" {sha256} test.en")
    (expected / "test.en").write_bytes(flip(data))
    build.run(config)
    assert "is prepared already" in capsys.readouterr().out
    assert (expected / "test.en").read_bytes() == data
    server.answers["test.en"] = flip(data)
    (expected / "test.en").unlink()
    with pytest.raises(InputError, match=r"test\.en cannot .* was changed"):
      build.run(config)
  verify.run(folder)  # does not need the raw files


def test_disk_full_anywhere(tmp_path, whole, capsys):
  config = corpus(tmp_path)
  config.prepare.shard_mib = 1.0
  failures = 0
  with disks.disk(tmp_path / "out", "4k") as disk:
    for size in (4, 64, 200, 300, 600, 700, 4000):
      disks.change(disk, f"size={size}k")
      try:
        with pytest.raises(SystemExit) as stop:
          cli.guarded(lambda: build.run(config))
      except pytest.fail.Exception:  # it was enough
        break
      failures += 1
      assert stop.value.code == 2
      message = capsys.readouterr().err.strip().splitlines()[-1]
      full = f"error: No space left on device: {disk}"
      assert message.startswith(full) and "Free some space" in message
      assert not (disk / "manifest.json").exists()
    assert failures > 3
    assert records_of(disk) == whole[1]
