"""Responses equal the results of a session, whatever else is in a batch."""

import json

import numpy as np
import pytest
from serving_client import LINE, OTHER

from jaxsyn.data.sentence.stream import parses_of_text
from jaxsyn.decode.requests import Request
from jaxsyn.decode.translator import EMPTY_TRANSLATION
from jaxsyn.inspection.inspector import attention_of
from jaxsyn.inspection.sentence import fields_of
from jaxsyn.serving.batching import Job
from jaxsyn.serving.runs import ServedRun, nbest_fields
from jaxsyn.serving.server import compile_programs
from jaxsyn.session import Session


@pytest.fixture(scope="module")
def session(runs):
  return Session(runs["pascal"], nbest=3)


def assert_equal(nbest, expected):
  """Compares texts, and scores, whose last digits depend on the batch size."""
  expected = nbest_fields(expected)
  assert [one["text"] for one in nbest] == [one["text"] for one in expected]
  for name in ("score", "log_p"):
    np.testing.assert_allclose(
      [one[name] for one in nbest], [one[name] for one in expected], rtol=1e-5
    )


def translations(response):
  assert response.status_code == 200, response.text
  return response.json()["translations"]


def test_translates_like_the_session(client, session):
  requests = [
    {"text": LINE},
    {"text": ""},
    {"text": OTHER, "target_prefix": "the E"},
  ]
  response = client("/translate", {"requests": requests, "nbest": 3})
  assert response.json()["run"] == "pascal"
  expected = session([LINE, "", Request(OTHER, prefix="the E")])
  for one, nbest in zip(translations(response), expected, strict=True):
    assert_equal(one["nbest"], nbest)
    assert one["text"] == nbest[0].text and one["cut"] is False
  assert expected[2][0].text.startswith("the E")
  (one,) = translations(client("/translate", {"text": LINE}))
  assert len(one["nbest"]) == 1


def test_translates_a_changed_tree(client, session):
  parse = client("/parse", {"text": LINE}).json()
  expected = session.sources.parser(LINE)
  assert parse["words"] == LINE.split() and parse["parsed"]
  assert parse["heads"] == list(expected.head_W)
  assert parse["relations"] == list(expected.relation_W)
  rows = [line.split("\t") for line in parse["conllu"].split("\n")]
  tags = [row[3] for row in rows if len(row) == 10]
  assert len(tags) == 4 and "_" not in tags
  # The first word becomes the root and the parent of all others.
  for row in rows:
    if len(row) == 10:
      row[6] = "0" if row[0] == "1" else "1"
  changed = "\n".join("\t".join(row) for row in rows)
  seen = client("/inspect", {"conllu": changed}).json()
  assert seen["heads"] == seen["heads_read_by_the_system"] == [0, 0, 0, 0]
  rows = [line.split("\t") for line in seen["conllu"].split("\n")]
  assert [row[3] for row in rows if len(row) == 10] == tags
  (nbest,) = session(parses_of_text(changed, "text"))
  for source in (changed, seen["conllu"]):
    response = client("/translate", {"conllu": source, "nbest": 3})
    assert_equal(translations(response)[0]["nbest"], nbest)
  assert seen["nbest"][0]["text"] == nbest[0].text == seen["translation"]
  assert abs(session([LINE])[0][0].score - nbest[0].score) > 1e-4


def test_inspects_like_the_command(client, session):
  response = client("/inspect", {"text": LINE})
  assert response.headers["content-type"] == "application/json"
  result = response.json()
  expected = fields_of(attention_of(session, [LINE])[0], 1)
  expected = json.loads(json.dumps(expected))
  assert result.keys() - expected.keys() == {"conllu", "nbest"}
  assert len(result["nbest"]) == 3
  for name in expected.keys() - {"attention", "weightings"}:
    assert result[name] == expected[name], name
  for name in ("attention", "weightings"):
    assert result[name]
    for one, other in zip(result[name], expected[name], strict=True):
      weights = one.pop("weights"), other.pop("weights")
      np.testing.assert_allclose(*weights, atol=1e-5)
      assert one == other


