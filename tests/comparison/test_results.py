"""report.json and the tables that are made of it."""

import dataclasses
import re

import pytest
from models_under_test import config_of
from results_made import made

from jaxsyn.comparison import report, results
from jaxsyn.comparison.controls import control_of, controls
from jaxsyn.config import as_dict
from jaxsyn.configs import systems
from jaxsyn.data.sentence.controls import Random, Sampled
from jaxsyn.errors import InputError


def test_results_come_back_from_json():
  content = made(ablation=results.Ablation("A, Table 1", "Which layer?"))
  assert results.from_json(results.to_json(content)) == content


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    ('"format": 3', '"format": 9', "has format 9; this version reads 3"),
    ('"samples": 100', '"smaples": 100', "no option 'smaples'"),
    ("{", "", "is corrupt"),
  ],
)
def test_results_that_do_not_fit_are_named(old, new, message):
  text = results.to_json(made()).replace(old, new, 1)
  with pytest.raises(InputError, match=message):
    results.from_json(text)


def test_the_table_in_markdown():
  text = report.markdown(made())
  assert "| transformer | 2 | 30.50 ± 0.50 |" in text
  # The best is bold, p = 0.03 has its mark; the control is set in below it.
  assert (
    "| pascal | 2 | **31.50 ± 0.50†** |\n"
    "| &nbsp;&nbsp;pascal_random_tree | 2 | 29.50 ± 0.50‡ |"
  ) in text
  assert "† p < 0.05, ‡ p < 0.01 against transformer" in text
  assert "Did not come to their end: pascal seed 2." in text
  assert "BLEU|case:mixed" in text
  assert "| pascal | transformer | +1.00 | +0.00 .. +2.00 | 0.0300" in text
  assert (
    "| pascal | pascal_random_tree | +2.00 | +1.00 .. +3.00 | 0.0001 |" in text
  )
  assert "Two seeds are too few" in text
  assert "a chip, 2 cores" in text


def test_the_table_in_latex_escapes_and_needs_booktabs_alone():
  text = report.latex(made())
  assert r"\quad pascal\_random\_tree & 2 & 29.50 $\pm$ 0.50$^\ddagger$" in text
  assert r"\textbf{31.50 $\pm$ 0.50$^\dagger$} \\" in text
  for index, row in enumerate(text.splitlines()):
    if row.endswith(r"\\"):
      assert row.count(" & ") == 2, index
  assert text.count("{") == text.count("}")
  _, _, below = text.partition("\n")  # the first line is a comment
  assert "_" not in below.replace(r"\_", "")


def test_a_table_of_lower_is_better():
  (split,) = made().splits
  scores = tuple(dataclasses.replace(s, metric="TER") for s in split.scores)
  split = dataclasses.replace(split, scores=scores, signatures={"TER": "x"})
  text = report.markdown(made(splits=(split,), metrics=("TER",)))
  assert "| **29.50 ± 0.50** |" in text and "**31.50" not in text


def test_published_figures_stand_beside_ours():
  content = made()
  first, *rest = content.systems
  first = dataclasses.replace(first, published={"nc11 test": 23.2})
  text = report.markdown(made(systems=(first, *rest)))
  assert "published BLEU, nc11 test" in text
  assert "| transformer | 2 | 30.50 ± 0.50 | 23.2 |" in text


def test_published_figures_of_other_systems_are_shown():
  figures = {"PBSMT (Moses)": {"nc11 test": 16.35}}
  content = made(ablation=results.Ablation("A", "Which layer?", figures))
  assert results.from_json(results.to_json(content)) == content
  due = "Published, not trained here: PBSMT (Moses): BLEU nc11 test 16.35."
  assert due in report.markdown(content).replace("\\", "")


def test_equal_scores_are_not_marked_as_best():
  (split,) = made().splits
  same = tuple(dataclasses.replace(s, mean=0.001) for s in split.scores)
  text = report.markdown(
    made(splits=(dataclasses.replace(split, scores=same),))
  )
  assert "| pascal | 2 | 0.00 ± 0.50† |" in text


def test_the_interval_of_one_seed_is_over_sentences():
  (split,) = made().splits
  (one,) = [
    dataclasses.replace(d, low=None, high=None, p=None, by_seed=(1.0,))
    for d in split.over_seeds
    if (d.system, d.baseline) == ("pascal", "transformer")
  ]
  split = dataclasses.replace(split, over_seeds=(one,))
  text = report.markdown(made(splits=(split,), seeds=(0,)))
  assert "| transformer | +1.00 | +0.10 .. +1.90 |  |" in text
  assert "p are over sentences alone" in text


def test_a_control_differs_in_its_trees_alone():
  """All *_tree of the table are controls of what they are named after."""
  typed = {name: config_of(name) for name in systems.SYSTEMS}
  configs = {name: as_dict(config) for name, config in typed.items()}
  for name in systems.SYSTEMS:
    of = re.fullmatch(r"(.*)_(linear|random)_tree", name)
    assert control_of(name, configs) == (of[1] if of else "")
  assert controls("pascal", configs) == (
    *("pascal_linear_tree", "pascal_random_tree"),
  )
  # What is named otherwise too, and never what has other options.
  data = dataclasses.replace(typed["dasa"].data, tree=Random())
  mine = dataclasses.replace(typed["dasa"], data=data, seed=7)
  configs["mine"] = as_dict(mine)
  assert control_of("mine", configs) == "dasa"
  # The tree's own options are no difference either.
  tree = Sampled(rate=0.3)
  data = dataclasses.replace(typed["dasa"].data, tree=tree)
  configs["dasa"] = as_dict(dataclasses.replace(typed["dasa"], data=data))
  assert control_of("mine", configs) == "dasa"
  train = dataclasses.replace(typed["dasa"].train, steps=9)
  configs["mine"] = as_dict(dataclasses.replace(mine, train=train))
  assert control_of("mine", configs) == ""


def test_reports_checkpoints_used_instead_of_corrupt_ones():
  (run,) = made().runs
  message = "those of step 5, the nearest that is kept, stand in for them"
  facts = dataclasses.replace(run.facts, notes=(message,))
  content = made(runs=(dataclasses.replace(run, facts=facts),))
  for text in (report.as_text(content), report.markdown(content)):
    assert "transformer seed 0: those of step 5, the nearest" in text
  (again,) = results.from_json(results.to_json(content)).runs
  assert again.facts == facts


@pytest.mark.parametrize(
  ("train", "decode", "expected"),
  [
    ({"average": 3}, {}, "with the mean of the last 3 checkpoints, beam"),
    ({}, {"checkpoint": "last"}, "with the last checkpoint, beam"),
  ],
)
def test_reports_how_checkpoints_were_selected(train, decode, expected):
  content = made()
  first, *rest = content.systems
  config = {**first.config}
  config["train"] = {**config["train"], **train}
  config["decode"] = {**config["decode"], **decode}
  first = dataclasses.replace(first, config=config)
  assert expected in report.markdown(made(systems=(first, *rest)))
