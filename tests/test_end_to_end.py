"""Training and translation of raw text with the real commands."""

import json
import os
import pathlib
import select
import signal
import subprocess
import sys
from types import MappingProxyType

import numpy as np
import pytest
from object_store import free_port

from jaxsyn import train
from jaxsyn.configs import quickstart
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.storage import lock

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.width": 32,
  "model.transformer.feed_forward": 32,
  "batch.tokens": 1024,
  "batch.shapes": 1,
  "decode.beam": 2,
  "decode.max_length_factor": 0.0,  # few programs
  "decode.max_length_offset": 15,
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
  """A function for the same training in this process, which is faster."""

  def run(workdir, changes=MappingProxyType({})):
    config = quickstart.get_config("pascal_ignoring")
    config.data.directory = str(prepared)
    config.update_from_flattened_dict({**SIZES, **changes})
    return train.run(config, workdir)

  return run


@pytest.fixture(scope="module")
def straight(command, environment, tmp_path_factory):
  """An uninterrupted run of 60 steps, and its output."""
  workdir = tmp_path_factory.mktemp("runs") / "straight"
  done = subprocess.run(
    command(workdir), env=environment, cwd=ROOT, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  return workdir, done.stdout


def steps_logged(workdir, kind="train"):
  lines = (workdir / "log.jsonl").read_text().splitlines()
  records = [json.loads(line) for line in lines]
  return [(r["step"], r.get("loss")) for r in records if r["kind"] == kind]


def test_training_logs_its_progress(straight):
  workdir, output = straight
  assert "shapes: 1, compilations of the step: 1." in output
  assert "finished at step 60 (steps)" in output
  assert [s for s, _ in steps_logged(workdir)] == [15, 30, 45, 60]
  assert [s for s, _ in steps_logged(workdir, "validation")] == [30, 60]
  record = json.loads((workdir / "log.jsonl").read_text().splitlines()[0])
  for name in ("loss", "tokens_per_s", "padding", "waiting"):
    assert np.isfinite(record[name])
  assert list(workdir.glob("events.*"))


def test_a_finished_run_does_nothing(straight, trained_here):
  workdir, _ = straight
  before = (workdir / "log.jsonl").read_text()
  end = trained_here(workdir)
  assert (end.step, end.reason, end.compilations) == (60, "steps", 0)
  assert (workdir / "log.jsonl").read_text() == before


def test_eight_devices_train_the_same_run(
  straight, command, users_environment, tmp_path
):
  cut = {f"train.mesh.{axis}": 2 for axis in ("fsdp", "tensor")}
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


def test_stops_if_the_loss_is_not_finite(trained_here, tmp_path):
  options = {"optimiser.learning_rate": 1e6, "optimiser.schedule": "constant"}
  with pytest.raises(
    InputError,
    match=r"(?s)became NaN or infinite at step.*Last good checkpoint",
  ):
    trained_here(tmp_path / "nan", options)


def test_rejects_a_second_training_in_the_folder(
  straight, command, environment
):
  message = f"{straight[0].name} is in use by process {os.getpid()} on "
  with lock.exclusive_lock(straight[0]):
    done = subprocess.run(
      command(straight[0]),
      env=environment,
      cwd=ROOT,
      capture_output=True,
      text=True,
    )
  assert done.returncode == 2 and done.stderr.count("\n") == 1
  assert message in done.stderr


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
      env=environment,
      cwd=ROOT,
      capture_output=True,
      text=True,
      check=True,
    ).stdout.splitlines()

  source = tmp_path / "in.txt"
  source.write_text("\n".join(lines) + "\n")
  output = tmp_path / "out.txt"
  assert not translate(
    *("--input", str(source), "--output", str(output), "--nbest", "2")
  )
  best = output.read_text().splitlines()
  # Two hypotheses per line, and one of the empty line.
  assert [line.split(" ||| ")[0] for line in best] == list("0012233")
  plain = [best[i].split(" ||| ")[1] for i in (0, 2, 3, 5)]
  assert plain[1] == "" and plain[0] != ""

  # CoNLL-U of the parser gives the same translations.
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
        *("--search", "sample"),  # with noise by the index of the line
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


def test_answers_each_line_of_an_interactive_program(straight, environment):
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


def test_translates_the_lines_before_an_invalid_line(straight, environment):
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


def test_translation_out_of_memory_names_the_options(straight, little_memory):

  session = Session(straight[0], sentences=65_536, beam=1000)
  with pytest.raises(
    InputError,
    match=r"(?s)out of memory \(.*translating 65536 sentences at a time with "
    r"1000 hypotheses each, the longest of \d+ subwords\. Lower config\.decode\.",
  ):
    session(["The duck arrived ."] * 1000)


def test_rejects_another_vocabulary_or_parser(straight, tmp_path):

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
