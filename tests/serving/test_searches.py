"""Other searches and ensembles behind the server, and what is compiled before."""

import functools

import numpy as np
import pytest
from serving_client import LINE, OTHER, ServiceClient

from jaxsyn.serving import warm
from jaxsyn.serving.requests import ServiceLimits
from jaxsyn.serving.runs import RunLocation, ServedRun
from jaxsyn.serving.service import Service
from jaxsyn.session import Session


@pytest.fixture
def opened():
  """A function: a service of one run, and the run, which are closed."""
  services = []

  def make(*folders, **decode):
    run = ServedRun(RunLocation("it", tuple(map(str, folders))), decode=decode)
    service = Service([run], ServiceLimits(), max_sentences=8)
    service.state = "ok"
    services.append(service)
    service.worker.start()
    return ServiceClient(service), run

  yield make
  for service in services:
    service.close()
    service.worker.done.result(60)


def test_samples_depend_on_the_place_in_their_request(opened, runs):
  """Alone, or beside others that ask the same."""
  ask, run = opened(runs["pascal"], search="sample", nbest=2)
  assert run.max_nbest == 2
  request = ("/translate", {"texts": [LINE, LINE], "nbest": 2})
  pages = [answer.json()["translations"] for answer in ask.all([request] * 3)]
  session = Session(runs["pascal"], search="sample", nbest=2)
  expected = [[one.text for one in nbest] for nbest in session([LINE, LINE])]
  for page in pages:
    assert [
      [one["text"] for one in nbest["nbest"]] for nbest in page
    ] == expected
  assert expected[0] != expected[1]
  assert ask("/translate", {"text": LINE, "nbest": 3}).status_code == 422


def test_an_ensemble_translates_without_figures(opened, runs):
  folders = runs["pascal"], runs["deps_san"]
  ask, _ = opened(*folders)
  (run,) = ask("/runs").json()["runs"]
  assert (
    run["system"] == "pascal, deps_san" and run["folder"] == "pascal,deps_san"
  )
  ((best, *_),) = Session(list(folders), nbest=3)([LINE])
  (content,) = ask("/translate", {"text": LINE}).json()["translations"]
  assert content["text"] == best.text
  np.testing.assert_allclose(
    content["nbest"][0]["score"], best.score, rtol=1e-5
  )
  assert ask("/parse", {"text": LINE}).json()["parsed"] is True
  answer = ask("/inspect", {"text": LINE})
  assert answer.status_code == 422
  assert "an ensemble has no maps of its own" in answer.json()["error"]


def test_common_sizes_are_compiled_at_the_start(opened, runs):
  ask, run = opened(runs["pascal"], beam=2)
  messages = []
  warm.prepare(
    [*ask.service.worker.queues.values()], 16, lambda *one: messages.append(one)
  )
  assert messages == [(done, 4) for done in range(5)]
  session = run.session
  made = session.compilations
  assert made == 4  # to read and to search, of one place and of eight
  lines = [LINE, OTHER, "the cow runs ."]
  for index in (1, 3, 8):
    answer = ask("/translate", {"texts": [lines[i % 3] for i in range(index)]})
    assert answer.status_code == 200
  assert session.compilations == made


def test_a_short_sentence_is_ready_first_of_every_run(made, monkeypatch):
  """Of both runs alone, then several together, then longer ones likewise."""
  desks = [*made(works=False).service.worker.queues.values()]
  started = []

  def note(run, what, examples):
    subwords = max(run.session._translate.subwords(one) for one in examples)
    started.append((subwords > 16, len(examples), what, run.name))

  for run in (queue.run for queue in desks):
    for what in ("compile", "search"):
      message = functools.partial(note, run, what)
      monkeypatch.setattr(run.session, what, message)
    monkeypatch.setattr(
      run.inspector,
      "maps",
      lambda params, examples, _, run=run: note(run, "look", examples) or (),
    )
  warm.prepare(desks, 32)
  assert [one[:2] for one in started] == sorted(one[:2] for one in started)
  single = {
    (False, 1, what, queue.run.name)
    for queue in desks
    for what in ("compile", "look")
  }
  assert set(started[:4]) == single
  assert {name for *_, name in started[4:6]} == {
    queue.run.name for queue in desks
  }
  assert started[-1][0] and started[-1][1] == 8
