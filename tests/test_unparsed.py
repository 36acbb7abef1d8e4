"""Systems that read trees, on data whose sentences lack trees."""

import dataclasses

import pytest
import raw_corpora

import jaxsyn.plan
from jaxsyn import compare, train
from jaxsyn.config import read_config
from jaxsyn.data.sentence import conllu
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import check_parsed, resolve
from jaxsyn.preprocess import build


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  """Dataset directories: no trees; and trees of most training sources only."""
  base = tmp_path_factory.mktemp("unparsed")

  def make(name, is_parsed):
    config = raw_corpora.corpus(base / name)
    config.prepare.parse.sides = ("source", "target")
    for split in ("train", "test"):
      lines = raw_corpora.lines_of(config, f"{split}.en")
      for side in ("source", "target"):
        texts = lines if side == "source" else [line.upper() for line in lines]
        path = base / name / "raw" / f"{split}.{side}.conllu"
        blocks = [
          raw_corpora.chain(line)
          if is_parsed(split, side, i)
          else conllu.to_text(conllu.unparsed(line), str(i))
          for i, line in enumerate(texts)
        ]
        path.write_text("".join(blocks))
        config.prepare.parse[f"{side}_conllu"][split] = str(path)
    build.run(config, str(base / name / "raw"))
    return config.data.directory

  def most_sources(split, side, i):
    return (split, side) == ("train", "source") and i % 10 > 0

  return {
    "none": make("none", lambda split, side, i: False),
    "most": make("most", most_sources),
  }


@pytest.fixture
def config_of(tiny, folders):
  """A function (folder, system, tree) -> config."""

  def make(folder, system, tree="parsed"):
    config = tiny(system)
    config.data.directory, config.data.tree = folders[folder], tree
    config.data.validation, config.batch.shapes = "test", 1
    config.optimiser.schedule = "constant"
    config.train.update(steps=1, evaluate_every=1, selection="log_likelihood")
    return config

  return make


def warnings_of(config, **data):
  """The warnings of `check_parsed`, with other options of config.data."""
  dataset = Dataset(config.data.directory)
  plan = resolve(read_config(config), dataset.manifest)
  data = dataclasses.replace(plan.config.data, **data)
  config = dataclasses.replace(plan.config, data=data)
  return check_parsed(dataclasses.replace(plan, config=config), dataset)


@pytest.mark.parametrize(
  "folder, system, tree, side",
  [
    ("none", "pascal", "random", "source"),
    ("none", "pascal", "wrong_parents", "source"),
    ("none", "label_embedding", "parsed", "source"),
    ("none", "gru_syntax", "parsed", "source"),
    ("most", "dbsa", "parsed", "target"),
    ("most", "sync_attention", "parsed", "target"),
  ],
)
def test_rejects_training_without_any_tree(
  config_of, tmp_path, folder, system, tree, side
):
  config = config_of(folder, system, tree)
  message = (
    rf"none of the 60 training sentences in .*/{folder}/out has a tree of the "
    rf"{side}, which system '{system}' reads\. .*\.parse\.{side}\.parser\)"
  )
  for command in (
    lambda: train.run(config, tmp_path / "run"),
    lambda: compare.run({system: config}, tmp_path / "comparison", 1),
  ):
    with pytest.raises(InputError, match=message):
      command()
  assert not [*tmp_path.iterdir()]


def test_warns_of_many_unparsed_sentences(
  config_of, folders, tmp_path, capsys, monkeypatch
):
  train.run(config_of("most", "pascal"), tmp_path / "run")
  lines = capsys.readouterr().out.replace(folders["most"], "DATA").splitlines()
  assert [line for line in lines if line.startswith("warning")] == [
    "warning: 6 of the 60 sentences of split 'train' in DATA (10.0 %) have no "
    "tree of the source; there system 'pascal' works as the plain model.",
    "warning: 7 of the 7 sentences of split 'test' in DATA (100.0 %) have no "
    "tree of the source; there system 'pascal' works as the plain model.",
  ]
  # It does not warn of few sentences, or if the system reads no trees.
  assert warnings_of(config_of("none", "transformer")) == []
  monkeypatch.setattr(jaxsyn.plan, "MAX_UNPARSED", 0.11)
  (warning,) = warnings_of(config_of("most", "pascal"))
  assert "split 'test'" in warning


def test_counts_trees_of_all_corpora_of_a_mixture(config_of, folders):
  config = config_of("none", "pascal")
  mixture = dataclasses.replace(
    read_config(config).data.mixture, folders=(folders["most"],)
  )
  warning, *_ = warnings_of(config, mixture=mixture)
  assert warning.startswith("66 of the 120 sentences of split 'train'")
