"""Training and translation of raw text with the real commands."""

import json
import os
import pathlib
import select
import signal
import subprocess
import sys

import numpy as np
import pytest
from object_store import free_port

from jaxsyn import train, translate
from jaxsyn.configs import quickstart
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
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
def command(prepared, environment):
  """A function that runs a command in a process of its own."""

  def run(module, *words, **options):
    command = [sys.executable, "-m", f"jaxsyn.{module}", *map(str, words)]
    return subprocess.run(
      command, env=environment, cwd=ROOT, capture_output=True, **options
    )

  return run


@pytest.fixture(scope="module")
def straight(prepared, command, tmp_path_factory):
  """An uninterrupted run of 60 steps, and its output."""
  workdir = tmp_path_factory.mktemp("runs") / "straight"
  options = {"data.directory": prepared, **SIZES}
  done = command(
    "train",
    "--config",
    "configs/quickstart.py:pascal_ignoring",
    "--workdir",
    workdir,
    *(f"--config.{name}={value}" for name, value in options.items()),
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return workdir, done.stdout


@pytest.fixture
def trained_here(prepared):
  """A function for the same training in this process, which is faster."""

  def run(workdir, **changes):
    config = quickstart.get_config("pascal_ignoring")
    config.data.directory = str(prepared)
    config.update_from_flattened_dict({**SIZES, **changes})
    return train.run(config, workdir)

  return run


def steps_logged(workdir, kind="train"):
  lines = (workdir / "log.jsonl").read_text().splitlines()
  records = [json.loads(line) for line in lines]
  return {r["step"]: r.get("loss") for r in records if r["kind"] == kind}


def test_a_training_logs_its_progress_and_is_run_once(straight, trained_here):
  workdir, output = straight
  assert "shapes: 1, compilations of the step: 1." in output
  assert "finished at step 60 (steps)" in output
  assert [*steps_logged(workdir)] == [15, 30, 45, 60]
  assert [*steps_logged(workdir, "validation")] == [30, 60]
  log = (workdir / "log.jsonl").read_text()
  record = json.loads(log.splitlines()[0])
  for name in ("loss", "tokens_per_s", "padding", "waiting"):
    assert np.isfinite(record[name])
  assert list(workdir.glob("events.*"))
  end = trained_here(workdir)
  assert (end.step, end.reason, end.compilations) == (60, "steps", 0)
  assert (workdir / "log.jsonl").read_text() == log


def test_stops_if_the_loss_is_not_finite(trained_here, tmp_path):
  options = {"optimiser.learning_rate": 1e6, "optimiser.schedule": "constant"}
  message = r"(?s)became NaN or infinite at step.*Last good checkpoint"
  with pytest.raises(InputError, match=message):
    trained_here(tmp_path / "nan", **options)


def test_raw_text_is_translated_in_order(straight, command, tmp_path):
  workdir, _ = straight
  lines = [
    "The duck arrived .",
    "",
    "A farmer that a duck saw will arrive .",
    "?",
  ]

  def translate(*words):
    words = ("--workdir", workdir, *words)
    done = command("translate", *words, text=True, check=True)
    return done.stdout.splitlines()

  source = tmp_path / "in.txt"
  source.write_text("\n".join(lines) + "\n")
  output = tmp_path / "out.txt"
  assert not translate("--input", source, "--output", output, "--nbest", "2")
  best = output.read_text().splitlines()
  # Two hypotheses per line, and one of the empty line.
  assert [line.split(" ||| ")[0] for line in best] == list("0012233")
  plain = [best[i].split(" ||| ")[1] for i in (0, 2, 3, 5)]
  assert plain[1] == "" and plain[0] != ""

  # CoNLL-U of the parser gives the same translations.
  parser = UDPipe(workdir / "parser.source.udpipe")
  trees = tmp_path / "in.conllu"
  trees.write_text(
    "".join(parser.conllu_all([lines[0], lines[2], lines[3]], list("012")))
  )
  scored = [
    line.split("\t") for line in translate("--input", trees, "--scores")
  ]
  assert [text for text, _ in scored] == [plain[0], plain[2], plain[3]]
  assert all(float(score) < 0 for _, score in scored)


def test_two_processes_share_the_lines_of_a_file(
  straight, environment, tmp_path
):
  lines = ["The duck arrived .", "", "A farmer saw a duck .", "?", "A duck ."]
  source, output = tmp_path / "in.txt", tmp_path / "out.txt"
  source.write_text("\n".join(lines) + "\n")
  port = free_port()
  both = [
    subprocess.Popen(
      [
        sys.executable,
        "-m",
        "jaxsyn.translate",
        "--workdir",
        straight[0],
        "--input",
        source,
        "--output",
        output,
        "--buffer",
        "2",
        "--search",
        "sample",
        f"--coordinator=127.0.0.1:{port}",
        "--processes=2",
        f"--process={process}",
      ],
      env=environment | {"PJRT_NPROC": "64"},
      cwd=ROOT,
      stderr=subprocess.PIPE,
      text=True,
    )
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
      sys.executable,
      "-m",
      "jaxsyn.translate",
      "--workdir",
      str(workdir),
      "--errors",
      "skip",
      "--scores",
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


def test_translates_the_lines_before_an_invalid_line(straight, command):
  text = b"The duck arrived .\n\nso f\xfcr\nThe duck arrived .\n"
  done = command("translate", "--workdir", straight[0], input=text)
  assert done.returncode == 2
  assert done.stdout.count(b"\n") == 2 and done.stdout.endswith(b"\n\n")
  assert done.stderr.startswith(b"error: standard input:3: byte 5 (0xfc)")
  assert b"--errors skip" in done.stderr and done.stderr.count(b"\n") == 1


def test_translation_out_of_memory_names_the_options(straight, little_memory):
  session = Session(straight[0], sentences=65_536, beam=1000)
  with pytest.raises(
    InputError,
    match=r"(?s)out of memory \(.*translating 65536 sentences at a time with "
    r"1000 hypotheses each, the longest of \d+ subwords\. Lower config\.decode\.",
  ):
    session(["The duck arrived ."] * 1000)
