"""Tests annotations of words, from CoNLL-U to the features of a modifier."""

import control_trees
import jax.numpy as jnp
import numpy as np
import pytest
from toy_folders import opened, values

from jaxsyn.configs import base
from jaxsyn.data import schema
from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.sentence.vocabulary import Subwords, train
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.models.contract import sentence_features
from jaxsyn.preprocess import build, features, verify

# "zum" is a token of two words; "x" is no part of speech.
TREES = """\
# text = er geht zum Haus
1\ter\ter\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tgeht\tgehen\tVERB\t_\tTense=Pres\t0\troot\t_\tX=1
3-4\tzum\t_\t_\t_\t_\t_\t_\t_\t_
3\tzu\tzu\tADP\t_\t_\t5\tcase\t_\t_
4\tdem\tder\tDET\t_\t_\t5\tdet\t_\t_
5\tHaus\tHaus\tNOUN\t_\t_\t2\tobl\t_\tSpaceAfter=No

# text = ja
1\tja\tja\tx\t_\t_\t0\troot\t_\t_

"""
LABELS = ANNOTATIONS["upos"].labels
PRON, VERB, ADP, NOUN = (
  LABELS.index(name) + 1 for name in ("PRON", "VERB", "ADP", "NOUN")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A treebank, its third line not parsed, prepared with parts of speech."""
  raw = tmp_path_factory.mktemp("raw")
  none = conllu.to_text(conllu.unparsed("oh je"), "3")
  (raw / "de.conllu").write_text(TREES + none)
  (raw / "en").write_text("he goes\nyes\noh dear\n")
  config = base.get_config()
  config.data.update(name="toy", directory=str(raw / "data"), test=())
  config.data.validation = "train"
  config.prepare.splits.train = ("de.conllu", "en")
  config.prepare.parse.annotations = ("upos",)
  config.prepare.vocabulary.update(size=60, joint=False, type="char")
  return build.run(config, str(raw)), config


def test_annotation_is_prepared_and_read_as_a_feature(folder, capsys):
  directory, config = folder
  verify.run(directory)
  assert "is intact" in capsys.readouterr().out
  assert build.run(config, str(directory.parent)) == directory
  assert "prepared already" in capsys.readouterr().out
  records = Dataset(directory).split("train")
  expected = [[PRON, VERB, ADP, NOUN], [0], [0, 0]]
  assert [one["source_upos"].tolist() for one in records] == expected

  split = opened(records, ["source_upos"], tokens=600)
  collected = [
    values(split.all_examples, "source_upos", i).tolist() for i in range(3)
  ]
  assert collected == expected
  batch = next(split.batches(Position())).batch
  (row,) = np.flatnonzero((batch["source_id_BS"] > 3).sum(1) > 10)
  batch = {name: jnp.asarray(array) for name, array in batch.items()}
  view = sentence_features(batch, "source")
  word_S, upos_S = view.word_BS[row], view.annotation_BS("upos")[row]
  for word, upos in zip(word_S.tolist(), upos_S.tolist()):
    assert upos == (expected[0][word] if word >= 0 else 0)


def test_given_conllu_keeps_annotation_columns(folder):
  path = manifests.sentence_file(folder[0], "conllu", "train", "source")
  first, *_ = conllu.read(path)
  row_W = [line.split("\t") for line in first.line_W]
  assert row_W[1][2:6] == ["gehen", "VERB", "_", "Tense=Pres"]
  assert [row[9] for row in row_W] == ["_", "X=1", "_", "_"]


def test_rejects_data_without_the_annotation(folder):
  config = folder[1].copy_and_resolve_references()
  config.prepare.parse.annotations = ("upso",)
  with pytest.raises(
    InputError, match=r"annotations\[0\] has no annotation 'upso'.*upos"
  ):
    build.run(config, str(folder[0].parent))
  manifest = manifests.read(folder[0])
  with pytest.raises(
    InputError, match=r"annotations.0. has no annotation .tone..*upos"
  ):
    manifests.write(folder[0], {**manifest, "annotations": ["tone"]})


# Lemmas: a 3, b 2, c 2, d 1, "<unk>" 1; nothing is said of one word.
LEMMAS = [["b", "a", "a"], ["c", "a", "<unk>"], ["d", "b", "_"], ["c"]]
FEATS = [["A=1", "_", "B=2|A=1"], ["A=1|B=2", "_", "A=1"], ["_"] * 3, ["C=3"]]
# Of validation, not counted: "d" is more frequent than "b" with it.
HELD_OUT = [["d", "d", "e"], ["d", "a", "_"]]


def rows(lemmas, feats=None):
  """A block of CoNLL-U a sentence; the first word is the root."""
  for i, words in enumerate(lemmas):
    yield f"# text = {' '.join('w' * len(words))}"
    for j, lemma in enumerate(words):
      message = feats[i][j] if feats else "_"
      yield f"{j + 1}\tw\t{lemma}\tX\t_\t{message}\t{min(j, 1)}\tdep\t_\t_"
    yield ""


@pytest.fixture(scope="module")
def opened_labels(tmp_path_factory):
  """Lemmas and features of a treebank, three and no limit that counts."""
  raw = tmp_path_factory.mktemp("open")
  for name, item, feats in (("a", LEMMAS, FEATS), ("b", HELD_OUT, None)):
    (raw / f"{name}.conllu").write_text("\n".join(rows(item, feats)) + "\n")
    (raw / f"{name}.en").write_text("yes\n" * len(item))
  config = base.get_config()
  config.data.update(name="toy", directory=str(raw / "data"), test=())
  config.prepare.splits.train = ("a.conllu", "a.en")
  config.prepare.splits.validation = ("b.conllu", "b.en")
  config.prepare.parse.annotations = ("lemma", "feats")
  config.prepare.vocabulary.update(size=60, joint=False, type="char")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(features, "_LABELS", 3)
    return build.run(config, str(raw)), config


def test_open_labels_are_the_most_frequent_of_training(opened_labels):
  manifest = manifests.read(opened_labels[0])
  # Equally frequent ones by their characters; what is rare is the first.
  assert manifest["labels"] == {
    "source": {
      "lemma": ["<unk>", "a", "b", "c"],
      "feats": ["<unk>", "A=1", "A=1|B=2", "C=3"],
    }
  }
  assert dict(schema.label_counts(manifest, "source")) == {
    "upos": 17,
    "lemma": 4,
    "feats": 4,
  }


@pytest.mark.parametrize(
  "split, feature, expected",
  [
    ("train", "lemma", [[3, 2, 2], [4, 2, 1], [1, 3, 0], [4]]),
    ("train", "feats", [[2, 0, 3], [3, 0, 2], [0, 0, 0], [4]]),
    ("validation", "lemma", [[1, 1, 1], [1, 2, 0]]),
  ],
)
def test_words_have_the_ids_of_their_labels(
  opened_labels, split, feature, expected, capsys
):
  records = Dataset(opened_labels[0]).split(split)
  result = [one[f"source_{feature}"].tolist() for one in records]
  assert result == expected
  verify.run(opened_labels[0])  # which makes them once more, from the trees
  assert "is intact" in capsys.readouterr().out


def test_dataset_documentation_has_the_labels(opened_labels):
  import tensorflow_datasets as tfds

  manifest = manifests.read(opened_labels[0])
  folder = manifests.tfds_folder(opened_labels[0], manifest)
  info = tfds.builder_from_directory(folder).info
  lemma = info.features["source_lemma"].feature
  assert lemma.names == ["<none>", "<unk>", "a", "b", "c"]


def test_rejects_invalid_labels_in_a_manifest(opened_labels):
  directory, _ = opened_labels
  manifest = manifests.read(directory)
  expected = manifest["labels"]["source"]
  for labels, message in (
    ({}, "labels must be of the open annotations, "),
    ({"source": {"lemma": expected["lemma"]}}, "labels must be of the open"),
    ({"source": expected, "target": expected}, "labels must be of the open"),
    ({"source": {**expected, "upos": ["<unk>"]}}, "labels must be of the open"),
    ({"source": {**expected, "lemma": ["a"]}}, r"lemma must be .*<unk> first"),
    (
      {"source": {**expected, "lemma": ["<unk>", "a", "a"]}},
      "different labels",
    ),
  ):
    with pytest.raises(InputError, match=message):
      manifests.write(directory, {**manifest, "labels": labels})


def test_raw_text_gets_annotations_of_the_parser(shared_data, tmp_path):
  """UDPipe's part of speech, features and lemma, as in prepared data."""
  parse = UDPipe(shared_data / "udpipe" / "english.udpipe")
  ids = {
    "lemma": {"<unk>": 1, "be": 2, "dog": 3},
    "feats": {"<unk>": 1, "Number=Plur": 2},
  }
  lines = ["Dogs are running .", "zzgh"]
  options = Subwords(size=40, type="char")
  vocabulary = train(lines, tmp_path / "vocabulary.model", options)
  result = control_trees.encode(
    parse(lines[0]),
    None,
    vocabularies=(vocabulary, vocabulary),
    relations={"source": {}},
    annotations=("upos", "feats", "lemma"),
    labels={"source": ids},
  )
  upos = [LABELS[i - 1] for i in result["source_upos"].tolist()]
  assert upos == ["NOUN", "AUX", "VERB", "PUNCT"]
  assert result["source_lemma"].tolist() == [3, 2, 1, 1]
  assert result["source_feats"].tolist() == [2, 1, 1, 0]
