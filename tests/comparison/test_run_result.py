"""result.json: lossless statistics, and corrupt files."""

import dataclasses
import json
import random

import numpy as np
import pytest
import sacrebleu
from results_made import run_made
from scored import scorer_of

from jaxsyn.comparison import run_result
from jaxsyn.comparison.run_result import (
  MetricStatistics,
  PackedArray,
  SplitStatistics,
)
from jaxsyn.errors import InputError
from jaxsyn.scoring import buckets
from jaxsyn.scoring.metrics import METRICS, of_likelihoods
from jaxsyn.storage import checksums, files

REFERENCES = [
  "Two young men are playing football in the park .",
  "A dog sleeps .",
  "No",
  "A woman in a red coat reads the newspaper at the station , alone .",
  "",
]
SOURCES = ["s1 a b", "s2", "s3 c", "", "s5 d e f"]


def translations(seed):
  """The references without some of their words, in other orders."""
  draw = random.Random(seed)
  lines = []
  for line in REFERENCES:
    words = [word for word in line.split() if draw.random() < 0.8]
    if draw.random() < 0.5:
      draw.shuffle(words)
    lines.append(" ".join(words))
  return lines


def statistics(hypotheses, metrics=("bleu", "chrf"), references=REFERENCES):
  facts = buckets.sentence_facts(SOURCES)
  scorers = {name: scorer_of(name, [references]) for name in metrics}
  return SplitStatistics(
    sentences=len(references),
    source_sha256=run_result.sha256_of_lines(SOURCES),
    reference_sha256=run_result.sha256_of_lines(references),
    facts={n: PackedArray.of(np.array(v, float)) for n, v in facts.items()},
    metrics={
      name: MetricStatistics.of(scorer.measure(hypotheses))
      for name, scorer in scorers.items()
    },
  )


def run(system="transformer", seed=0, splits=("test",), **changes):
  count = seed + 10 * len(system)
  tests = {
    split: statistics(translations(count + 100 * i))
    for i, split in enumerate(splits)
  }
  return run_made(system, seed, tests, **changes)


@pytest.mark.parametrize(
  ("values", "dtype"),
  [
    ([[0, 255], [3, 7]], "uint8"),
    ([[-1, 100]], "int8"),
    ([[256, 1]], "uint16"),
    ([[-300, 1]], "int16"),
    ([[70_000, -1]], "int32"),
    ([[0.5, -12.25]], "float32"),
    ([[0.1, 1 / 3]], "float64"),
    ([[float("inf"), 1]], "float32"),
    ([[float("nan"), 1]], "float64"),
    (np.zeros((0, 4)), "uint8"),
    ([1, 2, 3], "uint8"),
  ],
)
def test_packs_arrays_without_loss_in_the_smallest_type(values, dtype):
  array = np.array(values, float)
  packed = PackedArray.of(array)
  assert packed.dtype == dtype
  result = packed.unpacked()
  assert result.dtype == np.float64 and result.shape == array.shape
  np.testing.assert_array_equal(result, array)


def test_stored_statistics_and_scores_equal_measured_ones(tmp_path):
  """Those of sacreBLEU bit for bit."""
  path = tmp_path / "result.json"
  for seed in range(4):
    lines = translations(seed)
    result = run_made(tests={"test": statistics(lines, METRICS)})
    run_result.write(path, result)
    assert run_result.read(path) == result
    test = run_result.read(path).tests["test"]
    for metric in METRICS:
      stored = test.measured(metric)
      measured = scorer_of(metric, [REFERENCES]).measure(lines)
      np.testing.assert_array_equal(stored.statistic_BI, measured.statistic_BI)
      assert stored.value == measured.value
      signatures = [
        one.scorer.signature(bs=1000, seed=5) for one in (stored, measured)
      ]
      assert signatures[0] == signatures[1]
    bleu = sacrebleu.corpus_bleu(lines, [REFERENCES])
    chrf = sacrebleu.corpus_chrf(lines, [REFERENCES])
    assert test.measured("bleu").value == bleu.score > 0
    assert test.measured("chrf").value == chrf.score
    assert test.measured("chrf").sentence_B.tolist() == [
      sacrebleu.sentence_chrf(line, [reference]).score
      for line, reference in zip(lines, REFERENCES)
    ]


