"""How fast a run translates.

  python -m benchmarks.decode_speed --workdir runs/pascal --input test.en.gz \\
    [--beam 5] [--passes 3] [--latency 200]

The text is parsed, searched, and translated: `parse` and `search` alone, and
`both` as `jaxsyn.translate` does it, block by block, with the start of the
processes that parse; `ratio` is both over the slower of the two. Programs are
compiled before. With --latency so many sentences are then translated one at a
time, from the raw line to the text. One line a figure: name=value unit; tokens
are output subwords with EOS, "/cpu-s" is per second of processor time,
all processes together. With --steps each pass prints "STEP n tokens=T sents=S"
for ever, for a timer that pairs it with other programs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from absl import flags, logging

from benchmarks.figures import peak_mib, processor_seconds, show
from jaxsyn import cli, translate
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.training.mesh import set_up_jax
from jaxsyn.translating import run_flags


def run(
  session: Session,
  lines: list[str],
  passes: int,
  *,
  buffer: int = 1000,
  latency: int = 0,
) -> dict[str, tuple[float, str]]:
  """Times what the module says.

  Args:
    session: an opened run.
    lines: raw text.
    passes: times that it is parsed, searched, and translated.
    buffer: lines of a block.
    latency: how many of the lines are translated one at a time.

  Returns: name -> (value, unit).
  """
  figures: dict[str, tuple[float, str]] = {}
  text = lines * passes

  @contextmanager
  def measured(name: str) -> Iterator[None]:
    began, busy = time.perf_counter(), processor_seconds()
    yield
    session.close()  # time of processes counts when they have ended
    wall, processor = time.perf_counter() - began, processor_seconds() - busy
    figures[name] = len(text) / wall, "sentences/s"
    figures[f"{name}_cpu"] = len(text) / processor, "sentences/cpu-s"

  began = time.perf_counter()
  best = [nbest[0] for nbest in session(lines)]
  session.close()
  figures["first_pass"] = time.perf_counter() - began, "s"
  tokens = _tokens(best)
  with measured("parse"):
    blocks = [text[i : i + buffer] for i in range(0, len(text), buffer)]
    examples = [e for block in blocks for e in session.begin_examples(block)()]
  with measured("search"):
    for start in range(0, len(text), buffer):
      session.search(examples[start : start + buffer])
  for name, unit in (("search", "s"), ("search_cpu", "cpu-s")):
    speed = figures[name][0] * tokens / len(lines)
    figures[name.replace("search", "search_tokens")] = speed, f"tokens/{unit}"
  with measured("both"):
    for _ in translate.run(session, text, buffer):
      pass
  slower = min(figures["parse"][0], figures["search"][0])
  figures["ratio"] = figures["both"][0] / slower, "of the slower"
  if latency:
    figures |= _latency(session, lines[:latency])
  figures["programs"] = session.compilations, "compilations"
  figures["peak_memory"] = peak_mib(), "MiB"
  return figures


def _latency(
  session: Session, lines: Sequence[str]
) -> dict[str, tuple[float, str]]:
  """Milliseconds of a sentence that comes alone, its program compiled before."""
  for line in lines:
    session([line])
  seconds, busy = [], processor_seconds()
  for line in lines:
    began = time.perf_counter()
    session([line])
    seconds.append(time.perf_counter() - began)
  processor = processor_seconds() - busy
  return {
    "latency_p50": (1e3 * float(np.percentile(seconds, 50)), "ms"),
    "latency_p95": (1e3 * float(np.percentile(seconds, 95)), "ms"),
    "latency_cpu": (1e3 * processor / len(lines), "cpu-ms/sentence"),
  }


def _tokens(best: Sequence[Translation]) -> int:
  return sum(len(one.ids) + 1 for one in best)


def _main(values: flags.FlagValues) -> None:
  if not values.workdir or not values.input:
    raise InputError("--workdir and --input are needed: a run and a text.")
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  session = Session(values.workdir, parser=values.parser, beam=values.beam)
  lines = read_lines(values.input)
  if values.steps:
    examples = [session.example(line) for line in lines]
    session.search(examples)
    for number in itertools.count(1):
      best = [nbest[0] for nbest in session.search(examples)]
      print(
        f"STEP {number} tokens={_tokens(best)} sents={len(lines)}", flush=True
      )
  show(run(session, lines, values.passes, latency=values.latency))


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  flags.DEFINE_string("input", None, "Raw text, plain or .gz.")
  run_flags.define_parser()
  flags.DEFINE_integer("beam", 5, "Hypotheses a sentence.")
  flags.DEFINE_integer("passes", 3, "Times the text is translated.")
  flags.DEFINE_integer("latency", 0, "Lines translated one at a time.")
  flags.DEFINE_bool("steps", False, "Print a line a pass, for ever.")
  cli.main(_main)
