"""Errors are one line of JSON, and affect only their request."""

import pytest
from serving_client import LINE

TREE = "1\ta\t_\t_\t_\t_\t{}\tdet\t_\t_\n2\tcow\t_\t_\t_\t_\t{}\troot\t_\t_\n\n"
PREFIX = {"text": LINE, "target_prefix": "b"}


def tree(*heads):
  return {"conllu": TREE.format(*heads)}


def assert_error(response, status, message):
  assert response.status_code == status, (message, response.text)
  assert response.headers["content-type"] == "application/json"
  assert message in response.json()["error"]


# Other faults of JSON: tests/session/test_translate_inputs.py.
MALFORMED = [
  (b"", "the body is not valid JSON"),
  (b"\xff{}", "the body is not UTF-8 (byte 1)"),
  (b"[1]", "the body is not an object"),
  (b"{}", "exactly one of 'text', 'conllu', 'requests' is needed, got none"),
  (b"[" * 100_000, "the body is not valid JSON (it is nested too deeply)"),
  (b'{"text": "a", "nbest": 1e999}', "'nbest' must be a whole number from 1, got Infinity"),
  (b'{"text": "a", "nbest": ' + b"9" * 10_000 + b"}", "the body is not valid JSON (Exceeds the limit"),
  ({"text": "a", "nbest": True}, "'nbest' must be a whole number from 1, got true"),
  ({"text": "a", "nbest": 0}, "'nbest' must be a whole number from 1, got 0"),
  ({"text": "a", "stream": 1}, "'stream' must be true or false, got 1"),
  ({"text": "a", "run": 7}, "'run' must be a string, got 7"),
  ({"text": None}, "'text' must be a string, got null"),
  ({"requests": "a"}, "'requests' must be a list, got \"a\""),
  ({"requests": [PREFIX, {"text": ["b"]}]}, "'requests[1].text' must be a string, got a list"),
  ({"text": "a", "requests": [PREFIX]}, "got 'text' and 'requests'"),
  ({"requests": [PREFIX], "target_prefix": "b"}, "'target_prefix' must be in an element of 'requests'"),
  ({"txt": "a"}, "unknown name 'txt'. Did you mean 'text'?"),
  ({"requests": [PREFIX, {"target_prefix": "b"}]}, "requests[1] is not an object with \"text\""),
  ({"requests": [PREFIX | {"target_prefix": "b\nc"}]}, "'requests[0].target_prefix' has a line break"),
  ({"conllu": 3}, "'conllu' must be a string"),
]  # fmt: skip
IMPOSSIBLE = [
  ("/translate /inspect", tree(0, 2), "conllu:2: the heads form a cycle through word 2"),
  ("/translate /inspect", tree("_", 0), "conllu:1: the head (seventh column) is '_'"),
  ("/translate /inspect", {"conllu": ""}, "'conllu' must be one sentence, got 0"),
  ("/translate /inspect", {"text": LINE, "run": "x"}, "no run 'x'. Known: deps_san, pascal."),
  ("/translate", {"text": LINE, "nbest": 4}, "nbest is 4, and 'pascal' finds 3"),
  ("/translate", {"requests": [PREFIX, tree(2, 1)]}, "requests[1].conllu"),
  ("/inspect", {"text": " "}, "the sentence has no words"),
  ("/translate /inspect", {"conllu": TREE.format(2, 0) * 2}, "'conllu' must be one sentence, got 2"),
  ("/inspect", {"text": "a cow " * 300}, "subwords are too many"),
]  # fmt: skip
LONG_WORD = TREE.format(2, 0).replace("cow", "c" * 11)
TOO_LARGE = [
  ("/translate", {"requests": [{"text": "a"}, {"text": "b" * 11}]}, "'requests[1].text' has 11 characters; at most 10"),
  ("/translate", {"requests": [PREFIX] * 3}, "'requests' has 3 sentences; at most 2"),
  ("/translate", {"conllu": LONG_WORD}, "'conllu' has a sentence of 13 characters"),
  ("/translate", {"requests": [{"text": "a", "target_prefix": "b" * 11}]}, "'requests[0].target_prefix' has 11 characters"),
  ("/translate", {"requests": [{"conllu": LONG_WORD}]}, "'requests[0].conllu' has a sentence of 13 characters"),
  ("/translate", {"text": "a", "run": "b" * 1001}, "'run' has 1,001 characters; at most 1,000"),
  ("/parse", {"text": "a" * 11}, "'text' has 11 characters"),
  ("/inspect", {"text": "a" * 11}, "'text' has 11 characters"),
  ("/translate", b" " * 4001, "the body has more than 4,000 bytes"),
]  # fmt: skip


def test_status_and_message_of_invalid_requests(client, new_client):
  for body, message in MALFORMED:
    assert_error(client("/translate", body), 400, message)
  for paths, body, message in IMPOSSIBLE:
    for path in paths.split():
      assert_error(client(path, body), 422, message)
  response = client("/translate", {"text": "a cow " * 300})
  assert response.json()["translations"][0]["cut"] is True
  small = new_client(max_characters=10, max_sentences=2, max_bytes=4000)
  for path, body, message in TOO_LARGE:
    assert_error(small(path, body), 413, message)


@pytest.mark.parametrize(
  "path, method, status",
  [
    ("/nothing", "GET", 404),
    ("/static/../service.py", "GET", 404),
    ("/static/%2e%2e/service.py", "GET", 404),
    ("/static/", "GET", 404),
    ("/translate", "GET", 405),
    ("/runs", "POST", 405),
  ],
)
def test_unknown_paths_and_methods(client, path, method, status):
  response = client(path, b"" if method == "POST" else None, method=method)
  assert response.status_code == status and [*response.json()] == ["error"]
  assert response.headers["x-content-type-options"] == "nosniff"
  policy = response.headers["content-security-policy"]
  assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy


def test_rejects_other_hosts(new_client):
  client = new_client(hosts=["localhost", "[::1]", "*.example.org"])

  def status(host):
    return client("/runs", headers=[("host", host)]).status_code

  for host in ("localhost:8080", "[::1]:8080", "LOCALHOST", "a.example.org"):
    assert status(host) == 200, host
  for host in ("evil.example", "localhost.evil.example", "10.0.0.1", "", "["):
    assert status(host) == 400, host


def test_only_allowed_pages_send_requests_and_read_responses(new_client):
  client = new_client(origins=["https://a.test"])

  def send(origin, path="/translate", body=None, method=None):
    headers = [("origin", origin), ("access-control-request-method", "POST")]
    return client(path, body, headers=headers, method=method)

  allowed = "access-control-allow-origin"
  response = send("https://a.test", body={"text": LINE})
  assert response.status_code == 200
  assert response.headers[allowed] == "https://a.test"
  assert send("http://localhost", body={"text": LINE}).status_code == 200
  for origin in ("https://b.test", "null", "http://localhost.b.test", "["):
    assert send(origin, body={"text": LINE}).status_code == 403, origin
    assert allowed not in send(origin, "/runs").headers
  response = send("https://a.test", method="OPTIONS")
  assert response.status_code == 200
  assert "POST" in response.headers["access-control-allow-methods"]


def test_internal_errors_appear_only_in_the_log(new_client, monkeypatch):
  client = new_client()
  monkeypatch.setattr(client.service, "runs", {"pascal": None})
  response = client("/runs")
  assert_error(response, 500, "an internal error; see the log of the server.")
  assert [*response.json()] == ["error"]
