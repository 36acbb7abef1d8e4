"""Test splits that are left out if their files are missing."""

import pathlib
import shutil

import pytest
import web_server
from raw_corpora import corpus

from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, verify

MISSING = ("late.en", "late.de")


def with_optional(tmp_path, *more, files=MISSING):
  """A corpus whose test splits `late` and `more` have no files."""
  config = corpus(tmp_path)
  names = ("late", *more)
  for name in names:
    config.prepare.splits[name] = files
  config.data.test = ("test", *names)
  config.prepare.parse.source_conllu = {}
  config.prepare.parse.sides = ()
  config.prepare.optional = names
  return config


def test_missing_splits_are_left_out_with_one_warning(tmp_path, capsys):
  config = with_optional(tmp_path, "later")
  folder = build.run(config)
  out = capsys.readouterr().out
  (warning,) = [x for x in out.splitlines() if x.startswith("warning")]
  assert "2 of 3 test splits are left out" in warning
  assert "late (late.en is not found in " in warning
  assert "later (late.en is not found in " in warning
  assert "config.prepare.optional" in warning and "--raw_dir" in warning
  manifest = manifests.read(folder)
  assert set(manifest["splits"]) == {"train", "test"}
  assert set(manifest["left_out"]) == {"late", "later"}
  assert "left out: late" in (folder / "report.txt").read_text()
  verify.run(folder)


def test_prepares_the_split_when_its_files_exist(tmp_path, capsys):
  config = with_optional(tmp_path)
  folder = build.run(config)
  train = manifests.read(folder)["splits"]["train"]["records_sha256"]
  raw = pathlib.Path(config.prepare.raw_dir)
  shutil.copy(raw / "test.en", raw / "late.en")
  build.run(config)  # the other side is missing still
  assert "late (late.de is not found in " in capsys.readouterr().out
  (raw / "late.de").write_text((raw / "test.en").read_text().upper())
  manifest = manifests.read(build.run(config))
  assert "warning" not in capsys.readouterr().out
  assert set(manifest["splits"]) == {"train", "test", "late"}
  assert "left_out" not in manifest
  assert manifest["splits"]["late"]["examples"] == 7
  assert manifest["splits"]["train"]["records_sha256"] == train


def test_needs_no_trees_and_links_of_a_left_out_split(tmp_path):
  config = with_optional(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  config.prepare.parse.sides = ("source",)
  config.prepare.parse.source_conllu = {
    name: str(raw / f"{name}.conllu") for name in ("train", "test", "late")
  }
  rest = {"train": ("train.conllu",), "late": ("late.conllu",)}
  config.prepare.parse.source_alternatives = rest
  (raw / "train.align").write_text("0-0\n" * 60)
  (raw / "train.penn").write_text("\n" * 60)
  lines = (raw / "train.en").read_text().splitlines()
  text = "".join(
    f"(S {' '.join(f'(X {word})' for word in line.split())})\n"
    for line in lines
  )
  (raw / "train.penn").write_text(text)
  config.prepare.alignments = {"train": ("train.align",), "late": ("l.align",)}
  config.prepare.parse.source_brackets = {"train": "train.penn", "late": "l"}
  assert set(manifests.read(build.run(config))["splits"]) == {"train", "test"}


def test_a_file_that_the_server_lacks_is_left_out(tmp_path, capsys):
  config = with_optional(tmp_path)
  with web_server.serve() as server:
    server.answers["late.en"] = b"a man\n"
    config.prepare.downloads = tuple(
      (name, server.url(name), "") for name in MISSING
    )
    folder = build.run(config)
    output = capsys.readouterr().out
    assert (
      "1 of 2 test splits" in output and "late.de" in output and "404" in output
    )
    assert set(manifests.read(folder)["left_out"]) == {"late"}
    server.answers["late.de"] = b"EIN MANN\n"
    manifest = manifests.read(build.run(config))
    assert manifest["splits"]["late"]["examples"] == 1
  # The server has ended, but the files were fetched.
  shutil.rmtree(folder / "work")
  (folder / "manifest.json").unlink()
  assert "late" in manifests.read(build.run(config))["splits"]


@pytest.mark.parametrize("served", [b"another\n", b"not gzip"])
def test_a_file_that_is_another_is_an_error(tmp_path, served):
  name = "late.en.gz" if served == b"not gzip" else "late.en"
  config = with_optional(tmp_path, files=(name, "test.en"))
  with web_server.serve() as server:
    server.answers[name] = served
    sha256 = "" if name.endswith(".gz") else "0" * 64
    config.prepare.downloads = ((name, server.url(name), sha256),)
    with pytest.raises(InputError, match=f"raw file {name} cannot be fetched"):
      build.run(config)
