"""Errors are one line of JSON, and affect only their request."""

import asyncio
import json
import logging
import shutil
import time

import pytest
from serving_client import LINE

from jaxsyn.serving.batching import InspectionJob, TranslationJob
from jaxsyn.serving.runs import RunLocation, ServedRun

TREE = "1\ta\t_\t_\t_\t_\t{}\tdet\t_\t_\n2\tcow\t_\t_\t_\t_\t{}\troot\t_\t_\n\n"


def tree(*heads):
  return {"conllu": TREE.format(*heads)}


HOSTILE = [
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
  (b'{"a\\udfff": ""}', "half of a surrogate pair (\\udfff) in a name"),
  (b'{"text": "a", "text": "b"}', "has the name 'text' twice"),
  ({"text": 1}, "'text' must be a string, got 1"),
  ({"text": None}, "'text' must be a string, got null"),
  ({"text": "a\nb"}, "'text' has a line break"),
  ({"texts": "a"}, "'texts' must be a list, got \"a\""),
  ({"texts": ["a", ["b"]]}, "'texts[1]' must be a string, got [\"b\"]"),
  ({"texts": ["a", "b\rc"]}, "'texts[1]' has a line break"),
  ({"text": "a", "texts": ["b"]}, "got 'text' and 'texts'"),
  ({"txt": "a"}, "unknown name 'txt'. Did you mean 'text'?"),
  ({"requests": ["a"]}, "requests[0] is not an object"),
  ({"requests": [{"text": "a", "target_prefx": "b"}]}, "requests[0] has an unknown name 'target_prefx'. Did you mean 'target_prefix'?"),
  ({"requests": [{"text": "a"}, {"target_prefix": "b"}]}, "requests[1] is not an object with \"text\""),
  ({"requests": [{"text": "a", "target_prefix": ["b"]}]}, "'requests[0].target_prefix' must be a string"),
  ({"requests": [{"text": "a", "target_prefix": "b\nc"}]}, "'requests[0].target_prefix' has a line break"),
  ({"requests": [{"text": "a", "conllu": "b"}]}, "requests[0] has both \"text\" and \"conllu\""),
  ({"requests": [{"conllu": 3}]}, "'requests[0].conllu' must be a string"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", HOSTILE)
def test_invalid_requests_are_400(ask, body, message):
  answer = ask("/translate", body)
  assert answer.status_code == 400, answer.text
  assert message in answer.json()["error"]
  assert answer.headers["content-type"] == "application/json"


CANNOT = [
  (tree(2, 1), "conllu:1: the sentence has no root"),
  (tree(0, 2), "conllu:2: the heads form a cycle through word 2"),
  (tree(0, 3), "conllu:2: the head of word 2 is 3, but the sentence has 2 words"),
  (tree(0, "0|1"), "conllu:2: the head (seventh column) is '0|1'"),
  (tree("_", 0), "conllu:1: the head (seventh column) is '_'"),
  (tree(0, -1), "conllu:2: the head (seventh column) is '-1'"),
  ({"conllu": "a cow"}, "conllu:1: 1 columns, but CoNLL-U has 10"),
  ({"conllu": ""}, "the CoNLL-U has no sentence in it"),
  ({"conllu": "# text = a cow\n\n"}, "conllu:1: a sentence (text) without words"),
  ({"conllu": "# text = other\n" + TREE.format(2, 0)}, "conllu:1: "),
  ({"text": LINE, "run": "x"}, "no run 'x'. Known: deps_san, pascal."),
]  # fmt: skip


@pytest.mark.parametrize("body, message", CANNOT)
@pytest.mark.parametrize("path", ["/translate", "/inspect"])
def test_impossible_requests_are_422(ask, path, body, message):
  answer = ask(path, body)
  assert answer.status_code == 422, answer.text
  assert message in answer.json()["error"]
  if path == "/translate" and "conllu" in body:
    answer = ask(path, {"requests": [{"text": LINE}, body]})
    assert answer.status_code == 422, answer.text
    assert "requests[1].conllu" in answer.json()["error"]


def test_rejects_requests_beyond_the_limits_of_the_run(ask):
  for path, messages, message in [
    ("/translate", {"text": LINE, "nbest": 4}, "nbest is 4, and 'pascal' finds 3"),
    ("/inspect", {"text": " "}, "the sentence has no words"),
    ("/inspect", {"conllu": TREE.format(2, 0) * 2}, "one sentence is inspected at a time"),
    ("/inspect", {"text": "a cow " * 300}, "subwords are too many"),
  ]:  # fmt: skip
    answer = ask(path, messages)
    assert (answer.status_code, message in answer.json()["error"]) == (
      422,
      True,
    )
  answer = ask("/translate", {"text": "a cow " * 300})
  assert answer.json()["translations"][0]["cut"] is True


def test_paths_and_methods(ask):
  for path, method, status in [
    ("/nothing", "GET", 404),
    ("/static/../app.py", "GET", 404),
    ("/static/%2e%2e/app.py", "GET", 404),
    ("/static/", "GET", 404),
    ("/translate", "GET", 405),
    ("/translate/", "POST", 404),
    ("/runs", "POST", 405),
    ("/runs", "TRACE", 405),
    ("/health", "HEAD", 200),
  ]:
    answer = ask(path, b"" if method == "POST" else None, method=method)
    assert answer.status_code in (status, 307), (path, answer.status_code)
    if status >= 400 and answer.status_code != 307:
      assert [*answer.json()] == ["error"]
  for name, value in {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
  }.items():
    assert answer.headers[name] == value
  policy = answer.headers["content-security-policy"]
  assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy


def test_sizes(made):
  ask = made(works=False, max_characters=10, max_sentences=2, max_bytes=4000)
  for path, messages, message in [
    ("/translate", {"text": "a" * 11}, "'text' has 11 characters; at most 10"),
    ("/translate", {"texts": ["a", "b" * 11]}, "'texts[1]' has 11 characters"),
    ("/translate", {"texts": ["a"] * 3}, "'texts' has 3 sentences; at most 2"),
    ("/translate", {"requests": [{"text": "a"}] * 3}, "'requests' has 3 sentences; at most 2"),
    ("/translate", {"conllu": TREE.format(2, 0) * 3}, "'conllu' has 3 sentences; at most 2"),
    ("/translate", {"requests": [{"text": "a", "target_prefix": "b" * 11}]}, "'requests[0].target_prefix' has 11 characters; at most 10"),
    ("/translate", {"requests": [{"conllu": TREE.format(2, 0).replace("cow", "c" * 11)}]}, "'requests[0].conllu' has a sentence of 13 characters; at most 10"),
    ("/translate", {"text": "a", "run": "b" * 1001}, "'run' has 1,001 characters; at most 1,000"),
    ("/inspect", {"text": "a", "layers": [0] * 1001}, "'layers' has 1,001 numbers; at most 1,000"),
    ("/parse", {"text": "a" * 11}, "'text' has 11 characters"),
    ("/inspect", {"text": "a" * 11}, "'text' has 11 characters"),
    ("/translate", b" " * 4001, "the body has 4,001 bytes; at most 4,000"),
  ]:  # fmt: skip
    answer = ask(path, messages)
    assert (answer.status_code, message in answer.json()["error"]) == (413, True), answer.text  # fmt: skip
  assert answer.headers["connection"] == "close"


def test_a_full_queue_and_an_impatient_client(made):
  ask = made(works=False, queue=3, timeout=0.2)
  worker = ask.service.worker
  answer = ask("/translate", {"texts": [LINE] * 4})
  assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
  assert (
    answer.json()["error"] == "more than 3 sentences would wait; ask later."
  )
  job = TranslationJob("pascal", [None] * 3)
  worker.submit(job)
  assert ask("/translate", {"text": LINE}).status_code == 503
  assert ask("/inspect", {"text": LINE}).status_code == 503
  worker.cancel(job)
  # Nothing works: no answer comes, and what waited leaves the queue.
  answer = ask("/translate", {"texts": [LINE] * 3})
  assert answer.status_code == 503
  assert answer.json()["error"].startswith("no answer within 0.2 seconds")
  assert worker.waiting == 0
  lines = ask("/translate", {"text": LINE, "stream": True}).text.splitlines()
  assert [[*json.loads(line)] for line in lines] == [["error"]]
  assert worker.waiting == 0


def test_health_reports_a_stuck_worker(made):
  ask = made(timeout=0.2)
  assert ask("/health").json() == {"status": "ok"}
  job = InspectionJob("pascal", lambda is_wanted: time.sleep(1.5))
  ask.service.worker.submit(job)
  time.sleep(0.7)
  answer = ask("/health")
  assert answer.status_code == 503
  assert answer.json() == {"status": "stuck", "seconds": 1}
  job.results[0].result(10)
  time.sleep(0.1)
  assert ask("/health").json() == {"status": "ok"}


def test_health_is_ok_while_a_long_compilation_runs(made):
  ask = made(timeout=0.2)
  session, worker = ask.service.runs["pascal"].session, ask.service.worker
  examples = session.read(["a cow " * 50])  # of a new size
  job = InspectionJob("pascal", lambda is_wanted: session.search(examples))
  worker.submit(job)
  replies = []
  while not job.results[0].done():
    is_compiling, stalled = session.note() != "", worker.stalled_seconds
    reply = ask("/health")
    if is_compiling and session.note() and stalled > 0.2:
      replies.append((reply.status_code, reply.json()["status"]))
  assert replies and set(replies) == {(200, "ok")}


@pytest.mark.parametrize("stream", [False, True])
def test_disconnected_clients_leave_the_queue(made, stream):
  ask = made(works=False)
  body = json.dumps({"texts": [LINE] * 5, "stream": stream}).encode()
  sent, waited = [], []

  async def ends():
    present = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
      if present:
        return present.pop()
      await asyncio.sleep(0.05)
      waited.append(ask.service.worker.waiting)
      return {"type": "http.disconnect"}

    async def send(message):
      sent.append(message)

    scope = {
      **{"type": "http", "method": "POST", "path": "/translate"},
      **{"headers": [(b"host", b"localhost")], "query_string": b""},
    }
    await asyncio.wait_for(ask.app(scope, receive, send), 10)

  asyncio.run(ends())
  assert waited == [5] and ask.service.worker.waiting == 0
  assert 'path="/translate",status="499"' in ask("/metrics").text or stream


def test_a_starting_server_reports_its_progress(made):
  ask = made(works=False)
  ask.service.state, ask.service.compiled = "starting", (5, 18)
  answer = ask("/health")
  assert answer.status_code == 503
  assert answer.json() == {"status": "starting", "compiled": 5, "sizes": 18}
  for path in ("/translate", "/parse", "/inspect"):
    answer = ask(path, {"text": LINE})
    assert answer.status_code == 503
    assert answer.json() == {
      "error": "the server is starting: 5 of 18 programs are compiled."
    }
  for state, status in (("ok", 200), ("ending", 503)):
    ask.service.state = state
    answer = ask("/health")
    assert (answer.status_code, answer.json()) == (status, {"status": state})


def test_internal_errors_appear_only_in_the_log(made, monkeypatch, caplog):
  ask = made(works=False)
  monkeypatch.setattr(ask.service, "runs", {"pascal": None})
  with caplog.at_level(logging.ERROR):
    answer = ask("/runs")
  assert answer.status_code == 500
  assert "NoneType" not in answer.text and "Traceback" not in answer.text
  (record,) = caplog.records
  (name,) = record.args
  assert f"its log has it as {name}." in answer.json()["error"]
  assert "AttributeError" in caplog.text


def test_checks_hosts_and_origins(made):
  ask = made(works=False)

  def status(host, **headers):
    headers = {"host": host, **headers}
    return ask("/runs", headers=headers.items()).status_code

  for host in ("localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"):
    assert status(host) == 200, host
  for host in ("evil.example", "localhost.evil.example", "10.0.0.1", "", "["):
    assert status(host) == 400, host
  assert status("localhost:1", origin="http://localhost:1") == 200
  for origin in (
    *("http://localhost:2", "https://evil.example", "null"),
    *("http://[", "http://[x]:1", "http://\u2100", "//[::1", "["),
  ):
    headers = {"host": "localhost:1", "origin": origin.encode()}
    answer = ask("/runs", headers=headers.items())
    assert answer.status_code == 403, origin
    assert "--origins names those" in answer.json()["error"]
  named = {"allowed_hosts": ["*.example.org"], "origins": ["https://a.test"]}
  ask = made(works=False, policy={"host": "0.0.0.0", **named})
  for host in ("a.example.org", "10.0.0.1:80", "[2001:db8::1]"):
    assert status(host) == 200, host
  assert status("example.org.evil.example") == 400
  headers = {"origin": "https://a.test"}
  answer = ask("/runs", headers=headers.items())
  assert answer.headers["access-control-allow-origin"] == "https://a.test"
  headers["access-control-request-method"] = "POST"
  answer = ask("/translate", method="OPTIONS", headers=headers.items())
  assert answer.status_code == 200
  assert "POST" in answer.headers["access-control-allow-methods"]


def test_metrics(ask):
  ask("/translate", {"text": LINE})
  ask("/no/such/path?of=many")
  text = ask("/metrics").text
  for line in (
    'jaxsyn_requests_total{path="/translate",status="200"}',
    'jaxsyn_requests_total{path="other",status="404"}',
    'jaxsyn_request_seconds_bucket{le="0.1",path="/translate"}',
    'jaxsyn_sentences_total{run="pascal"}',
    'jaxsyn_batch_sentences_count{run="pascal"}',
    "jaxsyn_queue_sentences 0.0",
    "jaxsyn_programs ",
    "process_resident_memory_bytes",
  ):
    assert line in text
  assert "/no/such/path" not in text


def test_a_run_without_a_parser_takes_trees_alone(runs, tmp_path, made):
  folder = tmp_path / "no_parser"
  shutil.copytree(runs["pascal"], folder)
  (folder / "parser.source.udpipe").unlink()
  one = ServedRun(RunLocation("bare", (str(folder),)))
  ask = made(works=False)
  ask.service.runs["bare"] = one
  try:
    assert one.description["parser"] is False
    answer = ask("/parse", {"text": LINE, "run": "bare"})
    assert answer.status_code == 422
    assert "such parser model" in answer.json()["error"]
    from jaxsyn.data.sentence.stream import parses_of_text

    (cannot, can) = one.readers.read([LINE, *parses_of_text(TREE.format(2, 0), "it")])  # fmt: skip
    assert "such parser model" in str(cannot)
    assert can[0]["source_head"].tolist() == [1, 1]
  finally:
    one.close()


def test_a_parser_that_dies_is_started_again(served):
  reading = served[0].readers
  before = reading.parse(LINE)
  reading._workers._process.kill()
  reading._workers._process.wait()
  for _ in range(3):  # of two processes one was killed
    assert reading.parse(LINE) == before
    ((example, cut),) = reading.read([LINE])
    assert not cut and len(example["source_head"]) == 4
