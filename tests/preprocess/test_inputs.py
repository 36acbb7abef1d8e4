"""What is refused before anything is made: names, empty splits, odd lines."""

import gzip
import pathlib

import pytest
from raw_corpora import chain, corpus, lines_of, nothing_made

from jaxsyn.data.schema import EOS
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build


def write(config, name, lines):
  """Writes a raw file anew; the trees of a source too."""
  folder = pathlib.Path(config.prepare.raw_dir)
  data = "".join(f"{line}\n" for line in lines).encode()
  if name.endswith(".gz"):
    data = gzip.compress(data)
  (folder / name).write_bytes(data)
  if name.endswith(".en"):
    trees = (folder / name).with_suffix(".conllu")
    trees.write_text("".join(map(chain, lines)))


@pytest.mark.parametrize(
  ("section", "field", "value", "message"),
  [
    ("data", "train", "trian", r"data\.train: no split 'trian'.*'train'"),
    ("data", "validation", "tset", r"data\.validation: .*'tset'.*mean 'test'"),
    ("data", "test", ("test", "x"), r"data\.test: no split 'x' .* to \(\)"),
    ("data", "name", "raw", r"data\.name must not be 'raw'"),
    (
      "prepare",
      "splits",
      {"Train": ("a", "b")},
      r"a name in .*splits must be lower case.*'Train'",
    ),
    (
      "prepare",
      "splits",
      {"a/b": ("a", "b")},
      r"a name in .*splits must be lower case.*'a/b'",
    ),
  ],
)
def test_reports_unknown_split_names(tmp_path, section, field, value, message):
  config = corpus(tmp_path)
  with config.unlocked():
    config[section][field] = value
  with pytest.raises(InputError, match=message):
    build.run(config)
  assert not pathlib.Path(config.data.directory).exists()


def test_suggests_names_of_splits(tmp_path):
  """The split would be made, and training would miss it."""
  config = corpus(tmp_path)
  config.data.validation = "validation"
  config.prepare.splits.valid = config.prepare.splits.test
  config.prepare.parse.source_conllu = {}
  with pytest.raises(InputError, match=r"data\.validation: .*mean 'valid'"):
    build.run(config)


def test_notes_splits_that_are_not_used(tmp_path, capsys):
  config = corpus(tmp_path)
  config.data.validation, config.data.test = "train", ()
  build.run(config)
  assert "note: test: prepared too" in capsys.readouterr().out


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("lines", [0, 1, 3])
def test_reports_a_split_without_text(tmp_path, split, lines):
  config = corpus(tmp_path)
  for name in (f"{split}.en", f"{split}.de.gz"):
    write(config, name, ["\u200b "] * lines)
  message = rf"splits\.{split}: .*/{split}\.en (has text|and .* are empty)"
  with pytest.raises(InputError, match=message):
    build.run(config)
  assert nothing_made(config)


def test_reports_lines_without_text(tmp_path):
  config = corpus(tmp_path)
  lines = lines_of(config, "test.en")
  write(config, "test.en", [*lines[:5], "", "a"])
  write(config, "test.de.gz", [*lines[:5], "b", " "])
  config.prepare.splits.test = ("test.en", "test.de.gz", "6-7")
  with pytest.raises(InputError, match=r"splits\.test: no line taken of"):
    build.run(config)


@pytest.mark.parametrize("name", ["test.en", "test.de.gz", "train.de.gz"])
def test_reports_nul_characters(tmp_path, name):
  config = corpus(tmp_path)
  config.prepare.clean.control = False
  lines = lines_of(config, name.split(".")[0] + ".en")
  lines[3] = "a\x00b"
  write(config, name, lines)
  with pytest.raises(InputError, match=rf"/{name}:4: there is a NUL"):
    build.run(config)
  assert nothing_made(config)


def test_drops_training_pairs_with_nul(tmp_path):
  config = corpus(tmp_path)
  lines = lines_of(config, "train.en")
  write(config, "train.de.gz", ["a\x00b", *lines[1:]])
  folder = build.run(config)
  assert manifests.read(folder)["splits"]["train"]["dropped"]["control"] == 1


def test_reports_other_control_characters(tmp_path, capsys):
  config = corpus(tmp_path)
  lines = lines_of(config, "test.en")
  lines[2] += " \x85\x1f"
  write(config, "test.de.gz", lines)
  folder = build.run(config)
  assert len(Dataset(folder).split("test")) == 7
  message = (
    r"test: 2 control characters stay in the target, the first (U+0085) in "
  )
  assert f"{message}{config.prepare.raw_dir}/test.de.gz:3\n" in (
    capsys.readouterr().out
  )


# Nothing to see in any of these; SentencePiece leaves no subword of the first
# four, and of the others its blank and an unknown one.
UNSEEN = ("\u200b", "\ufeff", "\u2581", " \u3000", "\u200d\u200d", "\u00ad")


def test_pairs_without_subwords(tmp_path):
  """They trained EOS to give EOS."""
  config = corpus(tmp_path)
  lines = lines_of(config, "train.en")
  write(config, "train.en", [*UNSEEN, *lines[6:]])
  write(config, "train.de.gz", [*lines[:6], *UNSEEN, *lines[12:]])
  tests = lines_of(config, "test.en")
  write(config, "test.en", [*UNSEEN, tests[6]])
  folder = build.run(config)
  facts = manifests.read(folder)["splits"]
  assert facts["train"]["dropped"]["empty"] == 12
  assert facts["train"]["blank"] == {"source": 0, "target": 0}
  for one in Dataset(folder).split("train"):
    assert len(one["source_id"]) > 1 and len(one["target_id"]) > 1
  # What is to be scored stays, and is told.
  assert facts["test"]["blank"] == {"source": 4, "target": 0}
  ids = [one["source_id"].tolist() for one in Dataset(folder).split("test")]
  assert [len(item) for item in ids[:6]] == [1, 1, 1, 1, 3, 3]
  assert ids[0] == [EOS]
  report = (folder / "report.txt").read_text()
  assert "dropped    empty 12" in report and "no text    source 4" in report


def test_reports_comments_without_a_sentence(tmp_path):
  config = corpus(tmp_path)
  path = pathlib.Path(config.prepare.raw_dir) / "test.conllu"
  blocks = path.read_text().split("\n\n")
  header = "# newdoc\n# global.columns = ID FORM\n"
  path.write_text("\n\n".join([header + blocks[0], *blocks[1:]]))
  build.run(config)
  for lost in ("# sent_id = 3\n# text = the dog", "# newpar\n# text = ."):
    path.write_text("\n\n".join([*blocks[:2], lost, *blocks[2:]]))
    before = "\n\n".join(blocks[:2]).count("\n") + 2
    index = before + 1 + lost.startswith("# newpar")
    with pytest.raises(
      InputError, match=rf"test\.conllu:{index}: a sentence .* without words"
    ):
      build.run(config)
    path.write_text("\n\n".join([*blocks[:-1], lost]))  # the last of the file
    with pytest.raises(InputError, match="without words"):
      build.run(config)
