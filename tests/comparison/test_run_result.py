"""result.json: statistics without loss, and files that do not fit."""

import dataclasses
import json
import random

import numpy as np
import pytest
import sacrebleu
from results_made import run_made

from jaxsyn.comparison import analysis, report, results, run_result
from jaxsyn.comparison.inference import Inference, holm
from jaxsyn.comparison.run_result import (
  MetricStatistics,
  PackedArray,
  SplitStatistics,
)
from jaxsyn.errors import InputError
from jaxsyn.scoring import buckets
from jaxsyn.scoring.metrics import of_likelihoods, scorer_of
from jaxsyn.scoring.settings import Settings
from jaxsyn.storage import checksums, files

REFERENCES = [
  "Two young men are playing football in the park .",
  "A dog sleeps .",
  "No",
  "A woman in a red coat reads the newspaper at the station , alone .",
  "",
]
SOURCES = ["s1 a b", "s2", "s3 c", "", "s5 d e f"]
SETTINGS = Settings(("chrf",), samples=50)


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


def packed(measured):
  signature = measured.scorer.signature()
  return MetricStatistics(signature, PackedArray.of(measured.statistic_BI))


def statistics(hypotheses, metrics=("bleu", "chrf"), references=REFERENCES):
  facts = buckets.sentence_facts(SOURCES)
  return SplitStatistics(
    sentences=len(references),
    source_sha256=run_result.sha256_of_lines(SOURCES),
    reference_sha256=run_result.sha256_of_lines(references),
    facts={n: PackedArray.of(np.array(v, float)) for n, v in facts.items()},
    metrics={
      name: packed(scorer_of(name, [references]).measure(hypotheses))
      for name in metrics
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


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter", "ribes", "exact"])
def test_scores_of_stored_statistics_equal_those_of_the_text(metric, tmp_path):
  hypotheses = translations(1)
  path = tmp_path / "result.json"
  test = statistics(hypotheses, [metric])
  run_result.write(path, run_made(tests={"test": test}))
  stored = run_result.read(path).tests["test"].measured(metric)
  measured = scorer_of(metric, [REFERENCES]).measure(hypotheses)
  np.testing.assert_array_equal(stored.statistic_BI, measured.statistic_BI)
  assert stored.value == measured.value > 0
  np.testing.assert_array_equal(stored.sentence_B, measured.sentence_B)
  assert stored.score == measured.score
  for resampling in ({"bs": 1000, "seed": 5}, {"ar": 10, "seed": 5}):
    signature = stored.scorer.signature(**resampling)
    assert signature == measured.scorer.signature(**resampling)


def test_stored_statistics_give_sacrebleus_scores_to_the_last_bit():
  for seed in range(20):
    hypotheses = translations(seed)
    test = statistics(hypotheses, ["bleu", "chrf"])
    bleu = sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score
    chrf = sacrebleu.corpus_chrf(hypotheses, [REFERENCES]).score
    assert test.measured("bleu").value == bleu
    assert test.measured("chrf").value == chrf
    for line, (hypothesis, reference) in enumerate(zip(hypotheses, REFERENCES)):
      single = sacrebleu.sentence_chrf(hypothesis, [reference]).score
      assert test.measured("chrf").sentence_B[line] == single


def test_log_likelihood_is_per_subword():
  """(-1 - 5) nats over 2 + 4 subwords; a sentence by itself: -0.5, -1.25."""
  measured = of_likelihoods(np.array([-1.0, -5.0]), np.array([2.0, 4.0]))
  test = SplitStatistics(2, "", "", {}, {"log_likelihood": packed(measured)})
  stored = test.measured("log_likelihood")
  assert stored.value == -1.0
  assert stored.sentence_B.tolist() == [-0.5, -1.25]
  assert stored.scorer.name == "log-likelihood"


def test_facts_of_sentences_are_stored_with_unknown_values():
  facts = {"tree depth": [0, None, 3], "dependency length": [1 / 3, None, 2.5]}
  arrays = {
    name: PackedArray.of(np.array([-1.0 if v is None else v for v in values]))
    for name, values in facts.items()
  }
  assert SplitStatistics(3, "", "", arrays, {}).sentence_facts() == facts


def test_a_result_holds_no_text(tmp_path):
  path = tmp_path / "result.json"
  run_result.write(path, run())
  text = path.read_text()
  for line in [*REFERENCES, *translations(110)]:
    for word in line.split():
      assert len(word) < 5 or word not in text
  assert run_result.read(path) == run()


def harmed(path, edit):
  document = checksums.verify_checksum(json.loads(path.read_text()))
  edit(document)
  files.write_json(path, checksums.add_checksum(document))


def cut_array(document):
  document["tests"]["test"]["metrics"]["chrf"]["sentences"]["shape"] = [4, 18]


def bomb(document):
  document["tests"]["test"]["metrics"]["chrf"]["sentences"]["shape"] = [
    5,
    1 << 40,
  ]


def short(document):
  array = dataclasses.asdict(PackedArray.of(np.zeros((4, 18))))
  document["tests"]["test"]["metrics"]["chrf"]["sentences"] = array


HARMS = {
  "another format": (lambda p: p.update(format=99), "has format 99"),
  "a field that is not known": (lambda p: p.update(x=1), "no option 'x'"),
  "a field that is missing": (lambda p: p.pop("commit"), "commit is missing"),
  "a shape that does not fit": (cut_array, r"chrf is corrupt"),
  "a huge shape": (bomb, r"chrf is corrupt"),
  "too few sentences": (short, r"has 4 sentences, the test set 5"),
  "no base64": (
    lambda p: p["tests"]["test"]["facts"]["source length"].update(data="§"),
    "source length is corrupt",
  ),
  "an unknown metric": (
    lambda p: p["tests"]["test"]["metrics"].update(blue={
      "signature": "", "sentences": {"dtype": "uint8", "shape": [0], "data": ""}
    }),
    "no metric 'blue'",
  ),
}  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_does_not_fit_is_named(harm, tmp_path):
  path = tmp_path / "result.json"
  run_result.write(path, run())
  edit, message = HARMS[harm]
  harmed(path, edit)
  with pytest.raises(InputError, match=message) as raised:
    run_result.read_all([tmp_path])
  assert str(path) in str(raised.value)


@pytest.mark.parametrize(
  "content", ["", "[]", "{}", '{"format": 1}', "[" * 9**6]
)
def test_a_file_that_is_no_result_is_named(content, tmp_path):
  path = tmp_path / "result.json"
  path.write_text(content)
  with pytest.raises(InputError, match=f"{path} is corrupt, or not the result"):
    run_result.read_all([path])


def test_reads_files_and_folders_each_run_once(tmp_path):
  for index, one in enumerate([run(), run(seed=1), run("pascal")]):
    run_result.write(tmp_path / str(index) / "seed" / "result.json", one)
  extra = tmp_path / "other" / "mine.json"
  run_result.write(extra, run("pascal", 1))
  folder, single = tmp_path / "0", tmp_path / "1" / "seed" / "result.json"
  loaded = run_result.read_all([folder, single, single, extra.parent])
  assert [one.name for one in loaded] == [
    *("transformer seed 0", "transformer seed 1", "pascal seed 1"),
  ]
  run_result.write(extra, run())
  with pytest.raises(
    InputError, match=r"are both results of transformer seed 0"
  ):
    run_result.read_all([folder, extra])
  (tmp_path / "none").mkdir()
  with pytest.raises(InputError, match="none has no results"):
    run_result.read_all([tmp_path / "none"])
  with pytest.raises(InputError, match=r"gone\.json does not exist"):
    run_result.read_all([tmp_path / "gone.json"])


def compared(*runs, settings=SETTINGS, systems=("transformer", "pascal")):
  return analysis.of_runs(runs, settings, systems)


def other_references():
  lines = [*REFERENCES[:-1], "x"]
  return statistics(translations(1), references=lines)


def other_signature():
  test = statistics(translations(1))
  chrf = dataclasses.replace(test.metrics["chrf"], signature="nrefs:1|case:lc")
  return dataclasses.replace(test, metrics={**test.metrics, "chrf": chrf})


@pytest.mark.parametrize(
  ("other", "message"),
  [
    (
      run_made("pascal", 0, {"test": other_references()}),
      "pascal seed 0 and transformer seed 0, test: their references differ",
    ),
    (
      run_made("pascal", 0, {"test": other_signature()}),
      "pascal seed 0 and transformer seed 0 have other signatures of chrf",
    ),
    (run_made("pascal", 0), "pascal seed 0 was not scored on test set test"),
    (
      run(
        "transformer", 1, config={**run_made().config, "train": {"steps": 9}}
      ),
      r"transformer seed 0 and transformer seed 1 have other configs: train\.",
    ),
    (
      run_made("pascal", 0, {"test": statistics(translations(1), ["bleu"])}),
      "pascal seed 0 has no statistics of 'chrf' on test",
    ),
  ],
)
def test_runs_that_cannot_be_compared_are_named(other, message):
  with pytest.raises(InputError, match=message):
    compared(run(), other)


def test_configs_may_differ_in_what_changes_no_figure():
  config = {**run_made().config, "train": {**run_made().config["train"]}}
  config["train"]["log_every"] = 9
  config["train"]["writers"] = {"mlflow": "trees"}  # a removed option
  found = compared(run(), run("transformer", 1, config=config))
  assert found.seeds == (0, 1)


def test_runs_are_paired_and_ordered_by_seed_then_system():
  runs = [run(s, k) for s in ("pascal", "transformer") for k in (1, 0)]
  result = compared(*runs, run("deps_san"))
  assert [(r.system, r.seed) for r in result.runs] == [
    *(("transformer", 0), ("pascal", 0), ("transformer", 1), ("pascal", 1)),
  ]
  (one,) = result.splits[0].over_seeds
  values = {(r.system, r.seed): r.scores["test"][0].value for r in result.runs}
  assert one.by_seed == pytest.approx(
    [values["pascal", k] - values["transformer", k] for k in (0, 1)]
  )


def test_a_family_is_corrected_together_and_nothing_else():
  systems = ("transformer", "pascal", "deps_san", "relative")
  runs = [run(s, k, ("one", "two")) for s in systems for k in (0, 1, 2)]
  family = (("pascal", "deps_san"), ("relative", "transformer"))
  inference = Inference(family, "pooled", {"chrf": 50.0})
  result = analysis.of_runs(
    runs, Settings(("chrf", "bleu"), samples=50), systems, inference=inference
  )
  tests = {
    (split.name, d.metric, d.system, d.baseline): d
    for split in result.splits
    for d in split.over_seeds
  }
  assert len(tests) == 3 * 2 * 4  # three against the baseline, and one more
  mean = "mean of test sets"
  inside = [tests[mean, "chrF", *pair] for pair in family]
  assert [d.adjusted_p for d in inside] == holm([d.p for d in inside])
  for key, d in tests.items():
    assert (d.adjusted_p is None) == (d not in inside), key
    assert (d.margin == 50.0) == (d.metric == "chrF"), key
    assert d.verdict in ("better", "worse", "equivalent", "undecided")
  errors = {e.metric: e for e in result.primary.errors}
  assert set(errors) == {"chrF", "BLEU"} and errors["chrF"].degrees == 3 * 2
  for d in inside:
    assert d.seed_sd**2 == pytest.approx(2 * errors["chrF"].sd ** 2 / 3)
  text = report.markdown(result)
  assert "not in the family" in text
  assert (
    "Holm-adjusted in the family of 2 tests (chrF, mean of test sets)" in text
  )
  assert "pooled over 4 systems" in text and "6 degrees of freedom" in text
  # What is found again in JSON is what is reported.
  assert results.from_json(results.to_json(result)) == result


def test_pairs_of_a_family_without_runs_are_named():
  runs = [run(s, k) for s in ("transformer", "pascal") for k in (0, 1)]
  inference = Inference((("pascal", "transformer"), ("pascal", "relative")))
  systems = ("transformer", "pascal", "relative")
  result = analysis.of_runs(runs, SETTINGS, systems, inference=inference)
  text = report.markdown(result)
  assert "without a test: pascal against relative." in text


def test_runs_of_several_commits_are_noted():
  runs = [run(s, k) for s in ("transformer", "pascal") for k in (0, 1)]
  assert "several versions" not in report.markdown(compared(*runs))
  other = dataclasses.replace(runs[-1], commit="beef+changes")
  text = report.markdown(compared(*runs[:-1], other))
  assert (
    "several versions of the code: 9.9 (c0ffee): 3 runs, 9.9 (beef+changes): "
    "1 runs."
  ) in text


def test_the_mean_of_test_sets_is_an_entry_of_its_own():
  runs = [
    run(system, seed, splits=("one", "two"))
    for system in ("transformer", "pascal")
    for seed in (0, 1, 2)
  ]
  result = compared(*runs, settings=Settings(("chrf",), samples=4000))
  one, two, mean = result.splits
  assert (mean.name, mean.sentences) == ("mean of test sets", 10)
  assert mean.buckets == () and mean is result.primary
  for a, b, both in zip(one.scores, two.scores, mean.scores):
    assert both.values == pytest.approx(
      [(x + y) / 2 for x, y in zip(a.values, b.values)]
    )
  (d1,), (d2,), (d,) = (split.over_seeds for split in result.splits)
  assert d.value == pytest.approx((d1.value + d2.value) / 2)
  # Test sets are resampled independently: Var((a + b) / 2) = (Va + Vb) / 4.
  independent = ((d1.sentence_sd**2 + d2.sentence_sd**2) / 4) ** 0.5
  assert d.sentence_sd == pytest.approx(independent, rel=0.05)
  # Its own seeds: not the mean of two standard deviations.
  assert d.seed_sd == pytest.approx(np.std(d.by_seed, ddof=1) / 3**0.5)
  assert [run.scores["mean of test sets"] for run in result.runs]
  single = mean.over_sentences[0].difference
  assert single.better + single.worse + single.same == 10
  assert single.tests[0].sacrebleu_p is None
