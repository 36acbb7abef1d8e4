"""Responses equal the results of a session, whatever else is in a batch."""

import json
import re

import numpy as np
import pytest
from serving_client import LINE, OTHER

from jaxsyn.data.sentence.stream import parses_of_text
from jaxsyn.decode.requests import Request
from jaxsyn.decode.translator import EMPTY_TRANSLATION
from jaxsyn.inspection.inspector import attention_of
from jaxsyn.inspection.sentence import fields_of
from jaxsyn.session import Session


@pytest.fixture(scope="module")
def alone(runs):
  return Session(runs["pascal"], nbest=3)


def fields(nbest):
  return [{"text": one.text, "score": one.score, "log_p": one.log_p} for one in nbest]  # fmt: skip


def assert_alike(found, expected):
  """Texts to the letter; numbers to the last digits, which the size decides."""
  assert [one["text"] for one in found] == [one["text"] for one in expected]
  for name in ("score", "log_p"):
    np.testing.assert_allclose(
      [one[name] for one in found],
      [one[name] for one in expected],
      rtol=1e-5,
    )


def test_translations_are_the_sessions(ask, alone):
  answer = ask("/translate", {"texts": [LINE, "", OTHER], "nbest": 3})
  assert answer.status_code == 200
  document = answer.json()
  assert document["run"] == "pascal"
  for one, expected in zip(document["translations"], alone([LINE, "", OTHER])):
    assert_alike(one["nbest"], fields(expected))
    assert one["text"] == expected[0].text and one["cut"] is False
  # The best alone, where no more is asked.
  document = ask("/translate", {"text": LINE}).json()
  assert [len(one["nbest"]) for one in document["translations"]] == [1]


def test_translations_begin_with_their_prefix(ask, alone):
  best = alone([LINE])[0][0].text
  requests = [{"text": LINE, "target_prefix": "the E"}, {"text": OTHER}]
  document = ask("/translate", {"requests": requests, "nbest": 2}).json()
  expected = alone([Request(LINE, prefix="the E"), OTHER])
  for one, nbest in zip(document["translations"], expected, strict=True):
    assert_alike(one["nbest"], fields(nbest[:2]))
  result = document["translations"][0]["text"]
  assert result != best and result.startswith("the E")


def test_a_tree_that_is_sent_is_read(ask, alone):
  """Another head, and the model reads another tree: other scores come of it."""
  parse = ask("/parse", {"text": LINE}).json()
  values = alone.sources.parse(LINE)
  assert parse["words"] == LINE.split() and parse["parsed"]
  assert parse["heads"] == list(values.head_W)
  assert parse["relations"] == list(values.relation_W)
  rows = [row.split("\t") for row in parse["conllu"].split("\n")]
  upos = [row[3] for row in rows if len(row) == 10]
  assert len(upos) == 4 and "_" not in upos
  # The first word becomes the root, and all others hang below it.
  for row in rows:
    if len(row) == 10:
      row[6] = "0" if row[0] == "1" else "1"
  edited = "\n".join("\t".join(row) for row in rows)
  seen = ask("/inspect", {"conllu": edited}).json()
  assert seen["heads"] == seen["heads_read_by_the_system"] == [0, 0, 0, 0]
  assert [row.split("\t")[3] for row in seen["conllu"].split("\n") if "\t" in row] == upos  # fmt: skip
  answer = ask("/translate", {"conllu": edited, "nbest": 3})
  assert answer.status_code == 200, answer.text
  (content,) = answer.json()["translations"]
  (expected,) = alone(parses_of_text(edited, "it"))
  assert_alike(content["nbest"], fields(expected))
  assert seen["nbest"][0]["text"] == content["text"] == seen["translation"]
  (parsed,) = alone([LINE])
  assert abs(parsed[0].score - content["nbest"][0]["score"]) > 1e-4
  # What came back says the same tree once more.
  (again,) = ask("/translate", {"conllu": seen["conllu"]}).json()[
    "translations"
  ]
  assert_alike(again["nbest"], fields(expected[:1]))


def test_inspection_is_that_of_the_command(ask, alone):
  answer = ask("/inspect", {"text": LINE})
  assert answer.headers["content-type"] == "application/json"
  document = answer.json()
  (seen,) = attention_of(alone, [LINE])
  expected = json.loads(json.dumps(fields_of(seen, 1)))
  assert document.keys() - expected.keys() == {"conllu", "nbest"}
  for name in expected.keys() - {"attention", "weightings"}:
    assert document[name] == expected[name], name
  for name in ("attention", "weightings"):
    assert document[name]
    for one, other in zip(document[name], expected[name], strict=True):
      np.testing.assert_allclose(
        one.pop("weights"), other.pop("weights"), atol=1e-5
      )
      assert one == other
  small_set = ask("/inspect", {"text": LINE, "layers": []}).json()
  assert small_set["attention"] == small_set["weightings"] == []
  assert small_set["words"] == LINE.split() and len(small_set["nbest"]) == 3


