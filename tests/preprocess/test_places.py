"""Dataset directories on other disks, with files of the user, and long names."""

import os
import pathlib
import shutil

import disks
import pytest
from raw_corpora import corpus, records_of

from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, verify


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A config, and the bytes of what it prepares."""
  config = corpus(tmp_path_factory.mktemp("whole"))
  return config, records_of(build.run(config))


def test_work_on_another_disk(tmp_path, whole):
  config = corpus(tmp_path)
  folder = pathlib.Path(config.data.directory)
  folder.mkdir()
  with disks.disk(tmp_path / "scratch", "4m") as disk:
    (folder / "work").symlink_to(disk)
    build.run(config)
    assert records_of(folder) == whole[1]
  assert not list(folder.glob(".*"))


def test_a_read_only_disk(tmp_path, whole, capsys):
  config = whole[0].copy_and_resolve_references()
  with disks.disk(tmp_path / "disk", "4m") as disk:
    shutil.copytree(config.data.directory, disk / "out")
    config.data.directory = str(disk / "out")
    disks.read_only(disk)
    build.run(config)
    assert "is prepared already" in capsys.readouterr().out
    verify.run(disk / "out")
    config.prepare.shard_mib = 1.0
    with pytest.raises(InputError, match=r"no permission to write to .*/out"):
      build.run(config)


def test_a_folder_that_was_moved(tmp_path, whole, capsys):
  config = whole[0].copy_and_resolve_references()
  folder = tmp_path / "andere Stelle für 文"
  shutil.copytree(config.data.directory, folder)
  config.data.directory = str(folder)
  build.run(config)
  assert "is prepared already" in capsys.readouterr().out
  verify.run(folder)


@pytest.mark.parametrize("place", ["text", "conllu", "toy"])
def test_input_files_are_not_replaced(tmp_path, place):
  config = corpus(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  new = pathlib.Path(config.data.directory) / place
  new.parent.mkdir()
  os.rename(raw, new)
  config.prepare.raw_dir = str(new)
  for split in ("train", "test"):
    path = str(new / f"{split}.conllu")
    config.prepare.parse.source_conllu[split] = path
  before = {path: path.read_bytes() for path in new.iterdir()}
  with pytest.raises(InputError, match=rf"out/{place}/.* would be deleted"):
    build.run(config)
  assert {path: path.read_bytes() for path in new.iterdir()} == before


@pytest.mark.parametrize("name", ["text/mine.txt", "conllu/a.conllu", "toy"])
def test_other_files_of_the_user_are_not_replaced(tmp_path, name):
  config = corpus(tmp_path)
  mine = pathlib.Path(config.data.directory) / name
  mine.parent.mkdir(parents=True)
  mine.write_text("mine")
  with pytest.raises(
    InputError, match=rf"out/{name} would be deleted.*Move it"
  ):
    build.run(config)
  assert mine.read_text() == "mine"
  mine.unlink()
  if name == "toy":
    build.run(config)


def test_files_in_a_prepared_directory_are_not_replaced(tmp_path):
  config = corpus(tmp_path)
  mine = build.run(config) / "text/mine.txt"
  mine.write_text("mine")
  config.prepare.shard_mib = 1.0
  with pytest.raises(InputError, match=r"mine\.txt would be deleted.*Move it"):
    build.run(config)
  assert mine.read_text() == "mine"


def test_prepared_text_that_is_the_input_is_not_replaced(tmp_path):
  config = corpus(tmp_path)
  folder = build.run(config)
  for split in ("train", "test"):
    config.prepare.splits[split] = ("test.source.gz", "test.target.gz")
  with config.unlocked():
    config.prepare.parse.source_conllu = {}
  config.prepare.parse.sides = ()
  config.prepare.raw_dir = str(folder / "text")
  with pytest.raises(InputError, match=r"text/.* would be deleted.*Move it"):
    build.run(config)
  assert (folder / "text/test.source.gz").is_file()
