"""Training, and translation of raw text by the command."""

import json
import os
import pathlib
import select
import signal
import subprocess
import sys

import numpy as np
import pytest
from command_flags import parsed
from object_store import free_port

from jaxsyn import train, translate
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.errors import InputError
from jaxsyn.session import Session

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINES = [
  "The duck arrived .",
  "",
  "A farmer that a duck saw will arrive .",
  "?",
]
COMMAND = [sys.executable, "-m", "jaxsyn.translate", "--workdir"]


@pytest.fixture
def config(tiny):
  config = tiny("pascal_ignoring")
  config.model.transformer.encoder_layers = 1
  config.batch.shapes = 1
  config.train.update(steps=8, evaluate_every=4, validation_sentences=1)
  return config


def steps_logged(workdir, kind):
  lines = (workdir / "log.jsonl").read_text().splitlines()
  records = [json.loads(line) for line in lines]
  return [r["step"] for r in records if r["kind"] == kind]


def test_a_training_logs_its_progress_and_is_run_once(config, tmp_path):
  end = train.run(config, tmp_path)
  assert (end.step, end.reason) == (8, "steps")
  assert (end.shapes, end.compilations) == (1, 1)
  assert steps_logged(tmp_path, "train") == [2, 4, 6, 8]
  assert steps_logged(tmp_path, "validation") == [4, 8]
  log = (tmp_path / "log.jsonl").read_text()
  record = json.loads(log.splitlines()[0])
  for name in ("loss", "tokens_per_s", "padding", "waiting"):
    assert np.isfinite(record[name])
  assert list(tmp_path.glob("events.*"))
  end = train.run(config, tmp_path)
  assert (end.step, end.reason, end.compilations) == (8, "steps", 0)
  assert (tmp_path / "log.jsonl").read_text() == log


def test_stops_if_the_loss_is_not_finite(config, tmp_path):
  config.optimiser.update(learning_rate=1e6, schedule="constant")
  config.train.steps = 60
  message = r"(?s)became NaN or infinite at step.*Last good checkpoint"
  with pytest.raises(InputError, match=message):
    train.run(config, tmp_path)


@pytest.fixture
def translated(runs, tmp_path, capfdbinary):
  """A function: text, flags -> lines that the command prints."""

  def run(text, *words):
    (tmp_path / "in.txt").write_bytes(text)
    words = (f"--input={tmp_path / 'in.txt'}", *words)
    with parsed(translate, "--workdir", runs["pascal"], *words) as values:
      translate._translate(values)
    return capfdbinary.readouterr().out.decode().splitlines()

  return run


def test_raw_text_is_translated_in_order(runs, translated, tmp_path):
  output = tmp_path / "out.txt"
  text = "".join(f"{line}\n" for line in LINES).encode()
  assert not translated(text, f"--output={output}", "--nbest=2")
  best = output.read_text().splitlines()
  # Two hypotheses per line, and one of the empty line.
  assert [line.split(" ||| ")[0] for line in best] == list("0012233")
  plain = [best[i].split(" ||| ")[1] for i in (0, 2, 3, 5)]
  assert plain[1] == "" and plain[0] != ""

  # CoNLL-U of the parser gives the same translations.
  parser = UDPipe(runs["pascal"] / "parser.source.udpipe")
  trees = parser.conllu_all([LINES[0], *LINES[2:]], list("012"))
  lines = translated("".join(trees).encode(), "--conllu", "--scores")
  scored = [line.split("\t") for line in lines]
  assert [text for text, _ in scored] == [plain[0], plain[2], plain[3]]
  assert all(float(score) < 0 for _, score in scored)


@pytest.mark.parametrize("buffer", [1, 1000])
def test_translates_the_lines_before_an_invalid_line(
  translated, capfdbinary, buffer
):
  text = b"The duck arrived .\n\nso f\xfcr\nThe duck arrived .\n"
  message = r"in\.txt:3: byte 5 \(0xfc\).*--errors skip"
  with pytest.raises(InputError, match=message):
    translated(text, f"--buffer={buffer}")
  output = capfdbinary.readouterr().out
  assert output.count(b"\n") == 2 and output.endswith(b"\n\n")


def test_two_processes_share_the_lines_of_a_file(runs, environment, tmp_path):
  source, output = tmp_path / "in.txt", tmp_path / "out.txt"
  lines = [*LINES, "A duck ."]
  source.write_text("\n".join(lines) + "\n")
  words = [runs["pascal"], "--input", source, "--output", output, "--buffer=2"]
  words += [f"--coordinator=127.0.0.1:{free_port()}", "--processes=2"]
  both = [
    subprocess.Popen(
      [*COMMAND, *words, "--search=sample", f"--process={process}"],
      env=environment | {"PJRT_NPROC": "64"},
      cwd=ROOT,
      stderr=subprocess.PIPE,
      text=True,
    )
    for process in (0, 1)
  ]
  printed = [process.communicate(timeout=300)[1] for process in both]
  assert [process.returncode for process in both] == [0, 0], printed
  session = Session(runs["pascal"], search="sample")
  single = [best.text for best, *_ in translate.run(session, lines)]
  assert output.read_text().splitlines() == single


def test_answers_each_line_of_an_interactive_program(runs, environment):
  process = subprocess.Popen(
    [*COMMAND, runs["pascal"], "--errors=skip", "--scores"],
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


def test_translation_out_of_memory_names_the_options(runs, little_memory):
  limits = {"max_length_factor": 0.0, "max_length_offset": 15}
  session = Session(runs["pascal"], sentences=65_536, beam=1000, **limits)
  with pytest.raises(
    InputError,
    match=r"(?s)out of memory \(.*translating 65536 sentences at a time with "
    r"1000 hypotheses each, the longest of \d+ subwords\. Lower config\.decode\.",
  ):
    session(["The duck arrived ."] * 1000)