def test_ends_the_search_for_unwanted_sentences(alone):
  lines = [LINE, OTHER, "the cow runs ."]
  examples = alone.read(lines)
  checks = []

  def is_wanted(index):
    checks.append(index)
    return index != 1

  result = alone.search(examples, is_wanted=is_wanted)
  assert result[1] == [EMPTY_TRANSLATION]
  for index in (0, 2):
    assert_alike(fields(result[index]), fields(alone([lines[index]])[0]))
  assert set(checks) == {0, 1, 2}
  # One that becomes unwanted amid its search ends it.
  long = alone.read([LINE])
  request = Request(LINE, prefix="the cow sleeps . " * 20)
  checks = []
  result = alone.search(
    long,
    [alone.output_request(request)],
    is_wanted=lambda index: checks.append(0) or len(checks) < 3,
  )
  assert result == [[EMPTY_TRANSLATION]] and len(checks) == 3


def batches(ask):
  """Returns the number of batches of a run so far."""
  pattern = r'jaxsyn_batch_sentences_count{run="pascal"} (\S+)'
  matches = re.search(pattern, ask("/metrics").text)
  return float(matches[1]) if matches else 0


def test_fifty_clients_are_few_batches(ask, alone):
  """Results equal those without other clients; scores differ in the last digits."""
  count = batches(ask)
  lines = [LINE, OTHER, "the cow runs ."] * 17
  answers = ask.all([("/translate", {"text": line}) for line in lines[:50]])
  expected = dict(zip(lines[:3], alone(lines[:3])))
  for line, answer in zip(lines, answers):
    (content,) = answer.json()["translations"]
    assert_alike(content["nbest"], fields(expected[line][:1]))
  # 50 sentences, eight together at most: seven, and what came a little late.
  assert batches(ask) - count <= 12


def test_one_bad_sentence_spoils_no_other(ask, alone):
  """An error in a batch is reported only to its own client."""
  bad = {"requests": [{"text": LINE, "target_prefix": "雪"}]}
  requests = [{"text": LINE}, bad, {"text": OTHER}, bad, {"text": LINE}]
  answers = ask.all([("/translate", one) for one in requests])
  assert [answer.status_code for answer in answers] == [200, 422, 200, 422, 200]
  assert (
    answers[1]
    .json()["error"]
    .startswith("the prefix '雪' cannot be written with the subwords")
  )
  both = {"requests": [{"text": LINE}, *bad["requests"]]}
  error = ask("/translate", both).json()["error"]
  assert error.startswith("sentence 2: the prefix '雪'")
  lines = ask("/translate", both | {"stream": True}).text.splitlines()
  content = {one["index"]: one for one in map(json.loads, lines)}
  assert content[0]["text"] == alone([LINE])[0][0].text
  assert content[1]["error"].startswith("the prefix '雪'")


def test_streams_are_lines_as_they_come(ask, alone):
  answer = ask("/translate", {"texts": [LINE, OTHER] * 8, "stream": True})
  assert answer.headers["content-type"] == "application/x-ndjson"
  assert "content-length" not in answer.headers
  content = [json.loads(line) for line in answer.text.splitlines()]
  assert sorted(one["index"] for one in content) == [*range(16)]
  expected = alone([LINE, OTHER])
  for one in content:
    assert_alike(one["nbest"], fields(expected[one["index"] % 2][:1]))


def test_two_runs_have_names(ask, runs):
  document = ask("/runs").json()
  names = [run["name"] for run in document["runs"]]
  assert names == ["pascal", "deps_san"]
  first = document["runs"][0]
  assert first["folder"] == "pascal" and first["system"] == "pascal"
  assert first["tree"] == "parsed" and first["parser"] is True
  assert first["beam"] == first["nbest"] == 3
  assert first["layers"] == {"encoder": 1, "decoder": 1}
  assert first["languages"] == {"source": "en", "target": "qaa"}
  assert str(runs["pascal"].parent) not in ask("/runs").text
  other = Session(runs["deps_san"])([LINE])
  answer = ask("/translate", {"text": LINE, "run": "deps_san"}).json()
  assert answer["run"] == "deps_san"
  assert_alike(answer["translations"][0]["nbest"], fields(other[0]))
  answer = ask("/translate", {"text": LINE, "run": "pascl"})
  assert answer.status_code == 422
  assert "Did you mean 'pascal'?" in answer.json()["error"]
