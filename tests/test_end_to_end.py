"""Raw text to score through the real commands, and runs that are killed.

Everything is real: processes, signals, UDPipe, SentencePiece, Orbax.
"""

import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time
from types import MappingProxyType

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from benchmarks.hosts.processes import free_port
from jaxsyn import train
from jaxsyn.configs import quickstart
from jaxsyn.errors import InputError
from jaxsyn.session import Session

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.width": 32,
  "model.transformer.feed_forward": 32,
  "batch.tokens": 1024,
  "batch.shapes": 1,
  "decode.beam": 2,
  "train.minutes": 0.0,
  "train.steps": 60,
  "train.evaluate_every": 30,
  "train.validation_sentences": 1,
  "train.save_every": 15,
  "train.log_every": 15,
}


@pytest.fixture(scope="module")
def command(prepared):
  def make(workdir, changes=MappingProxyType({})):
    changes = {"data.directory": prepared, **SIZES, **changes}
    return [
      *(sys.executable, "-m", "jaxsyn.train"),
      *("--config", "configs/quickstart.py:pascal_ignoring"),
      *("--workdir", str(workdir)),
      *(f"--config.{name}={value}" for name, value in changes.items()),
    ]

  return make


@pytest.fixture
def trained_here(prepared):
  """A function: the same training in this process, which is quicker."""

  def run(workdir, changes=MappingProxyType({})):
    config = quickstart.get_config("pascal_ignoring")
    config.data.directory = str(prepared)
    config.update_from_flattened_dict({**SIZES, **changes})
    return train.run(config, workdir)

  return run


