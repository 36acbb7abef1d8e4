"""The command `jaxsyn translate` with JSON lines, and its flags of decoding."""

import json

import pytest
from command_flags import parsed

from jaxsyn import translate
from jaxsyn.decode.requests import Request
from jaxsyn.errors import InputError
from jaxsyn.session import Session, search_flags
from jaxsyn.session.finishing import Finish

LINES = ["the duck arrives .", "a cow sleeps ."]


@pytest.fixture
def command(runs, tmp_path):
  """A function that translates a text with given flags to lines."""
  source, target = tmp_path / "input", tmp_path / "output"

  def run(text, *words):
    source.write_text(text)
    files = f"--input={source}", f"--output={target}"
    folder = f"--workdir={runs['pascal']}"
    with parsed(translate, folder, *files, *words) as values:
      translate._translate(values)
    return target.read_text().splitlines()

  return run


def test_prints_nbest_lists_and_alignments(command, runs):
  requests = [Request(LINES[0], "faner na"), Request(LINES[1], "kamu ")]
  text = "".join(
    json.dumps({"text": one.source, "target_prefix": one.prefix}) + "\n"
    for one in requests
  )
  rows = [
    line.split(" ||| ")
    for line in command(text, "--json", "--nbest=3", "--alignments")
  ]
  result = Session(runs["pascal"], nbest=3)(requests)
  assert [row[:3] for row in rows] == [
    [str(line), one.text, f"{one.score:.4f}"]
    for line, nbest in enumerate(result)
    for one in nbest
  ]
  for _, words, _, links in rows:
    pairs = [tuple(map(int, pair.split("-"))) for pair in links.split()]
    assert [j for _, j in pairs] == list(range(len(words.split())))
    assert all(0 <= i < 4 for i, _ in pairs)


def test_decodes_by_minimum_bayes_risk(command, runs):
  flags = ("--mbr=6", "--scores", "--seed=2")
  (line,) = command(f"{LINES[0]}\n", *flags)
  options = {"search": "sample", "nbest": 6, "sample": {"seed": 2}}
  sampled = Session(runs["pascal"], **options)
  ((best,),) = translate.run(
    sampled, LINES[:1], finish=Finish(sampled, mbr=True)
  )
  assert line == f"{best.text}\t{best.score:.4f}"


def test_skips_invalid_lines_and_translates_the_others(command, runs, capsys):
  good = json.dumps({"text": LINES[1]})
  bad = [
    "[" * 100_000,
    '{"text": "a\\ud800"}',
    json.dumps({"text": "a", "target_prefix": "a" * 180_000}),
    json.dumps({"text": "a", "target_prefix": "雪"}),
  ]
  text = "".join(f"{line}\n{good}\n" for line in bad)
  best = Session(runs["pascal"])([LINES[1]])[0][0].text
  assert command(text, "--json", "--errors=skip") == ["", best] * len(bad)
  message = "4 lines could not be translated (--errors skip); the first: "
  assert message in capsys.readouterr().err
  with pytest.raises(InputError, match=r"line 2 of the input: the prefix '雪'"):
    command(f"{good}\n{bad[3]}\n", "--json")


@pytest.mark.parametrize(
  "words, message",
  [
    (["--temperature=2"], "--temperature is for --search sample; here it is"),
    (["--mbr=3", "--search=beam"], "--mbr needs samples: omit"),
    (["--mbr=3", "--nbest=5"], "--nbest=5 is more than --mbr=3 samples"),
    (["--search=diverse", "--groups=2"], "groups=2 must divide"),
    (["--ensemble=a", "--weights=x,1"], "--weights=x,1: numbers"),
  ],
)
def test_rejects_incompatible_flags(runs, words, message):
  folder = f"--workdir={runs['pascal']}"
  rejected = pytest.raises(InputError, match=message)
  with parsed(translate, folder, *words) as values, rejected:
    search_flags.session_of(values)
