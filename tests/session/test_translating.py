"""Prefixes and JSON lines, in Python and with the command."""

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxsyn import translate
from jaxsyn.decode.requests import Request
from jaxsyn.decode.translator import EMPTY_TRANSLATION
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.session.finishing import Finish

LINES = ["the duck arrives .", "a cow sleeps .", "the farmer saw a cow ."]
PREFIX = "faner na"


@pytest.fixture(scope="module")
def session(runs):
  return Session(runs["pascal"], nbest=3)


@pytest.fixture
def command(runs, environment):
  def run(*arguments, text=""):
    words = ["--workdir", runs["pascal"], *arguments]
    return subprocess.run(
      [sys.executable, "-m", "jaxsyn.translate", *map(str, words)],
      env=environment,
      input=text,
      capture_output=True,
      text=True,
    )

  return run


def assert_close(result, expected):
  for one, other in zip(result, expected, strict=True):
    assert [best.ids for best in one] == [best.ids for best in other]
    np.testing.assert_allclose(
      [best.score for best in one], [best.score for best in other], atol=1e-5
    )


def test_prefixes_affect_only_their_own_lines(session):
  requests = [
    Request(LINES[0], prefix=PREFIX),
    Request(LINES[1]),
    Request(""),
    Request(LINES[1], prefix=PREFIX),
  ]
  result = session(requests)
  assert_close(result[1:2], session(LINES)[1:2])
  assert result[2] == [EMPTY_TRANSLATION]
  for request, nbest in zip(requests, result, strict=True):
    if request.source:
      assert 1 <= len(nbest) <= 3
      assert all(one.text.startswith(request.prefix) for one in nbest)
    assert_close(session([request]), [nbest])  # alone as in a batch
  scored = session.force(
    [LINES[1]] * len(result[3]), [one.ids for one in result[3]]
  )
  np.testing.assert_allclose(
    [one.total for one in scored], [one.log_p for one in result[3]], atol=1e-4
  )


def test_names_the_line_of_an_invalid_prefix(session):
  message = r"line 5 of the input: the prefix '☃' cannot"
  with pytest.raises(InputError, match=message):
    session([*LINES, "", Request("a", prefix="☃")])


def test_command_prints_nbest_lists_and_alignments(command, session):
  requests = [
    {"text": LINES[0], "target_prefix": PREFIX},
    {"text": LINES[1], "target_prefix": "kamu "},
  ]
  text = "".join(f"{json.dumps(one)}\n" for one in requests)
  done = command("--json", "--nbest", 3, "--alignments", text=text)
  assert done.returncode == 0, done.stderr
  rows = [line.split(" ||| ") for line in done.stdout.splitlines()]
  result = session(
    [Request(LINES[0], prefix=PREFIX), Request(LINES[1], prefix="kamu ")]
  )
  expected = [one for nbest in result for one in nbest]
  assert [row[:2] for row in rows] == [
    [str(i // 3), one.text] for i, one in enumerate(expected)
  ]
  for _, words, _, links in rows:
    pairs = [tuple(map(int, pair.split("-"))) for pair in links.split()]
    assert [j for _, j in pairs] == list(range(len(words.split())))
    assert all(0 <= i < 4 for i, _ in pairs)


def test_command_decodes_by_minimum_bayes_risk(runs, command):
  done = command("--mbr", 6, "--scores", "--seed", 2, text=f"{LINES[0]}\n")
  assert done.returncode == 0, done.stderr
  options = {"search": "sample", "nbest": 6, "sample": {"seed": 2}}
  sampled = Session(runs["pascal"], **options)
  (best,) = translate.run(sampled, LINES[:1], finish=Finish(sampled, mbr=True))
  assert done.stdout == f"{best[0].text}\t{best[0].score:.4f}\n"


@pytest.mark.parametrize(
  "flags, message",
  [
    (["--temperature", 2], "--temperature is for --search sample; here it is"),
    (["--mbr", 3, "--search", "beam"], "--mbr needs samples: omit"),
    (["--mbr", 3, "--nbest", 5], "--nbest=5 is more than --mbr=3 samples"),
    (["--search", "diverse", "--groups", 2], "groups=2 must divide"),
  ],
)
def test_rejects_incompatible_flags(command, flags, message):
  done = command(*flags)
  assert done.returncode == 2
  assert message in done.stderr and "Traceback" not in done.stderr


def test_skips_invalid_lines_and_translates_the_others(command, session):
  good = json.dumps({"text": LINES[1]})
  bad = [
    "[" * 100_000,
    '{"text": "a\\ud800"}',
    json.dumps({"text": "a", "target_prefix": "a" * 180_000}),
    json.dumps({"text": "a", "target_prefix": "雪"}),
  ]
  text = "".join(f"{line}\n{good}\n" for line in bad)
  done = command("--json", "--errors", "skip", text=text)
  assert done.returncode == 0, done.stderr
  best = session([LINES[1]])[0][0].text
  assert done.stdout.splitlines() == ["", best] * len(bad)
  assert "Traceback" not in done.stderr
  assert (
    "4 of the lines could not be translated (--errors skip); the first: standard "
    "input:1: the line is nested more than 100 levels deep."
  ) in done.stderr
  for line, message in (
    (bad[1], "standard input:2: the line has half of a surrogate"),
    (bad[3], "line 2 of the input: the prefix '雪' cannot"),
  ):
    done = command("--json", text=f"{good}\n{line}\n")
    assert done.returncode == 2
    assert done.stdout == f"{best}\n"
    assert message in done.stderr and "Traceback" not in done.stderr
