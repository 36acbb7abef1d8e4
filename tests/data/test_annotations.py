"""Tests annotations of words, from CoNLL-U to the features of a modifier."""

import control_trees
import jax.numpy as jnp
import numpy as np
import parsers_under_test
import pytest
import tensorflow_datasets as tfds
from toy_folders import opened

from jaxsyn.configs import base
from jaxsyn.data import schema
from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.vocabulary import Subwords, train
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.models.contract import sentence_features
from jaxsyn.preprocess import build, features, verify

# "zum" is a token of two words; "x" is no part of speech; the third line has no
# tree.
UPOS = """\
# text = er geht zum Haus
1\ter\ter\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tgeht\tgehen\tVERB\t_\tTense=Pres\t0\troot\t_\tX=1
3-4\tzum\t_\t_\t_\t_\t_\t_\t_\t_
3\tzu\tzu\tADP\t_\t_\t5\tcase\t_\t_
4\tdem\tder\tDET\t_\t_\t5\tdet\t_\t_
5\tHaus\tHaus\tNOUN\t_\t_\t2\tobl\t_\tSpaceAfter=No

# text = ja
1\tja\tja\tx\t_\t_\t0\troot\t_\t_

""" + conllu.to_text(conllu.unparsed("oh je"), "3")
LABELS = ANNOTATIONS["upos"].labels
UPOS_IDS = [
  [LABELS.index(name) + 1 for name in ("PRON", "VERB", "ADP", "NOUN")],
  [0],
  [0, 0],
]
# Lemmas and features of the training and the validation split. In training, a
# occurs 3 times, b and c twice, d and <unk> once; one word has no lemma. In
# the validation split, d is frequent.
LEMMAS = [["b", "a", "a"], ["c", "a", "<unk>"], ["d", "b", "_"], ["c"]]
FEATS = [["A=1", "_", "B=2|A=1"], ["A=1|B=2", "_", "A=1"], ["_"] * 3, ["C=3"]]
HELD_OUT = [["d", "d", "e"], ["d", "a", "_"]]


def treebank(lemmas, feats):
  """Returns CoNLL-U; the first word of a sentence is the root."""
  lines = []
  for lemma_W, feats_W in zip(lemmas, feats):
    lines.append(f"# text = {' '.join('w' * len(lemma_W))}")
    for i, (lemma, feature) in enumerate(zip(lemma_W, feats_W)):
      lines.append(
        f"{i + 1}\tw\t{lemma}\tX\t_\t{feature}\t{min(i, 1)}\tdep\t_\t_"
      )
    lines.append("")
  return "\n".join([*lines, ""])


def folder_of(raw, annotations, splits):
  """Prepares treebanks; returns the dataset directory."""
  config = base.get_config()
  config.data.update(name="toy", directory=str(raw / "data"), test=())
  config.data.validation = [*splits][-1]
  for name, text in splits.items():
    (raw / f"{name}.conllu").write_text(text)
    (raw / f"{name}.en").write_text("yes\n" * text.count("# text"))
    config.prepare.splits[name] = (f"{name}.conllu", f"{name}.en")
  config.prepare.parse.annotations = annotations
  config.prepare.vocabulary.update(size=60, joint=False, type="char")
  return build.run(config, str(raw))


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
  raw = tmp_path_factory.mktemp("closed")
  return folder_of(raw, ("upos",), {"train": UPOS})


@pytest.fixture(scope="module")
def opened_labels(tmp_path_factory):
  """A dataset with at most three labels of an annotation."""
  raw = tmp_path_factory.mktemp("open")
  splits = {
    "train": treebank(LEMMAS, FEATS),
    "validation": treebank(HELD_OUT, [["_"] * 3] * 2),
  }
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(features, "_LABELS", 3)
    return folder_of(raw, ("lemma", "feats"), splits)


def values_of(directory, split, feature):
  return [one[feature].tolist() for one in Dataset(directory).split(split)]


def test_modifiers_read_the_annotations_of_words(closed):
  assert values_of(closed, "train", "source_upos") == UPOS_IDS
  loader = opened(Dataset(closed).split("train"), ["source_upos"], tokens=600)
  batch = next(loader.batches(Position())).batch
  (row,) = np.flatnonzero((batch["source_id_BS"] > 3).sum(1) > 10)
  batch = {name: jnp.asarray(array) for name, array in batch.items()}
  view = sentence_features(batch, "source")
  word_S, upos_S = view.word_BS[row], view.annotation_BS("upos")[row]
  for word, upos in zip(word_S.tolist(), upos_S.tolist()):
    assert upos == (UPOS_IDS[0][word] if word >= 0 else 0)
  # Stored trees keep all columns.
  path = manifests.sentence_file(closed, "conllu", "train", "source")
  first, *_ = conllu.read(path)
  row_W = [line.split("\t") for line in first.line_W]
  assert row_W[1][2:6] == ["gehen", "VERB", "_", "Tense=Pres"]
  assert [row[9] for row in row_W] == ["_", "X=1", "_", "_"]


def test_words_have_the_ids_of_their_labels(opened_labels):
  for split, feature, expected in (
    ("train", "lemma", [[3, 2, 2], [4, 2, 1], [1, 3, 0], [4]]),
    ("train", "feats", [[2, 0, 3], [3, 0, 2], [0, 0, 0], [4]]),
    ("validation", "lemma", [[1, 1, 1], [1, 2, 0]]),
  ):
    assert values_of(opened_labels, split, f"source_{feature}") == expected


def test_open_labels_are_the_most_frequent_of_training(opened_labels, capsys):
  manifest = manifests.read(opened_labels)
  # Equally frequent labels are sorted; the first label is that of rare ones.
  labels = {
    "lemma": ["<unk>", "a", "b", "c"],
    "feats": ["<unk>", "A=1", "A=1|B=2", "C=3"],
  }
  assert manifest["labels"] == {"source": labels}
  counts = dict(schema.label_counts(manifest, "source"))
  assert counts == {"upos": 17, "lemma": 4, "feats": 4}
  folder = manifests.tfds_folder(opened_labels, manifest)
  info = tfds.builder_from_directory(folder).info
  names = info.features["source_lemma"].feature.names
  assert names == ["<none>", *labels["lemma"]]
  verify.run(opened_labels)  # makes the values again from the trees
  assert "is intact" in capsys.readouterr().out


def test_rejects_invalid_labels_in_a_manifest(opened_labels):
  manifest = manifests.read(opened_labels)
  expected = manifest["labels"]["source"]
  for labels, message in (
    ({}, "labels must be of the open annotations, "),
    ({"source": {"lemma": expected["lemma"]}}, "labels must be of the open"),
    ({"source": expected, "target": expected}, "labels must be of the open"),
    ({"source": {**expected, "lemma": ["a"]}}, r"lemma must be .*<unk> first"),
    (
      {"source": {**expected, "lemma": ["<unk>", "a", "a"]}},
      "different labels",
    ),
  ):
    with pytest.raises(InputError, match=message):
      manifests.write(opened_labels, {**manifest, "labels": labels})


def test_raw_text_gets_annotations_of_the_parser(shared_data, tmp_path):
  """UDPipe's part of speech, features and lemma, as in prepared data."""
  parse = parsers_under_test.udpipe(shared_data, "english")
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
