"""The command: its tables, its JSON, and what it refuses."""

import dataclasses
import importlib.util
import json
import subprocess
import sys

import pytest
import sacrebleu
from scored import score

from jaxsyn import score as command
from jaxsyn.errors import InputError
from jaxsyn.scoring.settings import Settings

MEANT = ["the dog bites .", "yes", "", "a hearing is scheduled today"]
SAID = {
  "a": ["the dog bites .", "no", "", "hearing scheduled"],
  "b": ["dog the bites .", "yes", "", "a hearing is scheduled today"],
  "c": ["the cat bites .", "yes", "x", "a hearing is planned today"],
}
CONLLU = """1\tthe\t_\t_\t_\t_\t2\tdet\t_\t_
2\tdog\t_\t_\t_\t_\t3\tnsubj\t_\t_
3\tbites\t_\t_\t_\t_\t0\troot\t_\t_
4\t.\t_\t_\t_\t_\t3\tpunct\t_\t_

1\tyes\t_\t_\t_\t_\t0\troot\t_\t_

1\ta\t_\t_\t_\t_\t2\tdet\t_\t_
2\thearing\t_\t_\t_\t_\t4\tnsubj:pass\t_\t_
3\tis\t_\t_\t_\t_\t4\taux:pass\t_\t_
4\tscheduled\t_\t_\t_\t_\t0\troot\t_\t_
5\ttoday\t_\t_\t_\t_\t4\tobl\t_\t_

"""


@pytest.fixture
def files(tmp_path):
  """Name -> file of the reference (also the source), three systems, trees."""
  texts = {
    name: "".join(f"{line}\n" for line in lines)
    for name, lines in {"meant": MEANT, **SAID}.items()
  } | {"trees": CONLLU}
  for name, text in texts.items():
    (tmp_path / name).write_text(text)
  return {name: str(tmp_path / name) for name in texts}


def run(files, *names, **given):
  """The command on files: what it is given are settings or files."""
  fields = {field.name for field in dataclasses.fields(Settings)}
  expected = {name: given.pop(name) for name in fields & set(given)}
  settings = dataclasses.replace(command.DEFAULTS, **{"samples": 30} | expected)
  hypotheses = [files[name] for name in names]
  return command.run([files["meant"]], hypotheses, settings, **given)


def test_each_system_is_compared_with_the_baseline(files):
  results = run(
    files, "a", "b", "c", metrics=("bleu", "ribes"), significance="all"
  )
  assert results.baseline == files["a"]
  pairs = [(d.system, d.metric) for d in results.differences]
  assert pairs == [
    (files[name], metric) for name in "bc" for metric in ("BLEU", "RIBES")
  ]
  for d in results.differences:
    values = {
      name: next(s.value for s in results.scores[name] if s.metric == d.metric)
      for name in (d.system, files["a"])
    }
    assert d.value == values[d.system] - values[files["a"]]
    names = [outcome.name for outcome in d.tests]
    assert names == ["bootstrap", "randomisation", "sign"]
  other = run(files, "a", "b", baseline=files["b"])
  assert [(d.system, d.baseline) for d in other.differences] == [
    (files["a"], files["b"])
  ] * 3
  plain = run(files, "a", "b", significance="none")
  assert {(d.low, d.tests) for d in plain.differences} == {(None, ())}


def test_text_has_two_decimals_and_every_part(files):
  results = run(
    files,
    *("a", "b", "c"),
    metrics=("bleu", "chrf", "ribes"),
    significance="all",
    source=files["meant"],
    source_conllu=files["trees"],
  )
  text = command.as_text(results)
  for name, scores in results.scores.items():
    short = name.rpartition("/")[2]  # all are in one folder
    row = next(line for line in text.split("\n") if line.startswith(short))
    assert row.split()[1:] == [f"{s.value:.2f}" for s in scores]
    for s in scores:
      assert f"{s.metric}|{s.signature}" in text
  first = results.differences[0]
  assert f"{first.low:+.2f} .. {first.high:+.2f}" in text
  for outcome in first.tests:
    assert f"{outcome.p:.4f}" in text and outcome.signature in text
  assert f"({first.tests[0].sacrebleu_p:.4f})" in text
  for title in ("source length", "tree depth", "dependency length", "clauses"):
    assert f"\n{title}" in text
  assert max(map(len, command.as_text(run(files, "a")).split("\n"))) < 120


