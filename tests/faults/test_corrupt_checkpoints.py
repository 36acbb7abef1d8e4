"""Every command rejects a corrupt checkpoint that it was to use."""

import json
import shutil

import pytest
from corruptions import CORRUPTIONS

from jaxsyn import export, train
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.storage import checksums


def corrupt(path):
  path.write_bytes(CORRUPTIONS["swap_parts"](path.read_bytes(), None))


@pytest.fixture
def run(runs, tmp_path):
  return shutil.copytree(runs["pascal"], tmp_path / "run")


def largest_file(folder):
  files = (path for path in folder.rglob("*") if path.is_file())
  return max(files, key=lambda path: path.stat().st_size)


@pytest.mark.parametrize(
  "option",
  [
    "--checkpoint",
    "--config.losses.word_distillation.checkpoint",
    "--config.train.start.checkpoint",
  ],
)
def test_a_corrupt_checkpoint_is_rejected(run, tiny, tmp_path, option):
  file, out = largest_file(run / "best" / "20"), tmp_path / "out"
  corrupt(file)
  if option == "--checkpoint":
    actions = [lambda: Session(run), lambda: export.run(run, out)]
  else:
    is_teacher = "distillation" in option
    config = tiny("distilled_words" if is_teacher else "pascal")
    if is_teacher:
      config.losses.word_distillation.teacher = str(run)
    else:
      config.train.start.run = str(run)
    actions = [lambda: train.run(config, out)]
  for action in actions:
    with pytest.raises(InputError) as error:
      action()
    assert str(file) in str(error.value)
    assert str(error.value).endswith(
      f"choose another one with {option}: 10, 20."
    )
    assert not out.exists()


def test_a_missing_best_or_a_corrupt_last_checkpoint_is_rejected(run):
  shutil.rmtree(run / "best")
  with pytest.raises(
    InputError, match=r"best lacks the .* checkpoint, of step 20"
  ):
    Session(run)
  metadata = run / "checkpoints" / "20" / "metadata" / "metadata.json"
  corrupt(metadata)
  for checkpoint in ("last", "20"):
    with pytest.raises(InputError) as error:
      Session(run, checkpoint=checkpoint)
    assert str(metadata) in str(error.value)
  assert Session(run, checkpoint="10").chosen == "the checkpoint of step 10"


def test_warns_before_the_first_validation(run, capsys):
  Session(run)
  assert capsys.readouterr().err == ""
  shutil.rmtree(run / "best")
  path = run / "checkpoints" / "20" / "metadata" / "metadata.json"
  metadata = checksums.verify_checksum(json.loads(path.read_text()))
  metadata["content"]["best_step"] = -1
  path.write_text(json.dumps(checksums.add_checksum(metadata)))
  assert Session(run).chosen == "the last checkpoint, of step 20"
  assert "no checkpoint was chosen by a validation" in capsys.readouterr().err
