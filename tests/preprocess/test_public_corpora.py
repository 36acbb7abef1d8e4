"""Configs of public corpora, on the real files (fixture `shared_data`)."""

import importlib
import shutil

import pytest

from jaxsyn.config import read_config
from jaxsyn.data.store import manifests
from jaxsyn.preprocess import build

LEFT_OUT = {"test_2018", "test_2017_mscoco"}


def config_of(name, tmp_path):
  """A config, without trees, since a parser takes minutes."""
  config = importlib.import_module(f"jaxsyn.configs.{name}").get_config()
  config.data.directory = str(tmp_path / name)
  config.prepare.parse.sides = ()
  # Nothing is fetched: test sets that are not there are left out.
  for entry in config.prepare.downloads:
    assert entry[1].startswith("https://raw.githubusercontent.com/multi30k/")
    assert entry[1].endswith(f"/data/task1/raw/{entry[0]}")
    assert bool(entry[2]) == ("2018" not in entry[0] and "coco" not in entry[0])
  config.prepare.downloads = tuple(d for d in config.prepare.downloads if d[2])
  return config


@pytest.mark.parametrize(
  ("name", "tests"),
  [
    ("multi30k_de_en", {"test_2016", "test_2017"}),
    ("multi30k_en_cs", {"test_2016"}),
  ],
)
def test_directions_of_multi30k(shared_data, tmp_path, capsys, name, tests):
  config = config_of(name, tmp_path)
  config.prepare.subset.pairs = 300
  config.prepare.vocabulary.size = 500
  config.prepare.max_subwords = 500
  raw = tmp_path / "raw"
  shutil.copytree(shared_data / "multi30k", raw, ignore=_parsed)
  for path in raw.glob("test_201[78]*"):
    if path.name.startswith(("test_2018", "test_2017_mscoco")):
      path.unlink()
  folder = build.run(config, str(raw))
  manifest = manifests.read(folder)
  due = set(read_config(config).data.test)
  assert due - tests == set(manifest["left_out"]) == due & LEFT_OUT
  assert set(manifest["splits"]) == {"train", "validation"} | tests
  assert manifest["splits"]["train"]["lines"] == 29_000
  assert (
    f"{len(due - tests)} of {len(due)} test splits" in capsys.readouterr().out
  )
  # Once the files are there, under the names of the shared task.
  languages = name.split("_")[1:]
  for stem in ("test_2018_flickr", "test_2017_mscoco"):
    for language in languages:
      text = raw / f"test_2016_flickr.{language}.gz"
      shutil.copy(text, raw / f"{stem}.{language}.gz")
  manifest = manifests.read(build.run(config, str(raw)))
  assert "left_out" not in manifest
  assert set(manifest["splits"]) == {"train", "validation"} | due


def _parsed(folder, names):
  return [name for name in names if name == "parsed"]


def test_keeps_news_in_hausa(shared_data, tmp_path):
  config = config_of("mafand_en_hau", tmp_path)
  config.prepare.workers = 1
  splits = manifests.read(build.run(config, str(shared_data / "mafand")))[
    "splits"
  ]
  assert splits["train"]["lines"] == 5865
  assert splits["train"]["examples"] > 0.99 * 5865
  result = splits["validation"]["examples"], splits["test"]["examples"]
  assert result == (1300, 1500)
