"""Models of parsers by name: fetched once, from a server on this machine."""

from __future__ import annotations

import functools

import pytest
import spacy_udpipe.utils
import web_server

from jaxsyn.data.sentence.parsers import udpipe
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.store import fetch
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT

find = functools.partial(
  udpipe.find_model,
  at=ROOT / "prepare" / "parse" / "source" / "udpipe",
  check=UDPipe,
)


def test_find_takes_a_file(tmp_path):
  model = tmp_path / "my.udpipe"
  model.touch()
  assert find(str(model), "en", tmp_path / "kept") == model


@pytest.fixture
def models(monkeypatch):
  """The server that models come from, on this machine."""
  with web_server.serve() as server:
    monkeypatch.setattr(spacy_udpipe.utils, "BASE_URL", server.url("udpipe"))
    yield server


GERMAN = "german-gsd-ud-2.5-191206.udpipe"


def test_find_downloads_once(models, tmp_path, shared_data, capsys):
  model = (shared_data / "udpipe" / "german.udpipe").read_bytes()
  models.answers[f"udpipe/{GERMAN}"] = model
  path = find("", "de", tmp_path)
  assert path == find("de", "en", tmp_path) == tmp_path / GERMAN
  assert models.asked == [f"/udpipe/{GERMAN}"]
  assert capsys.readouterr().out == ""  # stdout belongs to translations
  assert UDPipe(path)("Er geht.").parsed
  # What came first must come again: another model is refused, a damaged one
  # fetched again.
  path.write_bytes(model[:-1])
  assert find("", "de", tmp_path).read_bytes() == model
  path.unlink()
  models.answers[f"udpipe/{GERMAN}"] = model + b"x"
  with pytest.raises(InputError, match=rf"has changed .*{GERMAN}\.sha256"):
    find("", "de", tmp_path)


def test_a_config_says_the_checksum_of_a_model(models, tmp_path, shared_data):
  path = shared_data / "udpipe" / "german.udpipe"
  models.answers |= {"mine": path.read_bytes()}
  address = fetch.Download(models.url("mine"), UDPipe(path).sha256)
  result = find("", "de", tmp_path, downloads={GERMAN: address})
  assert result.read_bytes() == path.read_bytes()
  result = find("my.udpipe", "de", tmp_path, downloads={"my.udpipe": address})
  assert result == tmp_path / "my.udpipe"
  other = address._replace(sha256="0" * 64)
  with pytest.raises(InputError, match="downloads says 0000"):
    find("", "de", tmp_path / "other", downloads={GERMAN: other})


def test_find_says_what_to_do_without_network(tmp_path, monkeypatch):
  null = "http://127.0.0.1:9"
  monkeypatch.setattr(spacy_udpipe.utils, "BASE_URL", null)
  message = r"refused.*by hand, or name.*Systems without trees.*sides=\"\(\)\""
  with pytest.raises(InputError, match=message):
    find("", "de", tmp_path)
  assert not list(tmp_path.iterdir())


def test_find_refuses_what_is_no_model(models, tmp_path):
  models.answers[f"udpipe/{GERMAN}"] = b"<html>moved</html>"
  with pytest.raises(InputError, match=r"download of german.*not a \(whole\)"):
    find("", "de", tmp_path)
  assert not list(tmp_path.iterdir())


def test_find_of_an_unknown_name(tmp_path):
  with pytest.raises(InputError, match=r"'englsh' is no file and no name"):
    find("englsh", "en", tmp_path)
