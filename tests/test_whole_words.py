"""Tests vocabularies of whole words from raw text to translations."""

import re

import pytest

from jaxsyn import train
from jaxsyn.data import schema
from jaxsyn.data.sentence.vocabulary import UNKNOWN
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.preprocess import build
from jaxsyn.session import Session


@pytest.fixture
def config(prepared, tiny, tmp_path):
  """PASCAL with whole-word vocabularies, on the validation pairs of the corpus."""
  config = tiny("pascal")
  config.data.update(directory=str(tmp_path / "words"), test=())
  prepare = config.prepare
  files = [
    str(manifests.sentence_file(prepared, "text", "validation", side))
    for side in schema.SIDES
  ]
  trees = manifests.sentence_file(prepared, "conllu", "validation", "target")
  del prepare.splits["test"]
  del prepare.parse.target_conllu["test"]
  for split in ("train", "validation"):
    prepare.splits[split] = tuple(files)
    prepare.parse.target_conllu[split] = str(trees)
  prepare.parse.source.udpipe.model = str(prepared / "parser.source.udpipe")
  prepare.vocabulary.update(type="word", size=80, joint=False)
  prepare.workers, prepare.alignments = 1, {}
  config.model.tie_embeddings = False
  config.batch.shapes = 1
  config.optimiser.update(schedule="constant", learning_rate=0.01)
  config.train.update(steps=10, evaluate_every=10, save_every=10)
  config.train.validation_sentences = 2
  config.model.transformer.encoder_layers = 1
  return config


def test_whole_words_from_text_to_translations(config, tmp_path):
  folder = build.run(config, str(tmp_path))
  dataset = Dataset(folder)
  split = dataset.split("validation")
  # The text between two blanks is one subword. It belongs to the parser's word of
  # its first character.
  unknown = words = 0
  for parse, example in zip(dataset.trees("validation", "source"), split):
    starts = [match.start() for match in re.finditer(r"\S+", parse.text)]
    expected = [parse.start_W.index(start) for start in starts]
    assert example["source_word"].tolist() == [*expected, -1]
    words += len(starts)
    unknown += int((example["source_id"] == schema.UNK).sum())
  assert 0 < unknown < words
  (report,) = re.findall(
    r"\n\nvalidation: (?:.+\n)+", (folder / "report.txt").read_text()
  )
  assert f"; {unknown} unknown ({100 * unknown / words:.2f} %)\n" in report

  run = tmp_path / "run"
  assert train.run(config, run).step == config.train.steps
  session = Session(run, beam=2)
  source, target = (session.run.vocabulary(s) for s in schema.SIDES)
  assert source.whole_words and source.sha256 != target.sha256
  # Unknown words are one subword each, and have parents.
  example = session.sources.example("Blick zorg the quux")
  the = source.encode("the").id[0]
  ids = [schema.UNK, schema.UNK, the, schema.UNK, schema.EOS]
  assert example["source_id"].tolist() == ids
  assert example["source_word"].tolist() == [0, 1, 2, 3, -1]
  # Most target words are unknown, which is learned first.
  known = {target.decode([i]) for i in range(4, target.size)} | {UNKNOWN}
  for best, *_ in session(["The duck quuxed .", "The duck arrived."]):
    assert UNKNOWN in best.text
    assert set(best.text.split(" ")) <= known
    assert len(best.text.split(" ")) == len(best.ids)
  assert session([""])[0][0].text == ""
