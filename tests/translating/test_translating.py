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
from jaxsyn.translating.alignments import Aligner, replaced
from jaxsyn.translating.finishing import Finish

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINES = ["the duck arrives .", "a cow sleeps .", "the farmer saw a cow ."]
PREFIX, MUST, AVOID = "faner na", ("natun zasen", "tutol"), ("kamu", "sima")


@pytest.fixture(scope="module")
def session(runs):
  return Session(runs["pascal"], nbest=3)


def assert_alike(found, expected):
  for one, other in zip(found, expected, strict=True):
    assert [best.ids for best in one] == [best.ids for best in other]
    np.testing.assert_allclose(
      [best.score for best in one], [best.score for best in other], atol=1e-5
    )


def test_constraints_affect_only_their_lines(session):
  requests = [
    Request(LINES[0], prefix=PREFIX),
    Request(LINES[1]),
    Request(LINES[2], constraints=MUST),
    Request(LINES[0], avoid=AVOID),
    Request(""),
    Request(LINES[1], prefix=PREFIX, constraints=MUST, avoid=AVOID),
  ]
  result = session(requests)
  plain = session(LINES)
  assert_alike(result[1:2], plain[1:2])
  assert result[4] == [EMPTY_TRANSLATION]
  for request, nbest in zip(requests, result, strict=True):
    if not request.source:
      continue
    assert 1 <= len(nbest) <= 3  # not all have met what they must
    for one in nbest:
      assert one.text.startswith(request.prefix)
      for phrase in request.constraints:
        assert phrase in one.text
  scored = session.force(
    [LINES[1]] * len(result[5]), [one.ids for one in result[5]]
  )
  np.testing.assert_allclose(
    [one.total for one in scored], [one.log_p for one in result[5]], atol=1e-4
  )
  # A line is found alike alone and beside others.
  for request, nbest in zip(requests, result, strict=True):
    assert_alike(session([request]), [nbest])


def test_samples_avoid_given_words(runs):
  options = {"search": "sample", "sample": {"temperature": 2.0}}
  session = Session(runs["pascal"], nbest=20, **options)
  ids_of = session.sources.vocabularies[1].ids

  def holds(one, phrase):
    size = len(phrase)
    return any(
      list(one.ids[at : at + size]) == phrase for at in range(len(one.ids))
    )

  (nbest,) = session(LINES[:1])
  words = {word for one in nbest for word in one.text.split()}
  present = [
    word for word in sorted(words) if any(holds(o, ids_of(word)) for o in nbest)
  ]
  assert len(present) > 3
  (other,) = session([Request(LINES[0], avoid=tuple(present))])
  assert not any(holds(one, ids_of(word)) for one in other for word in present)
  for one, new in zip(nbest, other, strict=True):
    if not any(holds(one, ids_of(word)) for word in present):
      assert one.ids == new.ids  # drawn alike where nothing was to be avoided


@pytest.mark.parametrize(
  "request_, message",
  [
    (Request("a", prefix="☃"), r"line 5 of the input: the prefix '☃' cannot"),
    (Request("a", constraints=("☃",)), r"line 5 of .* constraint '☃' cannot"),
    (Request("a", constraints=(" ",)), r"the target vocabulary: it is empty"),
    (
      Request("a", constraints=("kamu sima",), avoid=("sima",)),
      r"the constraint 'kamu sima' has 'sima' in it, which is to be avoided",
    ),
  ],
)
def test_errors_of_requests_name_the_line(session, request_, message):
  inputs = [*LINES, "", request_]
  with pytest.raises(InputError, match=message):
    session(inputs)


def test_constraints_are_for_a_beam(runs):
  sampling = Session(runs["pascal"], search="sample")
  with pytest.raises(InputError, match=r"for the search 'beam', not .*sample"):
    sampling([Request("a", constraints=("kamu",))])
  ((one,),) = sampling([Request(LINES[0], prefix=PREFIX)])
  assert one.text.startswith(PREFIX)


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
  text = replaced(one.text, aligned.unknown)
  assert "⁇" in one.text and "⁇" not in text
  assert text.split() == [aligned.unknown[0], "kamu", aligned.unknown[1]]
  assert replaced("⁇ a ⁇", ("b",)) == "b a ⁇"


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
    {"text": LINES[1], "constraints": list(MUST)},
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
      Request(LINES[1], constraints=MUST),
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
    (["--mbr", 3, "--search", "beam"], "--mbr is of samples: leave out"),
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
    json.dumps({"text": "a", "constraints": ["雪"]}),
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
    "8 of the lines could not be translated (--errors skip); the first: standard "
    "input:1: the line is nested more than 100 levels deep."
  ) in done.stderr
  done = command(*flags[:3], text=f"{good}\n{bad[1]}\n")
  assert done.returncode == 2
  assert done.stdout == f"{best}\n"
  assert "standard input:2: the line has half of a surrogate" in done.stderr
  assert "Traceback" not in done.stderr
