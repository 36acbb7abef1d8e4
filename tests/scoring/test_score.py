"""The command: its tables, its JSON, and errors."""

import dataclasses
import json
import re

import pytest
from command_flags import parsed

from jaxsyn import score as command
from jaxsyn.errors import InputError
from jaxsyn.scoring.settings import Settings

TEXTS = {
  "reference": ["the dog bites .", "yes", "", "a hearing is scheduled today"],
  "a": ["the dog bites .", "no", "", "hearing scheduled"],
  "b": ["dog the bites .", "yes", "", "a hearing is scheduled today"],
  "c": ["the cat bites .", "yes", "x", "a hearing is planned today"],
  "short": ["one line"],
  "empty": [],
}
# Words, heads and relations of the lines that are not empty.
TREES = [
  "the:2:det dog:3:nsubj bites:0:root .:3:punct",
  "yes:0:root",
  "a:2:det hearing:4:nsubj is:4:aux scheduled:0:root today:4:obl",
]


@pytest.fixture
def files(tmp_path):
  """Name -> file of texts, and of trees of the reference."""
  conllu = ""
  for tree in TREES:
    for index, row in enumerate(tree.split(), start=1):
      word, head, relation = row.split(":")
      conllu += f"{index}\t{word}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_\n"
    conllu += "\n"
  (tmp_path / "trees").write_text(conllu)
  for name, lines in TEXTS.items():
    (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
  return {name: str(tmp_path / name) for name in (*TEXTS, "trees")}


def run(files, *names, **options):
  """Runs the command; options are settings or arguments of `run`."""
  fields = {field.name for field in dataclasses.fields(Settings)}
  changes = {name: options.pop(name) for name in fields & set(options)}
  settings = dataclasses.replace(command.DEFAULTS, **{"samples": 30} | changes)
  hypotheses = [files[name] for name in names]
  references = [options.pop("reference", files["reference"])]
  return command.run(references, hypotheses, settings, **options)


def test_compares_each_system_with_the_baseline(files):
  options = {"metrics": ("bleu", "ribes"), "significance": "all"}
  results = run(files, "a", "b", "c", **options)
  assert results.baseline == files["a"]
  assert [(d.system, d.metric) for d in results.differences] == [
    (files[name], metric) for name in "bc" for metric in ("BLEU", "RIBES")
  ]
  for d in results.differences:
    system, baseline = (
      next(s.value for s in results.scores[name] if s.metric == d.metric)
      for name in (d.system, files["a"])
    )
    assert d.value == system - baseline
    names = [outcome.name for outcome in d.tests]
    assert names == ["bootstrap", "randomisation", "sign"]
  other = run(files, "a", "b", baseline=files["b"])
  assert [(d.system, d.baseline) for d in other.differences] == [
    (files["a"], files["b"])
  ] * 3
  plain = run(files, "a", "b", significance="none")
  assert {(d.low, d.tests) for d in plain.differences} == {(None, ())}


def test_text_has_all_results(files):
  options = {"source": files["reference"], "source_conllu": files["trees"]}
  options |= {"metrics": ("bleu", "chrf", "ribes"), "significance": "all"}
  results = run(files, "a", "b", "c", **options)
  text = command.as_text(results)
  for name, scores in results.scores.items():
    short = name.rpartition("/")[2]  # without the common directory
    row = next(line for line in text.split("\n") if line.startswith(short))
    assert row.split()[1:] == [f"{s.value:.2f}" for s in scores]
    assert all(f"{s.metric}|{s.signature}" in text for s in scores)
  first = results.differences[0]
  assert f"{first.low:+.2f} .. {first.high:+.2f}" in text
  for outcome in first.tests:
    assert f"{outcome.p:.4f}" in text and outcome.signature in text
  assert f"({first.tests[0].sacrebleu_p:.4f})" in text
  for bucket in results.buckets:
    share = f"{100 * bucket.share:.1f} %"
    assert bucket.by in text
    assert re.search(
      rf"\n{re.escape(bucket.label)} +{bucket.count} +{share}", text
    )


def test_length_buckets_count_words_of_the_text_or_of_trees(files):
  source = files["reference"]
  results = run(files, "a", source=source, edges=(1, 4))
  counts = {b.label: b.count for b in results.buckets}
  assert counts == {"0": 1, "1": 1, "2-4": 1, ">4": 1}
  results = run(files, "a", source=source, source_conllu=files["trees"])
  counts = {(b.by, b.label): b.count for b in results.buckets}
  assert counts["source length in words of the trees", "0"] == 1
  assert counts["tree depth", "0-2"] == 3
  assert counts["tree depth", "no tree"] == 1  # the empty line


def test_json_has_the_same_results(files, capsys):
  flags = "--json --samples=30 --significance=randomisation --metrics=ter,exact"
  flags += " --seed=3 --edges=2,4 --lowercase"
  for name in ("reference", "source"):
    flags += f" --{name}={files['reference']}"
  flags += f" --hypothesis={files['a']} --hypothesis={files['b']}"
  with parsed(command, *flags.split(), f"--baseline={files['b']}") as values:
    command._main(values)
  options = {"metrics": ("ter", "exact"), "significance": "randomisation"}
  options |= {"seed": 3, "edges": (2, 4), "lowercase": True}
  options |= {"baseline": files["b"], "source": files["reference"]}
  expected = run(files, "a", "b", **options)
  printed = capsys.readouterr().out
  assert "|seed:3|" in printed
  document = json.loads(json.dumps(dataclasses.asdict(expected)))
  assert json.loads(printed) == document


@pytest.mark.parametrize(
  ("names", "options", "message"),
  [
    (["a", "short"], {}, r"short has 1 lines, but .*reference has 4"),
    (["a"], {"source": "short"}, "short has 1 lines"),
    (["a"], {"source_conllu": "trees"}, "3 trees for 4 lines"),
    (["empty"], {}, "empty has 0 lines"),
    (["empty"], {"reference": "empty"}, "empty is empty"),
    (["a", "a"], {}, "is given twice"),
    (["a", "b"], {"baseline": "c"}, "the baseline .*c is not a hypothesis"),
    (["a"], {"significance": "bootstrapp"}, "Did you mean 'bootstrap'"),
    (["a"], {"metrics": ()}, "--metrics must name one or more, each"),
    (["a"], {"metrics": ("bleu", "bleu")}, "--metrics must name one or more"),
    (["a"], {"tokenizer": "13b"}, "Did you mean '13a'"),
  ],
)
def test_rejects_invalid_inputs(files, names, options, message):
  options = {
    name: files.get(value, value) if isinstance(value, str) else value
    for name, value in options.items()
  }
  with pytest.raises(InputError, match=message):
    run(files, *names, **options)
