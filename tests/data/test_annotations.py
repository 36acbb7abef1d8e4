"""An annotation of words, from CoNLL-U to what a part reads."""

import jax.numpy as jnp
import numpy as np
import pytest
from toy_folders import opened, values

from jaxsyn.configs import base
from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.loader.batch_plan import Position
from jaxsyn.data.sentence import conllu, conllu_text
from jaxsyn.data.store import layout, manifests
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.errors import InputError
from jaxsyn.models.contract import view_of
from jaxsyn.preprocess import build, verify

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
  none = conllu_text.to_text(conllu_text.unparsed("oh je"), "3")
  (raw / "de.conllu").write_text(TREES + none)
  (raw / "en").write_text("he goes\nyes\noh dear\n")
  config = base.get_config()
  config.data.update(name="toy", directory=str(raw / "data"), test=())
  config.data.validation = "train"
  config.prepare.splits.train = ("de.conllu", "en")
  config.prepare.parse.annotations = ("upos",)
  config.prepare.vocabulary.update(size=60, joint=False, type="char")
  return build.run(config, str(raw)), config


def test_prepared_and_read_as_any_other_feature(folder, capsys):
  directory, config = folder
  verify.run(directory)
  assert "is whole" in capsys.readouterr().out
  assert build.run(config, str(directory.parent)) == directory
  assert "prepared already" in capsys.readouterr().out
  records = PreparedSplit(directory, "train")
  expected = [[PRON, VERB, ADP, NOUN], [0], [0, 0]]
  assert [one["source_upos"].tolist() for one in records] == expected

  split = opened(records, ["source_upos"], tokens=600)
  found = [values(split.held, "source_upos", i).tolist() for i in range(3)]
  assert found == expected
  batch = next(split.batches(Position())).batch
  (row,) = np.flatnonzero((batch["source_id_BS"] > 3).sum(1) > 10)
  batch = {name: jnp.asarray(array) for name, array in batch.items()}
  view = view_of(batch, "source")
  word_S, upos_S = view.word_BS[row], view.annotation_BS("upos")[row]
  for word, upos in zip(word_S.tolist(), upos_S.tolist()):
    assert upos == (expected[0][word] if word >= 0 else 0)


def test_given_conllu_keeps_what_annotations_read(folder):
  path = layout.conllu_file(folder[0], "train", "source")
  first, *_ = conllu.read(path)
  row_W = [line.split("\t") for line in first.line_W]
  assert row_W[1][2:6] == ["gehen", "VERB", "_", "Tense=Pres"]
  assert [row[9] for row in row_W] == ["_", "X=1", "_", "_"]


def test_data_and_manifests_that_lack_it_are_refused(folder):
  config = folder[1].copy_and_resolve_references()
  config.prepare.parse.annotations = ("upso",)
  with pytest.raises(
    InputError, match=r"annotations\[0\] has no annotation 'upso'.*upos"
  ):
    build.run(config, str(folder[0].parent))
  manifest = manifests.read(folder[0])
  with pytest.raises(InputError, match=r"annotations must be of upos"):
    manifests.write(folder[0], {**manifest, "annotations": ["tone"]})
