"""What lines ask of translations, and links, through a session and the command."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from jaxsyn import translate
from jaxsyn.data.schema import UNK
from jaxsyn.decode.requests import Request
from jaxsyn.decode.translator import EMPTY_TRANSLATION
from jaxsyn.errors import InputError
from jaxsyn.inspection.inspector import attention_of
from jaxsyn.session import Session
from jaxsyn.session.alignments import Aligner, replace_unknown
from jaxsyn.session.finishing import Finish

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINES = ["the duck arrives .", "a cow sleeps .", "the farmer saw a cow ."]
PREFIX = "faner na"


@pytest.fixture(scope="module")
def session(runs):
  return Session(runs["pascal"], nbest=3)


def assert_alike(found, expected):
  for one, other in zip(found, expected, strict=True):
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
  plain = session(LINES)
  assert_alike(result[1:2], plain[1:2])
  assert result[2] == [EMPTY_TRANSLATION]
  for request, nbest in zip(requests, result, strict=True):
    if not request.source:
      continue
    assert 1 <= len(nbest) <= 3
    for one in nbest:
      assert one.text.startswith(request.prefix)
  scored = session.force(
    [LINES[1]] * len(result[3]), [one.ids for one in result[3]]
  )
  np.testing.assert_allclose(
    [one.total for one in scored], [one.log_p for one in result[3]], atol=1e-4
  )
  # A line is found alike alone and beside others.
  for request, nbest in zip(requests, result, strict=True):
    assert_alike(session([request]), [nbest])


def test_names_the_line_of_a_prefix_that_cannot_be_written(session):
  message = r"line 5 of the input: the prefix '☃' cannot"
  with pytest.raises(InputError, match=message):
    session([*LINES, "", Request("a", prefix="☃")])


@pytest.mark.parametrize("system", ["pascal", "gru_global"])
def test_links_are_those_of_the_pooled_maps(runs, system):
  # By chance, so that they have several words after so little training.
  options = {"search": "sample", "sample": {"temperature": 2.0}}
  session = Session(runs[system], **options)
  seen = attention_of(session, LINES)
  result = list(
    translate.run(session, LINES, finish=Finish(session, links=True))
  )
  for one, (best,) in zip(seen, result, strict=True):
    assert one.translation == best.text
    maps = [m for m in one.attention if m.place == "cross"]
    weight_RC = np.concatenate([m.value_HQM for m in maps]).mean(0)
    words = len(best.text.split())
    assert words > 1
    expected = weight_RC[:words, :-1].argmax(1)  # without EOS
    assert best.links == tuple((int(i), j) for j, i in enumerate(expected))


def test_an_ensemble_is_linked_by_the_mean(runs):
  sessions = [Session(runs[name]) for name in ("pascal", "deps_san")]
  both = Session([runs["pascal"], runs["deps_san"]], weights=[3, 1])
  (nbest,) = both(LINES[:1])

  def weights(session):
    aligner, saved = Aligner(session), []
    aligner._aligned = lambda weight, *_: saved.append(weight)
    requests = [Request(LINES[0])]
    aligner(requests, session.begin_examples(LINES[:1])(), nbest[:1])
    return saved[0]

  one, other = map(weights, sessions)
  np.testing.assert_allclose(
    weights(both), 0.75 * one + 0.25 * other, atol=1e-6
  )


def test_unknown_words_are_those_of_the_source(session):
  vocabulary = session.sources.vocabularies[1]
  (nbest,) = session(LINES[:1])
  ids = (UNK, *vocabulary.ids("kamu"), UNK)
  one = dataclasses.replace(nbest[0], ids=ids, text=vocabulary.decode(ids))
  examples = session.begin_examples(LINES[:1])()
  (aligned,) = Aligner(session)([Request(LINES[0])], examples, [one])
  assert len(aligned.unknown) == 2
  assert set(aligned.unknown) <= set(LINES[0].split())
  text = replace_unknown(one.text, aligned.unknown)
  assert "⁇" in one.text and "⁇" not in text
  assert text.split() == [aligned.unknown[0], "kamu", aligned.unknown[1]]
  assert replace_unknown("⁇ a ⁇", ("b",)) == "b a ⁇"


def test_a_layer_that_is_not_there_is_told(session):
  with pytest.raises(
    InputError, match=r"--alignment_layer=1: the decoder of .* has 1 layers"
  ):
    Aligner(session, 1)


def command(*arguments, text):
  return subprocess.run(
    [sys.executable, "-m", "jaxsyn.translate", *map(str, arguments)],
    cwd=ROOT,
    input=text,
    capture_output=True,
    text=True,
  )


def test_the_command(runs, session):
  requests = [
    {"text": LINES[0], "target_prefix": PREFIX},
    {"text": LINES[1], "target_prefix": "kamu "},
  ]
  text = "".join(f"{json.dumps(one)}\n" for one in requests)
  done = command(
    *("--workdir", runs["pascal"], "--json", "--nbest", 3, "--alignments"),
    text=text,
  )
  assert done.returncode == 0, done.stderr
  rows = [line.split(" ||| ") for line in done.stdout.splitlines()]
  result = session(
    [
      Request(LINES[0], prefix=PREFIX),
      Request(LINES[1], prefix="kamu "),
    ]
  )
  expected = [one for nbest in result for one in nbest]
  assert [row[:2] for row in rows] == [
    [str(i // 3), one.text] for i, one in enumerate(expected)
  ]
  for _, words, _, links in rows:
    pairs = [tuple(map(int, pair.split("-"))) for pair in links.split()]
    assert [j for _, j in pairs] == list(range(len(words.split())))
    assert all(0 <= i < 4 for i, _ in pairs)
  done = command(
    *("--workdir", runs["pascal"], "--mbr", 6, "--scores", "--seed", 2),
    text=f"{LINES[0]}\n",
  )
  assert done.returncode == 0, done.stderr
  sampled = Session(
    runs["pascal"], search="sample", nbest=6, sample={"seed": 2}
  )
  (best,) = translate.run(sampled, LINES[:1], finish=Finish(sampled, mbr=True))
  assert done.stdout == f"{best[0].text}\t{best[0].score:.4f}\n"


@pytest.mark.parametrize(
  "flags, message",
  [
    (["--temperature", 2], "--temperature is for --search sample; here it is"),
    (["--mbr", 3, "--search", "beam"], "--mbr needs samples: omit"),
    (["--mbr", 3, "--nbest", 5], "--nbest=5 is more than --mbr=3 samples"),
    (["--search", "diverse", "--groups", 2], "groups=2 must divide .*beam=3"),
  ],
)
def test_flags_that_do_not_fit_are_told(runs, flags, message):
  done = command("--workdir", runs["pascal"], *flags, text="")
  assert done.returncode == 2
  assert message.split(".*")[0] in done.stderr and "Trace" not in done.stderr


def test_skips_bad_lines_of_json_and_translates_the_rest(runs, session):
  good = json.dumps({"text": LINES[1]})
  bad = [
    "[" * 100_000,
    '{"text": "a\\ud800"}',
    '{"text": "a", "text": "b"}',
    '{"text": "a\\u0000"}',
    '{"text": "a\\nb"}',
    json.dumps({"text": "a", "target_prefix": "a" * 180_000}),
    json.dumps({"text": "a", "target_prefix": "雪"}),
  ]
  text = "".join(f"{line}\n{good}\n" for line in bad)
  flags = ("--workdir", runs["pascal"], "--json", "--errors", "skip")
  done = command(*flags, text=text)
  assert done.returncode == 0, done.stderr
  best = session([LINES[1]])[0][0].text
  assert done.stdout.splitlines() == ["", best] * len(bad)
  assert "Traceback" not in done.stderr
  assert (
    "7 of the lines could not be translated (--errors skip); the first: standard "
    "input:1: the line is nested more than 100 levels deep."
  ) in done.stderr
  done = command(*flags[:3], text=f"{good}\n{bad[1]}\n")
  assert done.returncode == 2
  assert done.stdout == f"{best}\n"
  assert "standard input:2: the line has half of a surrogate" in done.stderr
  assert "Traceback" not in done.stderr
