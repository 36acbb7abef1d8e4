"""Errors are one line of JSON, and affect only their request."""

import pytest
from serving_client import LINE

TREE = "1\ta\t_\t_\t_\t_\t{}\tdet\t_\t_\n2\tcow\t_\t_\t_\t_\t{}\troot\t_\t_\n\n"
PREFIX = {"text": LINE, "target_prefix": "b"}


def tree(*heads):
  return {"conllu": TREE.format(*heads)}


MALFORMED = [
  (b"", "the body is not JSON"),
  (b"{", "the body is not JSON"),
  (b"\xff{}", "the body is not UTF-8 (byte 1)"),
  (b"[1]", "the body is not an object"),
  (b"{}", "exactly one of 'text', 'texts', 'conllu', 'requests' is needed, got none"),
  (b"[" * 100_000, "the body is nested more than 100 levels deep"),
  (b'{"text":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "the body is nested more than 100 levels deep"),
  (b'{"text": "a", "nbest": NaN}', "NaN is not a number of JSON"),
  (b'{"text": "a", "nbest": -Infinity}', "-Infinity is not a number of JSON"),
  (b'{"text": "a", "nbest": 1e999}', "1e999 is too large a number"),
  (b'{"text": "a", "nbest": ' + b"9" * 10_000 + b"}", "the body is not JSON (Exceeds the limit"),
  (b'{"text": "a", "nbest": 1.5}', "'nbest' must be a whole number from 1, got 1.5"),
  (b'{"text": "a", "nbest": true}', "'nbest' must be a whole number from 1, got true"),
  (b'{"text": "a", "nbest": 0}', "'nbest' must be a whole number from 1, got 0"),
  (b'{"text": "a", "stream": 1}', "'stream' must be true or false, got 1"),
  (b'{"text": "a", "run": 7}', "'run' must be a string, got 7"),
  (b'{"text": "a\\u0000b"}', "the body has NUL (\\u0000) in 'text'"),
  (b'{"text": "a\\ud800b"}', "half of a surrogate pair (\\ud800) in 'text'"),
  (b'{"text": "a", "text": "b"}', "has the name 'text' twice"),
  ({"text": None}, "'text' must be a string, got null"),
  ({"text": "a\nb"}, "'text' has a line break"),
  ({"texts": "a"}, "'texts' must be a list, got \"a\""),
  ({"texts": ["a", ["b"]]}, "'texts[1]' must be a string, got [\"b\"]"),
  ({"text": "a", "texts": ["b"]}, "got 'text' and 'texts'"),
  ({"txt": "a"}, "unknown name 'txt'. Did you mean 'text'?"),
  ({"requests": ["a"]}, "requests[0] is not an object"),
  ({"requests": [PREFIX | {"x": "b"}]}, "requests[0] has an unknown name 'x'"),
  ({"requests": [PREFIX, {"target_prefix": "b"}]}, "requests[1] is not an object with \"text\""),
  ({"requests": [PREFIX | {"target_prefix": "b\nc"}]}, "'requests[0].target_prefix' has a line break"),
  ({"requests": [PREFIX | {"conllu": "b"}]}, "requests[0] has both \"text\" and \"conllu\""),
  ({"conllu": 3}, "'conllu' must be a string"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", MALFORMED)
def test_malformed_requests_are_400(client, body, message):
  response = client("/translate", body)
  assert response.status_code == 400, response.text
  assert message in response.json()["error"]
  assert response.headers["content-type"] == "application/json"


IMPOSSIBLE = [
  (tree(2, 1), "conllu:1: the sentence has no root"),
  (tree(0, 2), "conllu:2: the heads form a cycle through word 2"),
  (tree(0, 3), "conllu:2: the head of word 2 is 3, but the sentence has 2 words"),
  (tree("_", 0), "conllu:1: the head (seventh column) is '_'"),
  ({"conllu": "a cow"}, "conllu:1: 1 columns, but CoNLL-U has 10"),
  ({"conllu": ""}, "'conllu' has no sentence"),
  ({"conllu": "# text = other\n" + TREE.format(2, 0)}, "conllu:1: "),
  ({"text": LINE, "run": "x"}, "no run 'x'. Known: deps_san, pascal."),
]  # fmt: skip


@pytest.mark.parametrize("body, message", IMPOSSIBLE)
@pytest.mark.parametrize("path", ["/translate", "/inspect"])
def test_impossible_requests_are_422(client, path, body, message):
  response = client(path, body)
  assert response.status_code == 422, response.text
  assert message in response.json()["error"]
  if path == "/translate" and "conllu" in body:
    response = client(path, {"requests": [{"text": LINE}, body]})
    assert response.status_code == 422, response.text
    assert "requests[1].conllu" in response.json()["error"]


def test_rejects_requests_beyond_the_limits_of_the_run(client):
  for path, body, message in [
    ("/translate", {"text": LINE, "nbest": 4}, "nbest is 4, and 'pascal' finds 3"),
    ("/inspect", {"text": " "}, "the sentence has no words"),
    ("/inspect", tree(2, 0) | {"conllu": TREE.format(2, 0) * 2}, "must be one sentence to inspect"),
    ("/inspect", {"text": "a cow " * 300}, "subwords are too many"),
  ]:  # fmt: skip
    response = client(path, body)
    assert response.status_code == 422, response.text
    assert message in response.json()["error"]
  response = client("/translate", {"text": "a cow " * 300})
  assert response.json()["translations"][0]["cut"] is True


def test_rejects_large_fields(new_client):
  client = new_client(max_characters=10, max_sentences=2, max_bytes=4000)
  long_word = TREE.format(2, 0).replace("cow", "c" * 11)
  for path, body, message in [
    ("/translate", {"text": "a" * 11}, "'text' has 11 characters; at most 10"),
    ("/translate", {"texts": ["a", "b" * 11]}, "'texts[1]' has 11 characters"),
    ("/translate", {"texts": ["a"] * 3}, "'texts' has 3 sentences; at most 2"),
    ("/translate", {"requests": [PREFIX] * 3}, "'requests' has 3 sentences; at most 2"),
    ("/translate", {"conllu": TREE.format(2, 0) * 3}, "'conllu' has 3 sentences; at most 2"),
    ("/translate", {"requests": [{"text": "a", "target_prefix": "b" * 11}]}, "'requests[0].target_prefix' has 11 characters; at most 10"),
    ("/translate", {"requests": [{"conllu": long_word}]}, "'requests[0].conllu' has a sentence of 13 characters; at most 10"),
    ("/translate", {"text": "a", "run": "b" * 1001}, "'run' has 1,001 characters; at most 1,000"),
    ("/parse", {"text": "a" * 11}, "'text' has 11 characters"),
    ("/inspect", {"text": "a" * 11}, "'text' has 11 characters"),
    ("/translate", b" " * 4001, "the body has more than 4,000 bytes"),
  ]:  # fmt: skip
    response = client(path, body)
    assert response.status_code == 413, response.text
    assert message in response.json()["error"]


def test_unknown_paths_and_methods(client):
  for path, method, status in [
    ("/nothing", "GET", 404),
    ("/static/../service.py", "GET", 404),
    ("/static/%2e%2e/service.py", "GET", 404),
    ("/static/", "GET", 404),
    ("/translate", "GET", 405),
    ("/runs", "POST", 405),
  ]:
    response = client(path, b"" if method == "POST" else None, method=method)
    assert response.status_code == status, path
    assert [*response.json()] == ["error"]
    assert response.headers["x-content-type-options"] == "nosniff"
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy


def test_rejects_other_hosts_and_allows_origins(new_client):
  client = new_client(hosts=["localhost", "[::1]", "*.example.org"])

  def status(host):
    return client("/runs", headers={"host": host}.items()).status_code

  for host in ("localhost:8080", "[::1]:8080", "LOCALHOST", "a.example.org"):
    assert status(host) == 200, host
  for host in ("evil.example", "localhost.evil.example", "10.0.0.1", "", "["):
    assert status(host) == 400, host
  client = new_client(origins=["https://a.test"])
  headers = {"origin": "https://a.test"}
  response = client("/runs", headers=headers.items())
  assert response.headers["access-control-allow-origin"] == "https://a.test"
  other = client("/runs", headers={"origin": "https://b.test"}.items())
  assert "access-control-allow-origin" not in other.headers
  headers["access-control-request-method"] = "POST"
  response = client("/translate", method="OPTIONS", headers=headers.items())
  assert response.status_code == 200
  assert "POST" in response.headers["access-control-allow-methods"]


def test_rejects_requests_of_foreign_pages(new_client):
  client = new_client(origins=["https://a.test"])
  body = {"text": "The farmer sees a duck ."}

  def status(origin):
    return client("/translate", body, headers=[("origin", origin)]).status_code

  for origin in ("https://a.test", "http://localhost"):
    assert status(origin) == 200, origin
  for origin in ("https://b.test", "null", "http://localhost.b.test", "["):
    assert status(origin) == 403, origin


def test_internal_errors_appear_only_in_the_log(new_client, monkeypatch):
  client = new_client()
  monkeypatch.setattr(client.service, "runs", {"pascal": None})
  response = client("/runs")
  assert response.status_code == 500
  assert response.json() == {
    "error": "an internal error; see the log of the server."
  }
