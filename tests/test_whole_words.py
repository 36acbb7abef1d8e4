"""Tests vocabularies of whole words from raw text to translations."""

import gzip
import re

import pytest

from jaxsyn import train
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.vocabulary import UNKNOWN
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.preprocess import build
from jaxsyn.session import Session

SPLITS = ("train", "validation", "test")


def text(directory, split, side):
  with gzip.open(
    manifests.sentence_file(directory, "text", split, side), "rt"
  ) as file:
    return file.read().splitlines()


@pytest.fixture
def config_of(prepared, tiny, tmp_path):
  """A function system -> config of the tiny corpus with whole-word vocabularies."""

  def make(system):
    config = tiny(system)
    config.data.directory = str(tmp_path / "words")
    prepare = config.prepare
    for split in SPLITS:
      prepare.splits[split] = tuple(
        str(manifests.sentence_file(prepared, "text", split, side))
        for side in schema.SIDES
      )
      prepare.parse.target_conllu[split] = str(
        manifests.sentence_file(prepared, "conllu", split, "target")
      )
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

  return make


def test_whole_words_from_text_to_translations(config_of, tmp_path):
  config = config_of("pascal")
  folder = build.run(config, str(tmp_path))

  # Each text between two blanks is one subword; it belongs to the parser's word of
  # its first character.
  trees = conllu.read(
    manifests.sentence_file(folder, "conllu", "test", "source")
  )
  lines = text(folder, "test", "source")
  parses = conllu.match(trees, lines, "test")
  unknown = multiple = words = 0
  for line, parse, example in zip(lines, parses, Dataset(folder).split("test")):
    starts = [match.start() for match in re.finditer(r"\S+", line)]
    expected = [parse.start_W.index(start) for start in starts]
    assert example["source_word"].tolist() == [*expected, -1]
    words += len(starts)
    multiple += len(parse.start_W) - len(starts)
    unknown += int((example["source_id"] == schema.UNK).sum())
  assert 0 < unknown < words and multiple > 0
  report = (folder / "report.txt").read_text()
  (messages,) = re.findall(r"\n\ntest: (?:.+\n)+", report)
  assert f"; {unknown} unknown ({100 * unknown / words:.2f} %)\n" in messages

  run = tmp_path / "run"
  assert train.run(config, run).step == config.train.steps
  session = Session(run, beam=2)
  source, target = (session.run.vocabulary(s) for s in schema.SIDES)
  assert source.whole_words and source.sha256 != target.sha256
  # Unknown words are one subword each, and have parents.
  example = session.example("Blick zorg the quux")
  the = source.encode("the").id[0]
  assert example["source_id"].tolist() == [
    *[schema.UNK] * 2,
    the,
    schema.UNK,
    3,
  ]
  assert example["source_word"].tolist() == [0, 1, 2, 3, -1]
  # Most target words are unknown, which is learned first.
  shown = {target.decode([i]) for i in range(4, target.size)} | {UNKNOWN}
  for best, *_ in session(["The duck quuxed .", "The duck arrived."]):
    assert UNKNOWN in best.text
    assert set(best.text.split(" ")) <= shown
    assert len(best.text.split(" ")) == len(best.ids)
  assert session([""])[0][0].text == ""
