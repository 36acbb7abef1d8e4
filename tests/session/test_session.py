"""Ensembles, forced scores, samples and prefixes of trained runs."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from jaxsyn import translate
from jaxsyn.data.sentence import vocabulary
from jaxsyn.data.sentence.vocabulary import Subwords
from jaxsyn.decode.requests import Request
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.storage import checksums, files

LINES = [
  "the duck that a farmer saw will arrive .",
  "a cow sleeps .",
  "the farmer saw a duck and the cow .",
]


def numbers(nbest):
  return [[one.score, one.log_p] for one in nbest]


def assert_close(result, expected, atol=1e-5):
  for one, other in zip(result, expected, strict=True):
    assert [best.ids for best in one] == [best.ids for best in other]
    np.testing.assert_allclose(numbers(one), numbers(other), atol=atol)


@pytest.fixture(scope="module")
def single(runs):
  return Session(runs["pascal"], nbest=3)


def test_ensemble_of_one_run_equals_the_run(runs, single):
  twice = Session([runs["pascal"]] * 2, weights=[3, 1], nbest=3)
  assert_close(twice(LINES), single(LINES))
  targets = ["ein", "der Hund", ""]
  for one, other in zip(
    twice.force(LINES, targets), single.force(LINES, targets), strict=True
  ):
    assert one.subwords == other.subwords
    np.testing.assert_allclose(one.log_p, other.log_p, atol=1e-5)


def test_ensemble_is_the_normalized_weighted_sum_of_log_probabilities(runs):
  """The architectures and features of the members differ."""
  names = ["pascal", "gru_global", "deps_san"]
  weights = np.array([0.5, 0.3, 0.2])
  combined = Session([runs[n] for n in names], weights=10 * weights)
  members = [Session(runs[name]) for name in names]
  ((best,),) = combined(LINES[:1])
  (forced,) = combined.force(LINES[:1], [best.ids])
  V = combined.sources.vocabularies[1].size
  for position in range(2):
    # Log probability of every possible subword under each member.
    inputs = [[*best.ids[:position], token] for token in range(V)]
    each = [
      [one.log_p[position] for one in session.force(LINES[:1] * V, inputs)]
      for session in members
    ]
    mixed_V = weights @ np.array(each)
    mixed_V -= np.log(np.exp(mixed_V).sum())
    np.testing.assert_allclose(
      forced.log_p[position], mixed_V[best.ids[position]], atol=1e-4
    )
    assert np.ptp(np.array(each)[:, best.ids[position]]) > 0.01


def test_forced_scores_equal_those_of_the_search(runs, single):
  ensemble = Session([runs["pascal"], runs["gru_global"]], nbest=3)
  for session in (single, ensemble):
    result = session(LINES)
    lines = [line for line, nbest in zip(LINES, result) for _ in nbest]
    best = [one for nbest in result for one in nbest]
    scored = session.force(lines, [one.ids for one in best])
    np.testing.assert_allclose(
      [[one.score, one.total] for one in scored], numbers(best), atol=1e-4
    )
    for one, other in zip(scored, best):
      assert one.total == pytest.approx(sum(one.log_p), abs=1e-5)
      assert len(one.log_p) == len(one.subwords) == len(other.ids) + 1
      assert one.subwords[-1] == "</s>"


def test_members_of_an_ensemble_can_be_checkpoints(runs):
  folder = runs["pascal"]
  both = Session([f"{folder}@10", f"{folder}@20"])
  assert both.chosen == "the checkpoint of step 10; the checkpoint of step 20"
  first, second = Session(f"{folder}@10"), Session(folder, checkpoint="20")
  log_p = [
    session.force(LINES[:1], [[7, 8]])[0].log_p for session in (first, second)
  ]
  assert np.abs(np.diff(log_p, axis=0)).max() > 1e-4


def test_ensemble_has_one_example_per_run(runs):
  names = ["pascal", "deps_san", "gru_global"]
  examples = Session([runs[name] for name in names]).read(LINES)
  assert [len(example) for example in examples] == [3] * 3
  for example, other in zip(examples, Session(runs["deps_san"]).read(LINES)):
    assert example[1].keys() == other.keys()
    for name in other:
      np.testing.assert_array_equal(example[1][name], other[name])


def test_rejects_invalid_weights_and_other_vocabularies(runs, tmp_path):
  with pytest.raises(InputError, match=r"1 weights for 2 runs"):
    Session([runs["pascal"]] * 2, weights=[1])
  with pytest.raises(InputError, match=r"weight -1.0 of a run must be above 0"):
    Session([runs["pascal"]] * 2, weights=[1, -1])
  other = shutil.copytree(runs["deps_san"], tmp_path / "other")
  manifest = checksums.verify_checksum(files.read_json(other / "manifest.json"))
  size = manifest["vocabulary"]["target"]["size"]
  trained = vocabulary.train(
    [f"w{i} x{i}" for i in range(200)],
    other / "vocabulary.model",
    Subwords(size=size, type="word"),
  )
  for side in ("source", "target"):
    entry = manifest["vocabulary"][side]
    entry.update(sha256=trained.sha256, size=trained.size)
  files.write_json(other / "manifest.json", checksums.add_checksum(manifest))
  message = rf"{runs['pascal']} and {other} have other target vocabularies"
  with pytest.raises(InputError, match=message):
    Session([runs["pascal"], other])


def test_samples_depend_on_seed_and_index_only(runs):
  options = {"search": "sample", "nbest": 4, "sample": {"seed": 5}}
  session = Session(runs["pascal"], **options)
  lines = [*LINES, "", LINES[0]]
  result = list(translate.run(session, lines))
  in_small_blocks = list(translate.run(session, lines, buffer=2))
  for one, other in zip(result, in_small_blocks):
    assert [best.text for best in one] == [best.text for best in other]
  assert result[0] != result[4]  # the same line with another index
  again = session([Request(LINES[0], index=4)])
  assert [best.ids for best in again[0]] == [best.ids for best in result[4]]
  (fewer,) = Session(runs["pascal"], **options | {"nbest": 2})(LINES[:1])
  assert [best.ids for best in fewer] == [best.ids for best in result[0][:2]]
  scored = session.force([LINES[0]] * 4, [best.ids for best in result[0]])
  np.testing.assert_allclose(
    [one.total for one in scored], [b.log_p for b in result[0]], atol=1e-4
  )


def test_limits_the_output_positions_of_a_prefix(runs):
  """A small length factor allows as many as the longest source has subwords."""
  session = Session(runs["pascal"], beam=1, max_length_factor=0.1)
  prefix = "the cow sleeps . " * 20
  positions = session.output_request(Request(LINES[0], prefix)).positions
  assert session.plan.config.decode.max_length_offset + 52 < positions <= 512
  ((best,),) = session([Request(LINES[0], prefix)])
  assert best.text.startswith(prefix.strip())
  message = r"needs up to [\d,]+ output positions; at most 512\. Shorten it"
  with pytest.raises(InputError, match=message):
    session.output_request(Request(LINES[0], prefix * 9))
  usual = Session(runs["pascal"], max_length_factor=1.5, max_length_offset=10)
  # Each character of the last word is a position.
  long = usual.output_request(Request(LINES[0], "a" * 775))
  assert 770 < long.positions <= 778
  message = "needs up to 2,002 output positions; at most 778"
  with pytest.raises(InputError, match=message):
    usual.output_request(Request(LINES[0], "a" * 2000))


def test_command_scores_given_translations(runs, single, tmp_path, environment):
  source, target = tmp_path / "a.en", tmp_path / "a.de"
  source.write_text("\n".join(LINES) + "\n")

  def score(hypotheses, *options):
    target.write_text(hypotheses)
    return subprocess.run(
      [
        sys.executable,
        "-m",
        "jaxsyn.score",
        "--force",
        f"--workdir={runs['pascal']}",
        f"--source={source}",
        f"--hypothesis={target}",
        *options,
      ],
      env=environment,
      capture_output=True,
      text=True,
    )

  texts = ["ein Hund", "", "der der"]
  done = score("\n".join(texts) + "\n")
  assert done.returncode == 0, done.stderr
  expected = single.force(LINES, texts)
  rows = [line.split("\t") for line in done.stdout.splitlines()]
  assert [row[0] for row in rows] == ["0", "1", "2"]
  for row, one in zip(rows, expected):
    assert float(row[1]) == pytest.approx(one.total, abs=1e-4)
    assert float(row[2]) == pytest.approx(one.score, abs=1e-4)
    assert int(row[3]) == len(one.log_p)
  nbest = "2 ||| der der ||| -1\n0 ||| ein Hund ||| x= 1 ||| -2\n"
  done = score(nbest, "--nbest_list", "--json")
  output = [json.loads(line) for line in done.stdout.splitlines()]
  assert [one["line"] for one in output] == [2, 0]
  assert output[1]["text"] == "ein Hund"
  for one, index in zip(output, (2, 0)):
    pieces, log_p = zip(*one["subwords"])
    assert pieces == expected[index].subwords
    np.testing.assert_allclose(log_p, expected[index].log_p, atol=1e-4)
  done = score("7 ||| der\n", "--nbest_list")
  assert done.returncode == 2
  assert "of line 7, but there are 3 sources" in done.stderr
