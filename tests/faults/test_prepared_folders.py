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
def prepared_config(tmp_path_factory):
  config = corpus(tmp_path_factory.mktemp("corpus"))
  config.prepare.shard_mib = 1.0
  build.run(config)
  return config


@pytest.fixture(scope="module")
def expected(prepared_config):
  """The bytes of the prepared files."""
  return records_of(prepared_config.data.directory)


@pytest.fixture
def copied(prepared_config, tmp_path):
  """The config of a copy of the dataset, and the path of the copy."""
  config = prepared_config.copy_and_resolve_references()
  old, config.data.directory = config.data.directory, str(tmp_path / "out")
  shutil.copytree(old, config.data.directory)
  return config, tmp_path / "out"


def flip(data):
  middle = len(data) // 2
  return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


TEXT, TREES = "text/test.target.gz", "conllu/test.source.conllu.gz"


@pytest.mark.parametrize(
  ("name", "old", "new", "error"),
  [
    (TEXT, b"A", b"I", "split test, record 0: target_id differs from that of"),
    # Another space does not change the subwords.
    (TEXT, b" ", b"  ", "split test, record 0: target_text differs from its"),
    (TEXT, b"\n", b"\n\n", "has 8 lines, but the shard has 7 records"),
    (TREES, b"\tdep", b"\troot", "record 0: source_relation differs from"),
    (
      TREES,
      b"\n\n",
      b"\n\n1\tx\t_\t_\t_\t_\t0\troot\t_\t_\n\n",
      "test.source.gz",
    ),
  ],
)
def test_verification_compares_records_with_the_text(
  copied, expected, capsys, name, old, new, error
):
  """The checksums are right, as if another program had written the files."""
  _, folder = copied
  text = gzip.decompress(expected[name])
  (folder / name).write_bytes(gzip.compress(text.replace(old, new, 1)))
  manifest = manifests.read(folder)
  manifest["files"] |= checksums.file_checksums(folder, [name])
  manifests.write(folder, manifest)
  with pytest.raises(InputError, match="out is corrupt: "):
    verify.run(folder)
  assert error in capsys.readouterr().out


@pytest.mark.parametrize("renamed", [1, 4])
def test_publishing_is_atomic(copied, expected, monkeypatch, renamed):
  """After a kill, the folder is rejected, and the next call completes it."""
  config, folder = copied
  (folder / TEXT).write_bytes(b"")
  rename, moves = os.rename, iter(range(renamed))

  def die(old, new):
    if pathlib.Path(new).parent == folder and next(moves, None) is None:
      raise KeyboardInterrupt
    rename(old, new)

  with monkeypatch.context() as patch:
    patch.setattr(publish.os, "rename", die)
    with pytest.raises(KeyboardInterrupt):
      build.run(config)
  for read in (manifests.read, verify.run):
    with pytest.raises(InputError, match="not a prepared folder"):
      read(folder)
  build.run(config)
  assert records_of(folder) == expected


def test_downloads(tmp_path, capsys):
  """The first download records the hash that later ones must have."""
  config = corpus(tmp_path)
  raw, copies = pathlib.Path(config.prepare.raw_dir), tmp_path / "out" / "raw"
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
    (copies / "test.en").write_bytes(flip(data))
    build.run(config)
    assert "is prepared already" in capsys.readouterr().out
    assert (copies / "test.en").read_bytes() == data
    server.answers["test.en"] = flip(data)
    (copies / "test.en").unlink()
    with pytest.raises(InputError, match=r"test\.en cannot .* was changed"):
      build.run(config)
  verify.run(folder)  # does not need the raw files


def test_disk_full_anywhere(tmp_path, prepared_config, expected, capsys):
  config = prepared_config.copy_and_resolve_references()
  config.data.directory = str(tmp_path / "out")
  failures = 0
  with disks.disk(tmp_path / "out", "4k") as disk:
    for size in (4, 200, 600, 4000):
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
    assert failures > 1
    assert records_of(disk) == expected