def test_describes_and_selects_runs(client, runs):
  first, second = client("/runs").json()["runs"]
  assert (first["name"], second["name"]) == ("pascal", "deps_san")
  assert first["folder"] == first["system"] == "pascal"
  assert second["folder"] == second["system"] == "deps_san"
  assert first["tree"] == "parsed" and first["parser"] is True
  assert first["beam"] == first["nbest"] == 3
  assert first["layers"] == {"encoder": 1, "decoder": 1}
  assert first["languages"] == {"source": "en", "target": "qaa"}
  assert str(runs["pascal"].parent) not in client("/runs").text
  response = client("/translate", {"text": LINE, "run": "deps_san"})
  assert response.json()["run"] == "deps_san"
  (nbest,) = client.service.runs["deps_san"].session([LINE])
  assert_equal(translations(response)[0]["nbest"], nbest[:1])


@pytest.fixture
def opened(new_client):
  """A function that returns a client of a new run, and the run."""
  opened = []

  def make(*folders, **decode):
    run = ServedRun("it", [*map(str, folders)], decode=decode)
    opened.append(run)
    return new_client(runs=[run]), run

  yield make
  for run in opened:
    run.readers.close()


def test_samples_depend_on_the_index_in_the_request(opened, runs):
  client, run = opened(runs["pascal"], search="sample", nbest=2)
  assert run.max_nbest == 2
  expected = Session(runs["pascal"], search="sample", nbest=2)([LINE, LINE])
  request = ("/translate", {"requests": [{"text": LINE}] * 2, "nbest": 2})
  for response in client.all([request] * 2):
    for one, nbest in zip(translations(response), expected, strict=True):
      assert_equal(one["nbest"], nbest)
  assert expected[0][0].text != expected[1][0].text


def test_an_ensemble_translates_without_figures(opened, runs):
  folders = runs["pascal"], runs["deps_san"]
  client, _ = opened(*folders)
  (run,) = client("/runs").json()["runs"]
  assert (run["system"], run["folder"]) == ("pascal, deps_san", "pascal,deps_san")  # fmt: skip
  (nbest,) = Session(list(folders), nbest=3)([LINE])
  (one,) = translations(client("/translate", {"text": LINE}))
  assert_equal(one["nbest"], nbest[:1])
  assert client("/parse", {"text": LINE}).json()["parsed"] is True
  response = client("/inspect", {"text": LINE})
  assert response.status_code == 422
  assert "an ensemble has no maps" in response.json()["error"]


def test_compiles_programs_of_common_sizes_before_requests(opened, runs):
  client, run = opened(runs["pascal"], beam=2)
  compile_programs(client.service, 16)
  programs = run.session.translator.compilations
  assert programs == 4  # reading and searching, of one and of eight sentences
  for count in (1, 3, 8):
    lines = [{"text": line} for line in (LINE, OTHER, "the cow runs .")] * 3
    translations(client("/translate", {"requests": lines[:count]}))
  assert run.session.translator.compilations == programs


def test_batches_simultaneous_requests(client, session, monkeypatch):
  served, sizes = client.service.runs["pascal"].session, []
  search = served.search

  def counted(examples, *args, **options):
    sizes.append(len(examples))
    return search(examples, *args, **options)

  monkeypatch.setattr(served, "search", counted)
  lines = [LINE, OTHER, "the cow runs ."] * 10
  expected = dict(zip(lines, session(lines[:3])))
  responses = client.all([("/translate", {"text": line}) for line in lines])
  for line, response in zip(lines, responses, strict=True):
    assert_equal(translations(response)[0]["nbest"], expected[line][:1])
  # At most eight sentences at a time; the first come alone.
  assert sum(sizes) == 30 and max(sizes) == 8 and len(sizes) <= 9


def test_short_requests_do_not_wait_for_long_ones(new_client, served):
  worker = new_client(blocked=True).service.worker
  long, short = (Job(served[0], [Request(LINE)] * n) for n in (20, 2))
  worker.submit(long)
  worker.submit(short)
  batch = [(one.job, one.index) for one in worker._take_batch(served[0])]
  assert batch[:4] == [(long, 0), (short, 0), (long, 1), (short, 1)]
  assert len(batch) == 8 and worker.waiting == 14


