"""While programs compile: commands print a count and no remaining time."""

import json
import re
import subprocess
import sys

import pytest

# Lines come as soon as something changes, and compilation is never cached.
OFTEN = (
  "from jaxsyn.utils import progress; progress.REDRAW_SECONDS = 0.02; "
  "import runpy, sys; "
  "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
COUNT = re.compile(r"compiling programs: (\d+) of (\d+)")
SIZES = {
  "model.width": 16,
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.transformer.feed_forward": 16,
  "batch.tokens": 1024,
  "batch.shapes": 2,
  "decode.beam": 1,
  "decode.max_length_factor": 1.0,
  "decode.max_length_offset": 2,
  "train.steps": 20,
  "train.log_every": 1,
  "train.evaluate_every": 10,
  "train.validation_sentences": 4,
}


@pytest.fixture
def cold(environment, tmp_path):
  """An environment without compiled programs."""
  return environment | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}


def output_of(module, arguments, environment):
  """Standard output and standard error of a command, in one text."""
  done = subprocess.run(
    [sys.executable, "-c", OFTEN, f"jaxsyn.{module}", *arguments],
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    timeout=900,
  )
  assert done.returncode == 0, done.stdout
  return done.stdout


def assert_counts(output):
  """Counts rise to the number of programs, on lines without a time."""
  lines = [line for line in output.splitlines() if COUNT.search(line)]
  counts = [(*map(int, COUNT.search(line).groups()),) for line in lines]
  assert counts, output
  assert all(done < needed for done, needed in counts)
  for numbers in zip(*counts):  # neither those done nor those needed fall
    assert [*numbers] == sorted(numbers), counts
  assert not [line for line in lines if " left" in line or "/s" in line]
  return counts


def test_train_counts_programs_and_then_shows_the_remaining_time(
  prepared, cold, tmp_path
):
  workdir = tmp_path / "run"
  options = [f"--config.{name}={value}" for name, value in SIZES.items()]
  arguments = ["--config", "quickstart:pascal", f"--workdir={workdir}"]
  arguments += [f"--config.data.directory={prepared}", *options]
  counts = assert_counts(output_of("train", arguments, cold))
  # The first state, two shapes of batches, the validation.
  assert {needed for _, needed in counts} == {4} and counts[0][0] == 0
  records = [
    json.loads(line)
    for line in (workdir / "log.jsonl").read_text().splitlines()
  ]
  trained = [record for record in records if record["kind"] == "train"]
  with_time = ["eta_minutes" in record for record in trained]
  # None until the last program is compiled, in each record from then on.
  assert with_time == sorted(with_time) and with_time[-1]
  assert trained[-1]["eta_minutes"] == 0


def test_commands_that_read_a_run_count_programs(runs, cold, tmp_path):
  text = tmp_path / "source.txt"
  lines = ["The proud duck carries a bell .", "A " + "proud " * 20 + "duck ."]
  text.write_text("".join(f"{line}\n" for line in lines))
  arguments = [f"--workdir={runs['pascal']}", f"--input={text}"]
  arguments.append(f"--output={tmp_path / 'inspect'}")
  assert_counts(output_of("inspect", arguments, cold))
