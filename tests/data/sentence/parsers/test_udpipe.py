"""Tests UDPipe with real models, and finding and downloading of models."""

from __future__ import annotations

import gzip
import itertools
import pathlib
import types

import pytest
import spacy_udpipe.utils
import web_server

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.data.store import fetch
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT
from jaxsyn.storage import checksums

AT = ROOT / "prepare" / "parse" / "source" / "udpipe"


def find(model, language, folder, downloads=types.MappingProxyType({})):
  """The model file that a config names."""
  spec = UDPipeSpec(model).resolve(AT, language, folder, downloads)
  return pathlib.Path(spec.model)


@pytest.fixture(scope="module")
def english(shared_data) -> UDPipe:
  return UDPipe(shared_data / "udpipe" / "english.udpipe")


def written(parser, line: str, sentence_id: str) -> str:
  """The CoNLL-U of a line."""
  return parser.conllu_all([line], [sentence_id])[0]


def words(parse: conllu.Parse) -> list[str]:
  return [parse.text[s:e] for s, e in zip(parse.start_W, parse.end_W)]


@pytest.mark.parametrize(
  ("language", "line", "expected", "heads"),
  [
    (
      "english",
      " I can't\u00a0go  home.",
      ["I", "can't", "go", "home", "."],
      (2, 2, 2, 2, 2),
    ),
    # UDPipe cuts at a carriage return even where lines are sentences.
    (
      "english",
      "He sleeps.\rShe reads.",
      ["He", "sleeps", ".", "She", "reads", "."],
      (1, 1, 1, 4, 4, 4),
    ),
    (
      "german",
      "Er geht zum Bahnhof.",
      ["Er", "geht", "zum", "Bahnhof", "."],
      (1, 1, 3, 1, 1),
    ),
    (
      "japanese",
      "私は学生です。",
      ["私", "は", "学生", "です", "。"],
      (2, 0, 2, 2, 2),
    ),
  ],
)
def test_parses_lines(shared_data, language, line, expected, heads):
  parser = UDPipe(shared_data / "udpipe" / f"{language}.udpipe")
  parse = parser(line)
  assert (words(parse), parse.head_W) == (expected, heads)
  assert parse.parsed and "root" in parse.relation_W
  trees = line.count("\r") + 1
  assert written(parser, line, "1").count("sent_id = 1") == trees


def test_line_with_lost_characters_is_unparsed(english, monkeypatch):
  lost = "1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
  monkeypatch.setattr(english, "_text", lambda line: lost)
  parse = english("a man")
  assert not parse.parsed
  assert words(parse) == ["a", "man"]
  text = written(english, "a man", "3")
  assert text.startswith("# sent_id = 3\n# text = a man\n# parsed = no\n1\ta\t")


def test_reproduces_the_stored_parses(english, shared_data):
  """Multi30k: the same parses as the ones stored beside the captions."""
  folder = shared_data / "multi30k"
  with gzip.open(folder / "val.en.gz", "rt", newline="\n") as file:
    lines = [line.rstrip("\n") for line in itertools.islice(file, 100)]
  stored = conllu.read(folder / "parsed" / "val.en.conllu.gz")
  stored = conllu.match(itertools.islice(stored, 100), lines, "val.en")
  text = "".join(written(english, line, str(i)) for i, line in enumerate(lines))
  ours = conllu.match(conllu.blocks_of_text(text, "x"), lines, "val.en")
  assert list(ours) == list(stored) == [english(line) for line in lines]


@pytest.fixture
def models(monkeypatch):
  """The server that models come from, on this machine."""
  with web_server.serve() as server:
    monkeypatch.setattr(spacy_udpipe.utils, "BASE_URL", server.url("udpipe"))
    yield server


GERMAN = "german-gsd-ud-2.5-191206.udpipe"


def test_find_model_downloads_once(models, tmp_path, shared_data, capsys):
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
  with pytest.raises(InputError, match=rf"was changed .*{GERMAN}\.sha256"):
    find("", "de", tmp_path)


def test_config_can_give_the_checksum_of_a_model(models, tmp_path, shared_data):
  path = shared_data / "udpipe" / "german.udpipe"
  models.answers |= {"mine": path.read_bytes()}
  address = fetch.Download(models.url("mine"), checksums.sha256_of(path))
  result = find("", "de", tmp_path, downloads={GERMAN: address})
  assert result.read_bytes() == path.read_bytes()
  result = find("my.udpipe", "de", tmp_path, downloads={"my.udpipe": address})
  assert result == tmp_path / "my.udpipe"
  other = address._replace(sha256="0" * 64)
  with pytest.raises(InputError, match=r"0000 in config\.prepare\.downloads"):
    find("", "de", tmp_path / "other", downloads={GERMAN: other})


def test_rejects_files_that_are_not_a_model(tmp_path, english, models):
  with pytest.raises(InputError, match=r"none.udpipe: no such parser model"):
    UDPipe(tmp_path / "none.udpipe")
  bad = tmp_path / "bad.udpipe"
  for content in (b"", b"<html>", english.path.read_bytes()[:500_000]):
    bad.write_bytes(content)
    with pytest.raises(InputError, match=r"bad.udpipe: not a \(complete\) UDP"):
      UDPipe(bad)
  assert find(str(bad), "en", tmp_path / "kept") == bad
  models.answers[f"udpipe/{GERMAN}"] = b"<html>moved</html>"
  with pytest.raises(InputError, match=r"download of german.*not a \(compl"):
    find("", "de", tmp_path / "kept")
  assert not list((tmp_path / "kept").iterdir())
  with pytest.raises(
    InputError, match=r"'englsh' is neither a file nor a name"
  ):
    find("englsh", "en", tmp_path)


def test_find_model_reports_remedies_without_network(tmp_path, monkeypatch):
  monkeypatch.setattr(spacy_udpipe.utils, "BASE_URL", "http://127.0.0.1:9")
  message = r"refused.*by hand, or name.*Systems without trees.*sides=\"\(\)\""
  with pytest.raises(InputError, match=message):
    find("", "de", tmp_path)
  assert not list(tmp_path.iterdir())