def test_reports_errors_only_to_their_client(client, session):
  bad = {"requests": [{"text": LINE, "target_prefix": "雪"}]}
  bodies = [{"text": LINE}, bad, {"text": OTHER}]
  responses = client.all([("/translate", body) for body in bodies])
  assert [one.status_code for one in responses] == [200, 422, 200]
  message = "the prefix '雪' cannot be written with the subwords"
  assert responses[1].json()["error"].startswith(message)
  both = {"requests": [{"text": LINE}, *bad["requests"]]}
  error = client("/translate", both).json()["error"]
  assert error.startswith(f"sentence 2: {message}")
  response = client("/translate", both | {"stream": True})
  assert response.headers["content-type"] == "application/x-ndjson"
  assert "content-length" not in response.headers
  lines = map(json.loads, response.text.splitlines())
  first, second = sorted(lines, key=lambda one: one["index"])
  assert_equal(first["nbest"], session([LINE])[0][:1])
  assert second.keys() == {"index", "error"}
  assert second["error"].startswith(message)


def test_an_error_of_a_search_fails_only_its_sentence(client, monkeypatch):
  session = client.service.runs["pascal"].session
  search = session.search

  def fail_at_four_subwords(examples, *args, **options):
    if any(len(one["source_id"]) < 4 for (one,) in examples):
      raise MemoryError
    return search(examples, *args, **options)

  monkeypatch.setattr(session, "search", fail_at_four_subwords)
  bodies = [{"text": LINE}, {"text": "a"}, {"text": OTHER}]
  responses = client.all([("/translate", body) for body in bodies])
  assert [one.status_code for one in responses] == [200, 500, 200]


def test_ends_the_search_for_unwanted_sentences(session):
  lines = [LINE, OTHER, "the cow runs ."]
  examples = session.read(lines)
  result = session.search(examples, is_wanted=lambda index: index != 1)
  assert result[1] == [EMPTY_TRANSLATION]
  for index in (0, 2):
    assert_equal(nbest_fields(result[index]), session([lines[index]])[0])
  # A sentence that becomes unwanted during its search ends it.
  request = Request(LINE, prefix="the cow sleeps . " * 20)
  checks = []
  result = session.search(
    examples[:1],
    [session.output_request(request)],
    is_wanted=lambda index: checks.append(0) or len(checks) < 3,
  )
  assert result == [[EMPTY_TRANSLATION]] and len(checks) == 3


def test_rejects_requests_when_the_queue_is_full(new_client, served):
  client = new_client(blocked=True, queue=3, timeout=0.2)
  worker = client.service.worker
  response = client("/translate", {"requests": [{"text": LINE}] * 4})
  assert response.status_code == 503 and response.headers["retry-after"] == "5"
  message = "more than 3 sentences would wait; try again later."
  assert response.json()["error"] == message
  job = Job(served[0], [Request(LINE)] * 3)
  worker.submit(job)
  for path in ("/translate", "/inspect"):
    assert client(path, {"text": LINE}).json()["error"] == message
  worker.cancel(job)
  assert worker.waiting == 0


def test_requests_that_time_out_leave_the_queue(new_client):
  client = new_client(blocked=True, timeout=0.2)
  for path in ("/translate", "/inspect"):
    response = client(path, {"text": LINE})
    assert response.status_code == 503
    message = response.json()["error"]
    assert message.startswith("no response within 0.2 seconds")
    assert client.service.worker.waiting == 0
  lines = client("/translate", {"text": LINE, "stream": True}).text.splitlines()
  assert [[*json.loads(line)] for line in lines] == [["error"]]
  assert client.service.worker.waiting == 0


def test_rejects_requests_until_it_is_ready(new_client):
  client = new_client()
  for state in ("starting", "ending"):
    client.service.state = state
    assert client("/health").status_code == 503
    assert client("/health").json() == {"status": state}
    for path in ("/translate", "/parse", "/inspect"):
      response = client(path, {"text": LINE})
      assert response.status_code == 503
      assert response.json() == {"error": f"the server is {state}."}
  client.service.state = "ok"
  assert client("/health").json() == {"status": "ok"}