@pytest.fixture(scope="module")
def straight(command, environment, tmp_path_factory):
  """A run of 60 steps that nothing disturbs."""
  workdir = tmp_path_factory.mktemp("runs") / "straight"
  done = subprocess.run(
    command(workdir), env=environment, cwd=ROOT, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  return workdir, done.stdout


def last_checkpoint(workdir):
  """(step, all arrays, the JSON page without its clock) of a run."""
  path = workdir / "checkpoints"
  step = max(int(p.name) for p in path.iterdir() if p.name.isdigit())
  with ocp.StandardCheckpointer() as reader:
    state = reader.restore(path / str(step) / "state")
  document = json.loads((path / str(step) / "page.json").read_text())
  progress = document["content"]
  del progress["minutes"], progress["window"]["seconds"]
  return step, jax.tree.map(np.asarray, state), progress


def assert_same_end(a, b):
  step_a, state_a, progress_a = last_checkpoint(a)
  step_b, state_b, progress_b = last_checkpoint(b)
  assert step_a == step_b
  assert progress_a == progress_b
  jax.tree.map(np.testing.assert_array_equal, state_a, state_b)


def steps_logged(workdir, kind="train"):
  lines = (workdir / "log.jsonl").read_text().splitlines()
  records = [json.loads(line) for line in lines]
  return [(r["step"], r.get("loss")) for r in records if r["kind"] == kind]


def start_and(condition, then, command, environment, timeout=120):
  """Starts a process, waits for a condition, sends a signal; returns it."""
  process = subprocess.Popen(
    command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
  )
  deadline = time.monotonic() + timeout
  while not condition() and process.poll() is None:
    assert time.monotonic() < deadline, "the condition never came"
    time.sleep(0.002)
  if process.poll() is None:
    process.send_signal(then)
  output, _ = process.communicate(timeout=timeout)
  return process.returncode, output


def test_training_says_what_it_did(straight):
  workdir, output = straight
  assert "shapes: 1, compilations of the step: 1." in output
  assert "finished at step 60 (steps)" in output
  assert [s for s, _ in steps_logged(workdir)] == [15, 30, 45, 60]
  assert [s for s, _ in steps_logged(workdir, "validation")] == [30, 60]
  record = json.loads((workdir / "log.jsonl").read_text().splitlines()[0])
  for name in ("loss", "tokens_per_s", "padding", "waiting"):
    assert np.isfinite(record[name])
  assert list(workdir.glob("events.*"))


def test_a_finished_run_is_not_run_again(straight, trained_here):
  workdir, _ = straight
  before = (workdir / "log.jsonl").read_text()
  end = trained_here(workdir)
  assert (end.step, end.reason, end.compilations) == (60, "steps", 0)
  assert (workdir / "log.jsonl").read_text() == before


def test_killed_and_asked_to_stop_it_is_the_same_run(
  straight, command, environment, tmp_path
):
  """One run that is interrupted in three ways, one after the other."""
  workdir = tmp_path / "interrupted"

  def interrupted(condition, then):
    return start_and(condition, then, command(workdir), environment)

  def saving():
    return (workdir / "checkpoints" / ".30.partial").exists()

  code, _ = interrupted(saving, signal.SIGKILL)
  assert code == -signal.SIGKILL
  assert not (workdir / "checkpoints" / "30").exists()

  code, _ = interrupted((workdir / "checkpoints" / "30").is_dir, signal.SIGKILL)
  assert code == -signal.SIGKILL
  assert not (workdir / "checkpoints" / "60").exists()

  log = workdir / "log.jsonl"
  before = log.read_text()  # may have that step of the process just killed

  def further():
    text = log.read_text()
    return text != before and '"step": 45' in text

  code, output = interrupted(further, signal.SIGTERM)
  assert code == 0
  assert "(SIGTERM)" in output and "To go on: python -m jaxsyn.train" in output
  step = last_checkpoint(workdir)[0]
  assert 45 <= step < 60
  # What it says on being stopped is a line more; before it nothing differs.
  expected = steps_logged(straight[0])
  assert steps_logged(workdir)[:3] == expected[:3]

  subprocess.run(command(workdir), env=environment, cwd=ROOT, check=True)
  assert_same_end(workdir, straight[0])
  assert steps_logged(workdir)[-1][0] == expected[-1][0] == 60


def test_over_eight_devices_it_is_the_same_run(
  straight, command, users_environment, tmp_path
):
  """Data, parameters and heads are split, and programs optimised as users' are."""
  cut = {f"train.mesh.{axis}": 2 for axis in ("data", "fsdp", "tensor")}
  eight = {"JAX_NUM_CPU_DEVICES": "8", "PJRT_NPROC": "64"}
  subprocess.run(
    command(tmp_path / "run", {**cut, "train.steps": 15}),
    env={**users_environment, **eight},
    cwd=ROOT,
    check=True,
    capture_output=True,
  )
  ((step, loss),) = steps_logged(tmp_path / "run")
  assert step == 15
  assert loss == pytest.approx(dict(steps_logged(straight[0]))[15], rel=1e-5)


def test_a_damaged_checkpoint_is_passed_over(
  straight, command, environment, tmp_path
):
  workdir = tmp_path / "damaged"
  subprocess.run(["cp", "-r", straight[0], workdir], check=True)
  for path in (workdir / "checkpoints" / "60").rglob("*"):
    if path.is_file() and path.stat().st_size > 2000:
      path.write_bytes(path.read_bytes()[:100])
  done = subprocess.run(
    command(workdir), env=environment, cwd=ROOT, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  assert "warning: skipped a corrupt checkpoint" in done.stderr
  assert_same_end(workdir, straight[0])


def test_others_leave_a_running_training_as_it_is(
  straight, command, environment, tmp_path
):
  """Two trainings at once are one; sessions and a command read what it saves."""

  workdir = tmp_path / "read"
  both = [
    subprocess.Popen(
      command(workdir, {"train.save_every": 2, "train.keep": 1}),
      env=environment,
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for _ in range(2)
  ]
  while all(process.poll() is None for process in both):
    time.sleep(0.01)
  both.sort(key=lambda process: process.poll() is None)
  second, training = both
  _, error = second.communicate()
  assert second.returncode == 2 and error.count("\n") == 1, error
  assert f"read is in use by process {training.pid} on " in error
  while training.poll() is None and not any(
    (workdir / "checkpoints").glob("[0-9]*")
  ):
    time.sleep(0.01)
  translating = subprocess.Popen(
    [
      *(sys.executable, "-m", "jaxsyn.translate"),
      *("--workdir", str(workdir), "--beam", "1", "--conllu"),
    ],
    env=environment,
    cwd=ROOT,
    stdin=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )
  opened = 0
  while training.poll() is None:
    Session(workdir, checkpoint=("last", "best")[opened % 2])
    opened += 1
    time.sleep(0.1)
  assert opened >= 2
  assert training.returncode == 0, training.communicate()
  assert "Traceback" not in training.communicate()[1]
  _, error = translating.communicate(timeout=120)
  assert translating.returncode == 0
  # It came before the first validation, or after.
  last = r"(.*: no checkpoint was chosen by a validation yet: .* step \d+\.\n)?"
  assert re.fullmatch(last, error)
  assert_same_end(workdir, straight[0])
  names = sorted(path.name for path in workdir.iterdir())
  expected = sorted(path.name for path in straight[0].iterdir())
  without = [n for n in names if not n.startswith("events")]
  assert without == [n for n in expected if not n.startswith("events")]


@pytest.mark.parametrize(
  "name, value, message",
  [
    (
      *("model.transformer.heads", 2),
      r"config\.model\.transformer\.heads was 4 and is now 2",
    ),
    ("seed", 1, r"config\.seed was 0 and is now 1"),
    ("optimiser.learning_rate", 1e5, "learning_rate was"),
    # The choice first, not the options that came with it.
    (
      "optimiser.name",
      "muon",
      r"config: config\.optimiser\.name was 'adam' .*; and 4 more\. Use another",
    ),
  ],
)
def test_another_config_is_not_mixed_in(
  straight, trained_here, name, value, message
):
  with pytest.raises(InputError, match=message):
    trained_here(straight[0], {name: value})


def test_a_loss_that_is_no_number_stops_the_run(command, environment, tmp_path):
  done = subprocess.run(
    command(
      tmp_path / "nan",
      {
        "optimiser.learning_rate": 1e6,
        "optimiser.schedule": "constant",
      },
    ),
    env=environment,
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 2
  assert "became NaN or infinite at step" in done.stderr
  assert "Last good checkpoint" in done.stderr


def test_raw_text_is_translated_in_order(straight, environment, tmp_path):
  workdir, _ = straight
  lines = [
    "The duck arrived .",
    "",
    "A farmer that a duck saw will arrive .",
    "?",
  ]

  def translate(*options):
    return subprocess.run(
      [
        *(sys.executable, "-m", "jaxsyn.translate", "--workdir", str(workdir)),
        *options,
      ],
      input="".join(f"{line}\n" for line in lines),
      env=environment,
      cwd=ROOT,
      capture_output=True,
      text=True,
      check=True,
    ).stdout.splitlines()

  plain = translate()
  assert len(plain) == 4
  assert plain[1] == "" and plain[0] != ""
  source = tmp_path / "in.txt"
  source.write_text("\n".join(lines) + "\n")
  output = tmp_path / "out.txt"
  assert not translate(
    *("--input", str(source), "--output", str(output), "--nbest", "2")
  )
  best = output.read_text().splitlines()
  # Two hypotheses a line, and one of the empty line.
  assert [line.split(" ||| ")[0] for line in best] == list("0012233")
  firsts = [best[i].split(" ||| ")[1] for i in (0, 2, 3, 5)]
  assert firsts == plain

  # The parser's CoNLL-U gives what its raw text gives.
  from jaxsyn.data.sentence.parsers.udpipe import UDPipe

  parser = UDPipe(workdir / "parser.source.udpipe")
  trees = tmp_path / "in.conllu"
  full = [lines[0], lines[2], lines[3]]
  trees.write_text(
    "".join(parser.conllu_all(full, [*map(str, range(len(full)))]))
  )
  scored = [
    line.split("\t") for line in translate("--input", str(trees), "--scores")
  ]
  assert [text for text, _ in scored] == [plain[0], plain[2], plain[3]]
  assert all(float(score) < 0 for _, score in scored)


def test_two_processes_share_the_lines_of_a_file(
  straight, environment, tmp_path
):
  from jaxsyn import translate

  lines = ["The duck arrived .", "", "A farmer saw a duck .", "?", "A duck ."]
  source, output = tmp_path / "in.txt", tmp_path / "out.txt"
  source.write_text("\n".join(lines) + "\n")
  both = [
    subprocess.Popen(
      [
        *(sys.executable, "-m", "jaxsyn.translate", "--workdir", straight[0]),
        *("--input", source, "--output", output, "--buffer", "2"),
        *("--search", "sample"),  # drawn by a line's place among all
        *(f"--coordinator=127.0.0.1:{port}", "--processes=2"),
        f"--process={process}",
      ],
      env=environment | {"PJRT_NPROC": "64"},
      cwd=ROOT,
      stderr=subprocess.PIPE,
      text=True,
    )
    for port in [free_port()]
    for process in (0, 1)
  ]
  printed = [process.communicate(timeout=300)[1] for process in both]
  assert [process.returncode for process in both] == [0, 0], printed
  session = Session(straight[0], search="sample")
  single = [best.text for best, *_ in translate.run(session, lines)]
  assert output.read_text().splitlines() == single


def test_a_program_that_waits_for_each_answer_gets_it(straight, environment):
  workdir, _ = straight
  process = subprocess.Popen(
    [
      *(sys.executable, "-m", "jaxsyn.translate", "--workdir", str(workdir)),
      *("--errors", "skip", "--scores"),
    ],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    env=environment,
    cwd=ROOT,
  )
  duck, bad, nothing = b"The duck arrived .\n", b"so f\xfcr\n", b"\n"
  answers = []
  for line in (duck, bad, duck, nothing, b"nul \0\n", duck):
    process.stdin.write(line)
    process.stdin.flush()
    assert select.select([process.stdout], [], [], 120)[0], "it waits for more"
    answers.append(os.read(process.stdout.fileno(), 10_000))
  first, empty = answers[0], b"\t0.0000\n"
  assert first.count(b"\n") == 1 and first[0] != b"\t"
  assert answers == [first, empty, first, empty, empty, first]
  process.send_signal(signal.SIGTERM)
  assert process.communicate() == (b"", b"ended by SIGTERM\n")
  assert process.returncode == 128 + signal.SIGTERM


def test_what_came_before_a_bad_line_is_answered(straight, environment):
  workdir, _ = straight
  done = subprocess.run(
    [sys.executable, "-m", "jaxsyn.translate", "--workdir", str(workdir)],
    input=b"The duck arrived .\n\nso f\xfcr\nThe duck arrived .\n",
    env=environment,
    cwd=ROOT,
    capture_output=True,
    check=False,
  )
  assert done.returncode == 2
  assert done.stdout.count(b"\n") == 2 and done.stdout.endswith(b"\n\n")
  assert done.stderr.startswith(b"error: standard input:3: byte 5 (0xfc)")
  assert b"--errors skip" in done.stderr
  assert done.stderr.count(b"\n") == 1


def test_what_can_be_read_of_a_line_is_translated(straight, tmp_path):
  from jaxsyn import translate
  from jaxsyn.data.sentence import stream

  session = translate.Session(straight[0])
  lines = ["The duck arrived .", "so f\ufffdr", "A farmer saw a duck ."]
  (tmp_path / "in").write_bytes(b"%s\nso f\xfcr\n%s\n" % (
    lines[0].encode(), lines[2].encode()
  ))  # fmt: skip

  def answers(errors):
    inputs = stream.sentences(str(tmp_path / "in"), False, errors)
    return [best[0].text for best in translate.run(session, inputs)]

  expected = [best[0].text for best in session(lines)]
  assert answers("replace") == expected
  assert answers("skip") == [expected[0], "", expected[2]]


def test_one_block_is_read_ahead_but_none_past_a_pause(straight):
  from jaxsyn import translate

  session = Session(straight[0], beam=1)
  lines = [f"The {word} arrived ." for word in ("duck", "cow", "farmer")] * 2
  expected = [best[0].text for best in session(lines)]
  read = []

  def given():
    for item in (*lines[:5], None, lines[5]):
      read.append(item)
      yield item
    raise InputError("no more.")

  answers, seen = translate.run(session, given(), buffer=2), []
  with pytest.raises(InputError, match="no more"):
    for best in answers:
      seen.append((best[0].text, len(read)))
  assert [text for text, _ in seen] == expected
  assert [index for _, index in seen] == [4, 4, 6, 6, 6, 7]


def test_a_translation_that_does_not_fit_says_what_to_lower(
  straight, little_memory
):

  session = Session(straight[0], sentences=65_536, beam=1000)
  with pytest.raises(
    InputError,
    match=r"(?s)out of memory \(.*translating 65536 sentences at a time with "
    r"1000 hypotheses each, the longest of \d+ subwords\. Lower config\.decode\.",
  ):
    session(["The duck arrived ."] * 1000)


def test_another_vocabulary_or_parser_is_refused(straight, tmp_path):

  workdir = tmp_path / "run"
  subprocess.run(["cp", "-r", straight[0], workdir], check=True)
  parser = workdir / "parser.source.udpipe"
  content = parser.read_bytes()
  other = tmp_path / "other.udpipe"
  other.write_bytes(content + b"\0")
  with pytest.raises(InputError, match=r"is not the source parser .*SHA-256"):
    Session(workdir, parser=str(other))(["The duck arrived ."])
  vocabulary = workdir / "vocabulary.model"
  vocabulary.write_bytes(vocabulary.read_bytes()[:-3])
  with pytest.raises(InputError, match=r"vocabulary\.model"):
    Session(workdir)


def test_what_is_no_run_is_named(tmp_path):

  with pytest.raises(InputError, match="is not the folder of a run"):
    Session(tmp_path)


def test_an_unknown_option_of_the_search_is_named(straight):

  with pytest.raises(
    InputError, match=r"no option 'bean'. Did you mean 'beam'"
  ):
    Session(straight[0], bean=3)
