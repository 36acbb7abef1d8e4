"""Ensembles, forced scores, samples and prefixes of trained runs."""

import json
import shutil

import numpy as np
import pytest
from command_flags import parsed

from jaxsyn import score, translate
from jaxsyn.data.sentence import vocabulary
from jaxsyn.data.sentence.vocabulary import Subwords
from jaxsyn.decode.requests import Request
from jaxsyn.decode.translator import EMPTY_TRANSLATION
from jaxsyn.errors import InputError
from jaxsyn.session import Session, forcing
from jaxsyn.session.alignments import Aligner
from jaxsyn.storage import checksums, files

LINES = [
  "the duck that a farmer saw will arrive .",
  "a cow sleeps .",
  "the farmer saw a duck and the cow .",
]


def assert_close(result, expected):
  for one, other in zip(result, expected, strict=True):
    assert [best.ids for best in one] == [best.ids for best in other]
    np.testing.assert_allclose(
      [(best.score, best.log_p) for best in one],
      [(best.score, best.log_p) for best in other],
      atol=1e-5,
    )


@pytest.fixture(scope="module")
def single(runs):
  return Session(runs["pascal"], nbest=3)


@pytest.fixture(scope="module")
def members(runs):
  """Sessions whose architectures and features differ."""
  return [Session(runs[name]) for name in ("pascal", "gru_global")]


@pytest.fixture(scope="module")
def ensemble(members):
  folders = [member.run.workdir for member in members]
  return Session(folders, weights=[3, 1], nbest=2)


def test_ensemble_is_the_normalized_weighted_sum_of_log_probabilities(
  members, ensemble
):
  ((best, _),) = ensemble(LINES[:1])
  (forced,) = ensemble.force(LINES[:1], [best.ids])
  V = ensemble.sources.vocabularies[1].size
  # Log probability of every possible second subword under each member.
  targets = [[best.ids[0], token] for token in range(V)]
  each = [
    [one.log_p[1] for one in member.force(LINES[:1] * V, targets)]
    for member in members
  ]
  mixed_V = np.array([0.75, 0.25]) @ np.array(each)
  mixed_V -= np.log(np.exp(mixed_V).sum())
  token = best.ids[1]
  np.testing.assert_allclose(forced.log_p[1], mixed_V[token], atol=1e-4)
  assert np.ptp(np.array(each)[:, token]) > 0.01


def test_ensemble_aligns_by_the_weighted_mean(members, ensemble):
  (nbest,) = ensemble(LINES[:1])

  def weights(session):
    examples = session.read(LINES[:1])
    return Aligner(session).weights(LINES[:1], examples, nbest[:1])[0]

  expected = 0.75 * weights(members[0]) + 0.25 * weights(members[1])
  np.testing.assert_allclose(weights(ensemble), expected, atol=1e-6)


def test_forced_scores_equal_those_of_the_search(single, ensemble):
  for session in (single, ensemble):
    result = session(LINES)
    lines = [line for line, nbest in zip(LINES, result) for _ in nbest]
    best = [one for nbest in result for one in nbest]
    scored = session.force(lines, [one.ids for one in best])
    np.testing.assert_allclose(
      [(one.score, one.total) for one in scored],
      [(one.score, one.log_p) for one in best],
      atol=1e-4,
    )
    for one, other in zip(scored, best):
      assert one.total == pytest.approx(sum(one.log_p), abs=1e-5)
      assert len(one.log_p) == len(one.subwords) == len(other.ids) + 1
      assert one.subwords[-1] == "</s>"


def test_members_of_an_ensemble_can_be_checkpoints(runs):
  folder = runs["pascal"]
  both = Session([f"{folder}@10", f"{folder}@20"])
  assert both.chosen == "the checkpoint of step 10; the checkpoint of step 20"
  log_p = [
    session.force(LINES[:1], [[7, 8]])[0].log_p
    for session in (Session(f"{folder}@10"), Session(folder, checkpoint="20"))
  ]
  assert np.abs(np.diff(log_p, axis=0)).max() > 1e-4


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
  result, in_small_blocks = (
    [
      [best.text for best in one]
      for one in translate.run(session, lines, **more)
    ]
    for more in ({}, {"buffer": 2})
  )
  assert result == in_small_blocks
  assert result[0] != result[4]  # the same line with another index
  again = session([Request(LINES[0], index=4)])
  assert [best.text for best in again[0]] == result[4]


def test_prefixes_affect_only_their_own_lines(single):
  prefix = "faner na"
  requests = [
    Request(LINES[0], prefix=prefix),
    Request(LINES[1]),
    Request(""),
    Request(LINES[1], prefix=prefix),
  ]
  result = single(requests)
  assert_close(result[1:2], single(LINES)[1:2])
  assert result[2] == [EMPTY_TRANSLATION]
  for request, nbest in zip(requests, result, strict=True):
    assert all(one.text.startswith(request.prefix) for one in nbest)
  assert_close(single(requests[3:]), result[3:])  # alone as in a batch
  scored = single.force(
    [LINES[1]] * len(result[3]), [one.ids for one in result[3]]
  )
  np.testing.assert_allclose(
    [one.total for one in scored], [one.log_p for one in result[3]], atol=1e-4
  )
  with pytest.raises(InputError, match="the prefix '☃'"):
    single([LINES[0], Request("a", prefix="☃")])


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
  message = "needs up to 2,002 output positions; at most 778"
  with pytest.raises(InputError, match=message):
    usual.output_request(Request(LINES[0], "a" * 2000))


@pytest.fixture
def force(runs, tmp_path, capsys):
  """A function that scores hypotheses with `jaxsyn score --force`."""
  source, target = tmp_path / "a.en", tmp_path / "a.de"
  source.write_text("\n".join(LINES) + "\n")

  def run(hypotheses, *options):
    target.write_text(hypotheses)
    paths = f"--source={source}", f"--hypothesis={target}"
    folder = f"--workdir={runs['pascal']}"
    with parsed(score, "--force", folder, *paths, *options) as values:
      forcing.main(values)
    return capsys.readouterr().out.splitlines()

  return run


def test_command_scores_given_translations(force, single):
  texts = ["ein Hund", "", "der der"]
  expected = single.force(LINES, texts)
  rows = [line.split("\t") for line in force("\n".join(texts) + "\n")]
  assert [row[0] for row in rows] == ["0", "1", "2"]
  for row, one in zip(rows, expected, strict=True):
    assert float(row[1]) == pytest.approx(one.total, abs=1e-4)
    assert float(row[2]) == pytest.approx(one.score, abs=1e-4)
    assert int(row[3]) == len(one.log_p)
  nbest = "2 ||| der der ||| -1\n0 ||| ein Hund ||| x= 1 ||| -2\n"
  lines = force(nbest, "--nbest_list", "--json", "--alignments")
  for line, index in zip(lines, (2, 0), strict=True):
    one = json.loads(line)
    assert (one["line"], one["text"]) == (index, texts[index])
    assert [pair.split("-")[1] for pair in one["alignments"].split()] == [*"01"]
    pieces, log_p = zip(*one["subwords"])
    assert pieces == expected[index].subwords
    np.testing.assert_allclose(log_p, expected[index].log_p, atol=1e-4)
  for hypotheses, options, message in (
    ("7 ||| der\n", ["--nbest_list"], "of line 7, but there are 3 sources"),
    ("der\n", ["--nbest_list"], r"a\.de:1: 'der' is no line of an n-best"),
    ("der\n", [], r"a\.de has 1 lines, but .*a\.en has 3"),
  ):
    with pytest.raises(InputError, match=message):
      force(hypotheses, *options)
