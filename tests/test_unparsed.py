"""Systems that read trees, on data in which sentences have none."""

import dataclasses
import json

import pytest
import raw_corpora

from jaxsyn import compare, train
from jaxsyn.config import read_config
from jaxsyn.data.sentence import conllu
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import check_parsed, resolve
from jaxsyn.preprocess import build

SIDES = ("source", "target")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  """A function (name, parsed): prepares data in which some sentences have no tree.

  `parsed` is split -> side -> function: whether sentence i has a tree.
  """
  base = tmp_path_factory.mktemp("unparsed")

  def make(name, parsed):
    config = raw_corpora.corpus(base / name)
    config.prepare.parse.sides = SIDES
    for split in ("train", "test"):
      source = raw_corpora.lines_of(config, f"{split}.en")
      for side, lines in zip(SIDES, (source, [s.upper() for s in source])):
        path = base / name / "raw" / f"{split}.{side}.conllu"
        blocks = []
        for i, line in enumerate(lines):
          parse = conllu.unparsed(line)
          if parsed[split][side](i):
            blocks.append(raw_corpora.chain(line))
          else:
            blocks.append(conllu.to_text(parse, str(i)))
        path.write_text("".join(blocks))
        config.prepare.parse[f"{side}_conllu"][split] = str(path)
    build.run(config, str(base / name / "raw"))
    return config.data.directory

  return make


@pytest.fixture(scope="module")
def folders(corpus):
  def all_(_):
    return True

  def none(_):
    return False

  complete, no = dict.fromkeys(SIDES, all_), dict.fromkeys(SIDES, none)
  return {
    "none": corpus("none", {"train": no, "test": no}),
    "source": corpus(
      "source",
      {split: {"source": all_, "target": none} for split in ("train", "test")},
    ),
    "some": corpus(
      "some",
      {
        "train": {"source": lambda i: i % 10 > 0, "target": all_},
        "test": no,
      },
    ),
    "few": corpus(
      "few",
      {
        "train": {"source": lambda i: i % 30 > 0, "target": all_},
        "test": complete,
      },
    ),
  }


def config_of(tiny, folder, system, tree="parsed"):
  config = tiny(system)
  config.data.directory, config.data.tree = folder, tree
  config.data.validation, config.batch.shapes = "test", 1
  config.train.update(steps=1, evaluate_every=1, selection="log_likelihood")
  return config


@pytest.mark.parametrize(
  "folder, system, tree, side",
  [
    ("none", "pascal", "parsed", "source"),
    ("none", "pascal", "random", "source"),
    ("none", "pascal", "linear", "source"),
    ("none", "pascal", "wrong_parents", "source"),
    ("none", "label_embedding", "parsed", "source"),
    ("none", "gru_syntax", "parsed", "source"),
    ("source", "dbsa", "parsed", "target"),
    ("source", "sync_attention", "parsed", "target"),
  ],
)
def test_rejects_training_without_any_tree(
  tiny, folders, tmp_path, folder, system, tree, side
):
  config = config_of(tiny, folders[folder], system, tree)
  message = (
    rf"none of the 60 training sentences in .*/{folder}/out has a tree of the "
    rf"{side}, which system '{system}' reads\. Prepare the data again with a "
    rf"parser \(config\.prepare\.parse\.{side}\.parser\)"
  )
  with pytest.raises(InputError, match=message):
    train.run(config, tmp_path / "run")
  with pytest.raises(InputError, match=message):
    compare.run({system: config}, tmp_path / "comparison", 1)
  assert not [*tmp_path.iterdir()]


def test_a_system_without_trees_trains_on_unparsed_sentences(
  tiny, folders, tmp_path, capsys
):
  config = config_of(tiny, folders["none"], "transformer")
  assert train.run(config, tmp_path / "run").step == 1
  assert "warning" not in capsys.readouterr().out


def test_warns_of_many_unparsed_sentences(tiny, folders, tmp_path, capsys):
  config = config_of(tiny, folders["some"], "pascal")
  train.run(config, tmp_path / "run")
  message = [
    line.replace(folders["some"], "DATA")
    for line in capsys.readouterr().out.splitlines()
    if line.startswith("warning")
  ]
  assert message == [
    "warning: 6 of the 60 sentences of split 'train' in DATA (10.0 %) have no "
    "tree of the source; there system 'pascal' works as the plain model.",
    "warning: 7 of the 7 sentences of split 'test' in DATA (100.0 %) have no "
    "tree of the source; there system 'pascal' works as the plain model.",
  ]


def test_does_not_warn_of_few_unparsed_sentences(tiny, folders):
  with open(f"{folders['few']}/manifest.json") as file:
    manifest = json.load(file)
  assert manifest["splits"]["train"]["unparsed"] == 2
  config = read_config(config_of(tiny, folders["few"], "pascal"))
  assert check_parsed(resolve(config, manifest), Dataset(folders["few"])) == []


def test_counts_trees_of_all_corpora_of_a_mixture(tiny, folders):
  config = config_of(tiny, folders["none"], "pascal")
  config = read_config(config)
  mixture = dataclasses.replace(config.data.mixture, folders=(folders["few"],))
  data = dataclasses.replace(config.data, mixture=mixture)
  with open(f"{folders['none']}/manifest.json") as file:
    plan = resolve(config, json.load(file))
  plan = dataclasses.replace(
    plan, config=dataclasses.replace(config, data=data)
  )
  message = check_parsed(plan, Dataset(folders["none"]))
  assert message[0].startswith("62 of the 120 sentences of split 'train'")
