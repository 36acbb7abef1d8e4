"""UDPipe 2's protocol, with a real server that has its moods."""

from __future__ import annotations

import json
import time

import parsers_under_test
import pytest
import web_server

from jaxsyn.data.sentence.parsers import udpipe_service
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.sentence.parsers.udpipe_service import UDPipeServiceSpec
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT

AT = ROOT / "prepare" / "parse" / "source" / "udpipe_service"
LINES = [f"Der Hund Nummer {i} läuft. Er schläft im Haus!" for i in range(10)]


@pytest.fixture(scope="module")
def model(shared_data):
  return shared_data / "udpipe" / "german.udpipe"


@pytest.fixture
def server(model, monkeypatch):
  monkeypatch.setattr(udpipe_service, "_WAIT", 0.01)
  with parsers_under_test.service(model) as server:
    yield server


@pytest.fixture
def spec(server):
  spec = UDPipeServiceSpec(server.url, "english", batch=4, retries=2, timeout=5)
  found = spec.resolve(AT, "en", "nowhere", {})
  server.asked.clear()
  return found


def test_words_and_trees_are_the_server_s(server, spec, model):
  parser = spec.open()
  assert parser.parses(LINES) == UDPipe(model).parses(LINES)
  sent = [asked["data"].splitlines() for asked in server.asked[1:]]
  assert sent == [LINES[:4], LINES[4:8], LINES[8:]]
  for asked in server.asked:
    assert asked["model"] == parsers_under_test.MODEL  # by its whole name
    assert asked["tagger"] == asked["parser"] == ""
  assert parser.identity.entry() == {
    "kind": "udpipe_service",
    "name": parsers_under_test.MODEL,
    "sha256": "",
    "version": "UDPipe 2",
    "options": {},
  }


def test_a_line_that_is_refused_costs_no_other(server, spec, model):
  lines = [*LINES[:2], "x " * 61, *LINES[2:]]
  parses = spec.open().parses(lines)
  assert [parse.parsed for parse in parses] == [True] * 2 + [False] + [True] * 8
  assert parses[3:] == UDPipe(model).parses(LINES[2:])


def unavailable(handler):
  web_server.send(b"busy", status=503)(handler)


def cut(handler):
  web_server.send(b'{"model": "x", "result": "# gen', length=100)(handler)
  handler.close_connection = True


def sleepy(handler):
  time.sleep(1)
  unavailable(handler)


def html(handler):
  web_server.send(b"<html>maintenance</html>")(handler)


@pytest.mark.parametrize("fault", [unavailable, cut, sleepy, html])
def test_it_is_asked_again_and_then_it_is_told(server, spec, model, fault):
  parser = spec.open()
  if fault in (sleepy, cut):
    object.__setattr__(parser.spec, "timeout", 0.5)
  server.faults[:] = [fault, fault]
  assert parser.parses(LINES[:1]) == UDPipe(model).parses(LINES[:1])
  server.faults[:] = [fault] * 3
  with pytest.raises(InputError, match=r"for 1 lines from 'Der Hund.*3 tries"):
    parser.parses(LINES[:1])


def test_what_cannot_get_better_is_told_at_once(server, spec):
  parser = spec.open()
  server.faults[:] = [web_server.send(b"who are you?", status=403)]
  with pytest.raises(InputError, match=r"answers 403 .*who are you.*1 tries"):
    parser.parses(LINES)
  page = {"model": "newer", "result": ""}
  server.faults[:] = [web_server.send(json.dumps(page).encode())]
  with pytest.raises(
    InputError, match=r"with the model newer and not english-"
  ):
    parser.parses(LINES)
  page = {"model": parsers_under_test.MODEL, "result": "1\tx\n\n"}
  server.faults[:] = [web_server.send(json.dumps(page).encode())]
  with pytest.raises(InputError, match=r"sent no CoNLL-U .*2 columns"):
    parser.parses(LINES)


def test_models_and_servers_that_are_not_there(server):
  spec = UDPipeServiceSpec(server.url, "englich", retries=0)
  with pytest.raises(InputError, match=r"model 'englich' .*Known: english-toy"):
    spec.resolve(AT, "en", "nowhere", {})
  message = r"http://127.0.0.1:9 gives no whole answer .*refused.*service\.url"
  with pytest.raises(InputError, match=message):
    UDPipeServiceSpec("http://127.0.0.1:9", retries=1).resolve(AT, "en", "", {})
  with pytest.raises(InputError, match=r"'file:///etc' is no address of http"):
    UDPipeServiceSpec("file:///etc").resolve(AT, "en", "", {})