def test_buckets_are_of_words_between_blanks_or_of_the_trees(files):
  by_blanks = run(files, "a", source=files["meant"], edges=(1, 4))
  counts = {b.label: b.count for b in by_blanks.buckets}
  assert counts == {"0": 1, "1": 1, "2-4": 1, ">4": 1}
  by_trees = run(
    files, "a", source=files["meant"], source_conllu=files["trees"]
  )
  counts = {(b.by, b.label): b.count for b in by_trees.buckets}
  assert counts["source length in words of the trees", "0"] == 1
  assert counts["tree depth", "0-2"] == 3
  # The empty line has no tree.
  assert counts["tree depth", "no tree"] == 1
  with pytest.raises(InputError, match="3 trees for 4 lines"):
    run(files, "a", source_conllu=files["trees"])


def test_the_command_prints_json_of_the_same(files):
  done = subprocess.run(
    [
      *(sys.executable, "-m", "jaxsyn.score", "--json", "--samples", "30"),
      *("--reference", files["meant"], "--source", files["meant"]),
      *("--hypothesis", files["a"], "--hypothesis", files["b"]),
      *("--baseline", files["b"], "--significance", "randomisation"),
      *("--metrics", "ter,exact", "--seed", "3", "--edges", "2,4"),
    ],
    capture_output=True,
    text=True,
    check=True,
  )
  expected = run(
    files,
    *("a", "b"),
    metrics=("ter", "exact"),
    baseline=files["b"],
    significance="randomisation",
    seed=3,
    source=files["meant"],
    edges=(2, 4),
  )
  assert json.loads(done.stdout) == json.loads(
    json.dumps(dataclasses.asdict(expected))
  )


def test_rejects_invalid_inputs(files, tmp_path):
  empty, short = tmp_path / "empty", tmp_path / "short"
  empty.write_text("")
  short.write_text("one line\n")
  with pytest.raises(InputError, match=r"short has 1 lines, but .*meant has 4"):
    command.run([files["meant"]], [files["a"], short])
  with pytest.raises(InputError, match="short has 1 lines"):
    run(files, "a", source=short)
  with pytest.raises(InputError, match="empty is empty"):
    command.run([empty], [empty])
  with pytest.raises(InputError, match="is given twice"):
    run(files, "a", "a")
  with pytest.raises(InputError, match="the baseline d is no hypothesis"):
    run(files, "a", "b", baseline="d")
  with pytest.raises(InputError, match="Did you mean 'bootstrap'"):
    run(files, "a", significance="bootstrapp")
  for metrics in ((), ("bleu", "chrf", "bleu")):
    with pytest.raises(
      InputError, match="--metrics must name one or more, each"
    ):
      run(files, "a", metrics=metrics)
  with pytest.raises(InputError, match="Did you mean '13a'"):
    run(files, "a", tokenizer="13b")


def test_a_tokeniser_that_is_not_installed_names_its_extra(monkeypatch):
  for package, tokenizer in (("MeCab", "ja"), ("mecab_ko", "ko")):
    module = f"sacrebleu.tokenizers.tokenizer_{tokenizer}_mecab"
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # as if not installed
    with pytest.raises(InputError, match=rf"-e '\.\[{tokenizer}\]'"):
      score(["a"], [["a"]], tokenizer=f"{tokenizer}-mecab")
    sys.modules.pop(module, None)  # what it found holds for this test alone


@pytest.mark.skipif(
  not importlib.util.find_spec("MeCab"), reason="pip install -e '.[ja]'"
)
def test_japanese_is_cut_by_mecab():
  messages, meant = ["私はりんごを食べます。"], ["私は赤いりんごを食べます。"]
  bleu = sacrebleu.BLEU(tokenize="ja-mecab")
  scores = score(messages, [meant], tokenizer="ja-mecab")
  assert scores.value == bleu.corpus_score(messages, [meant]).score > 0
  assert "tok:ja-mecab-" in scores.signature
  # 私 は りんご を 食べ ます 。 are all found, in order; 7 words for 8.
  ribes = score(messages, [meant], "ribes", tokenizer="ja-mecab")
  assert ribes.value == pytest.approx(100 * 2.718281828 ** (-0.1 / 7))
  assert "tok:ja-mecab-" in ribes.signature


@pytest.mark.skipif(
  not importlib.util.find_spec("mecab_ko"), reason="pip install -e '.[ko]'"
)
def test_korean_is_cut_by_mecab():
  messages, meant = ["저는 학교에 가요."], ["저는 학교에 갑니다."]
  bleu = sacrebleu.BLEU(tokenize="ko-mecab")
  scores = score(messages, [meant], tokenizer="ko-mecab")
  assert scores.value == bleu.corpus_score(messages, [meant]).score > 0
  assert "tok:ko-mecab-" in scores.signature
