"""A corrupt checkpoint is an error if its numbers are passed on, else a warning."""

import shutil

import pytest
from corruptions import CORRUPTIONS

from jaxsyn import export, train
from jaxsyn.errors import InputError
from jaxsyn.exporting import FORMATS
from jaxsyn.session import Session


def corrupt(path):
  path.write_bytes(CORRUPTIONS["swap_parts"](path.read_bytes(), None))


@pytest.fixture
def corrupt_run(runs, tmp_path):
  """A run whose best checkpoint, of step 20, is corrupt, and the corrupt file.

  Its newest intact checkpoint is that of step 10.
  """
  folder = shutil.copytree(runs["pascal"], tmp_path / "corrupt")
  files = [p for p in (folder / "best" / "20").rglob("*") if p.is_file()]
  file = max(files, key=lambda path: path.stat().st_size)
  corrupt(file)
  shutil.rmtree(folder / "checkpoints" / "20")
  return folder, file


def check_message(message, file, remedy):
  assert "the best checkpoint, of step 20, is corrupt" in message
  assert str(file) in message and remedy in message


@pytest.mark.parametrize("use", [*FORMATS, "teacher"])
def test_exports_and_teachers_must_be_intact(corrupt_run, tiny, tmp_path, use):
  run, file = corrupt_run
  out, remedy = tmp_path / "out", "--checkpoint=10."
  with pytest.raises(InputError) as error:
    if use == "teacher":
      config = tiny("distilled_words")
      config.losses.word_distillation.teacher = str(run)
      remedy = "--config.losses.word_distillation.checkpoint=10."
      train.run(config, out)
    else:
      export.run(run, out, use)
  check_message(str(error.value), file, remedy)
  assert not out.exists()


def test_export_rejects_a_missing_or_corrupt_checkpoint(runs, tmp_path):
  run = shutil.copytree(runs["pascal"], tmp_path / "run")
  shutil.rmtree(run / "best")
  with pytest.raises(InputError, match=r"of step 20, is corrupt or missing"):
    export.run(run, tmp_path / "out")
  metadata = run / "checkpoints" / "20" / "metadata" / "metadata.json"
  corrupt(metadata)
  with pytest.raises(InputError) as error:
    export.run(run, tmp_path / "out", checkpoint="last")
  assert str(metadata) in str(error.value)
  assert str(error.value).endswith("--checkpoint=10.")
  assert not (tmp_path / "out").exists()


def test_translation_and_a_warm_start_warn(corrupt_run, tiny, tmp_path, capsys):
  (run, file), config = corrupt_run, tiny("pascal")
  used = "the checkpoint of step 10 is used instead"
  Session(run)
  check_message(capsys.readouterr().err, file, used)
  config.batch.shapes = 1
  config.train.start.run = str(run)
  config.train.update(steps=1, evaluate_every=9, selection="log_likelihood")
  train.run(config, tmp_path / "run")
  check_message(capsys.readouterr().err, file, used)
  assert used in (tmp_path / "run" / "start.json").read_text()
