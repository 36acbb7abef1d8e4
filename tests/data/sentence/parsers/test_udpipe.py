"""UDPipe: parses of real models, and finding and downloading of models."""

from __future__ import annotations

import hashlib
import pathlib
import types

import parsers_under_test
import pytest
import spacy_udpipe.utils
import web_server

from jaxsyn.data.sentence.parsers import udpipe
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.data.store import fetch
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT

AT = ROOT / "prepare" / "parse" / "source" / "udpipe"
GERMAN = "german-gsd-ud-2.5-191206.udpipe"


def find(model, language, folder, downloads=types.MappingProxyType({})):
  """The model file that a config names."""
  spec = UDPipeSpec(model).resolve(AT, language, folder, downloads)
  return pathlib.Path(spec.model)


@pytest.mark.parametrize(
  "language, line, words, heads",
  [
    ("english", " I can't\u00a0go  home.", "I can't go home .", (2,) * 5),
    # UDPipe cuts at a carriage return even where lines are sentences.
    (
      "english",
      "He sleeps.\rShe reads.",
      "He sleeps . She reads .",
      (1, 1, 1, 4, 4, 4),
    ),
    ("japanese", "私は学生です。", "私 は 学生 です 。", (2, 0, 2, 2, 2)),
  ],
)
def test_parses_lines(shared_data, language, line, words, heads):
  parser = parsers_under_test.udpipe(shared_data, language)
  parse = parser(line)
  result = [parse.text[s:e] for s, e in zip(parse.start_W, parse.end_W)]
  assert (result, parse.head_W) == (words.split(" "), heads)
  assert parse.parsed and "root" in parse.relation_W
  (text,) = parser.conllu_all([line], ["1"])
  assert text.count("sent_id = 1") == line.count("\r") + 1


class ModelFile:
  """A stand-in for UDPipe that only checks the first bytes of its file."""

  def __init__(self, path):
    if not path.read_bytes().startswith(b"model"):
      raise InputError(f"{path}: not a model.")


@pytest.fixture
def models(monkeypatch):
  """The server that models come from, on this machine."""
  with web_server.serve() as server:
    monkeypatch.setattr(spacy_udpipe.utils, "BASE_URL", server.url("udpipe"))
    yield server


def test_downloads_a_model_once(models, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(udpipe, "UDPipe", ModelFile)
  models.answers[f"udpipe/{GERMAN}"] = b"model of German"
  path = find("", "de", tmp_path)
  assert path == find("de", "en", tmp_path) == tmp_path / GERMAN
  assert models.asked == [f"/udpipe/{GERMAN}"]
  assert capsys.readouterr().out == ""  # stdout belongs to translations
  models.answers[f"udpipe/{GERMAN}"] = b"<html>moved</html>"
  with pytest.raises(InputError, match=r"download of german.*not a model"):
    find("", "de", tmp_path / "other")
  assert not list((tmp_path / "other").iterdir())
  # The config can give addresses and checksums.
  models.answers["mine"] = model = b"model of mine"
  address = fetch.Download(
    models.url("mine"), hashlib.sha256(model).hexdigest()
  )
  for name, given in ((GERMAN, ""), ("my.udpipe", "my.udpipe")):
    result = find(given, "de", tmp_path / "mine", {name: address})
    assert result == tmp_path / "mine" / name and result.read_bytes() == model
  other = address._replace(sha256="0" * 64)
  with pytest.raises(InputError, match=r"0000 in config\.prepare\.downloads"):
    find("", "de", tmp_path / "other", {GERMAN: other})


def test_rejects_files_that_are_not_a_model(tmp_path, shared_data):
  with pytest.raises(InputError, match=r"none.udpipe: no such parser model"):
    UDPipe(tmp_path / "none.udpipe")
  bad, english = tmp_path / "bad.udpipe", "udpipe/english.udpipe"
  for content in (b"<html>", (shared_data / english).read_bytes()[:500_000]):
    bad.write_bytes(content)
    with pytest.raises(InputError, match=r"bad.udpipe: not a \(complete\) UDP"):
      UDPipe(bad)
  assert find(str(bad), "en", tmp_path / "models") == bad


@pytest.mark.parametrize(
  "model, language, message",
  [
    ("", "de", r"refused.*by hand, or name.*without trees.*sides=\"\(\)\""),
    ("englsh", "en", "'englsh' is neither a file nor a name"),
    ("", "xx", "language 'xx' .* has no parser model"),
  ],
)
def test_missing_models_are_reported_with_remedies(
  tmp_path, monkeypatch, model, language, message
):
  monkeypatch.setattr(spacy_udpipe.utils, "BASE_URL", "http://127.0.0.1:9")
  with pytest.raises(InputError, match=message):
    find(model, language, tmp_path)
  assert not list(tmp_path.iterdir())