def test_log_likelihood_is_per_subword():
  """(-1 - 5) nats over 2 + 4 subwords; of the sentences: -0.5, -1.25."""
  measured = of_likelihoods(np.array([-1.0, -5.0]), np.array([2.0, 4.0]))
  metrics = {"log_likelihood": MetricStatistics.of(measured)}
  stored = SplitStatistics(2, "", "", {}, metrics).measured("log_likelihood")
  assert stored.value == -1.0
  assert stored.sentence_B.tolist() == [-0.5, -1.25]
  assert stored.scorer.name == "log-likelihood"


def test_unknown_facts_are_none():
  packed = PackedArray.of(np.array([1 / 3, -1.0, 2.5]))
  test = SplitStatistics(3, "", "", {"dependency length": packed}, {})
  assert test.sentence_facts() == {"dependency length": [1 / 3, None, 2.5]}


def test_a_result_contains_no_text(tmp_path):
  path = tmp_path / "result.json"
  run_result.write(path, run())
  text = path.read_text()
  for line in [*REFERENCES, *translations(110)]:
    for word in line.split():
      assert len(word) < 5 or word not in text


def array_of(**changes):
  """Changes the stored statistics of chrF."""

  def edit(document):
    chrf = document["tests"]["test"]["metrics"]["chrf"]
    chrf["sentences"] |= changes

  return edit


def unknown_metric(document):
  metrics = document["tests"]["test"]["metrics"]
  metrics["blue"] = metrics["bleu"]


FEW = dataclasses.asdict(PackedArray.of(np.zeros((4, 18))))


@pytest.mark.parametrize(
  ("edit", "message"),
  [
    (lambda d: d.update(format=99), "has format 99"),
    (lambda d: d.update(x=1), "no option 'x'"),
    (array_of(shape=[5, 1 << 40]), "chrf is corrupt"),  # huge
    (array_of(shape=[-1, 1]), "chrf is corrupt"),
    (array_of(shape=[5, 17]), "chrf is corrupt"),  # the content is larger
    (array_of(data="§"), "chrf is corrupt"),  # no base64
    (array_of(**FEW), "has 4 sentences, the test set 5"),
    (unknown_metric, "no metric 'blue'"),
  ],
)
def test_rejects_corrupt_content(edit, message, tmp_path):
  path = tmp_path / "result.json"
  run_result.write(path, run())
  document = checksums.verify_checksum(json.loads(path.read_text()))
  edit(document)
  files.write_json(path, checksums.add_checksum(document))
  with pytest.raises(InputError, match=message) as raised:
    run_result.read_all([tmp_path])
  assert str(path) in str(raised.value)


def test_reads_files_and_folders_each_run_once(tmp_path):
  for index, one in enumerate([run(), run(seed=1), run("pascal")]):
    run_result.write(tmp_path / str(index) / "seed" / "result.json", one)
  extra = tmp_path / "other" / "mine.json"
  run_result.write(extra, run("pascal", 1))
  folder, single = tmp_path / "0", tmp_path / "1" / "seed" / "result.json"
  loaded = run_result.read_all([folder, single, single, extra.parent])
  names = ["transformer seed 0", "transformer seed 1", "pascal seed 1"]
  assert [one.name for one in loaded] == names
  run_result.write(extra, run())
  with pytest.raises(InputError, match="are both results of transformer seed"):
    run_result.read_all([folder, extra])
  (tmp_path / "none").mkdir()
  with pytest.raises(InputError, match="none has no results"):
    run_result.read_all([tmp_path / "none"])
  with pytest.raises(InputError, match=r"gone\.json is missing"):
    run_result.read_all([tmp_path / "gone.json"])
