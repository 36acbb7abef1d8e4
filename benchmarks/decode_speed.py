"""How fast a run translates.

  python -m benchmarks.decode_speed --workdir runs/pascal --input test.en.gz \\
    [--beam 5] [--passes 3]

Parsing and searching are timed apart. One line a figure: name=value unit;
tokens are output subwords with the end sign, "/cpu-s" is per second of
processor time. With --steps each pass prints "STEP n tokens=T sents=S" for
ever, for a timer that pairs it with other programs.
"""

from __future__ import annotations

import itertools
import time

from absl import flags, logging

from benchmarks.figures import peak_mib, processor_seconds, show
from jaxsyn import cli
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.training.mesh import set_up_jax


def run(session: Session, lines: list[str], passes: int) -> dict:
  """Times parsing once and searching `passes` times, programs compiled before.

  Returns: name -> (value, unit).
  """
  figures = {}
  began, busy = time.perf_counter(), processor_seconds()
  examples = [session.example(line) for line in lines]
  wall, processor = time.perf_counter() - began, processor_seconds() - busy
  figures["examples"] = len(lines) / wall, "sentences/s"
  figures["examples_cpu"] = len(lines) / processor, "sentences/cpu-s"
  began = time.perf_counter()
  session.search(examples)
  figures["first_pass"] = time.perf_counter() - began, "s"
  began, busy = time.perf_counter(), processor_seconds()
  tokens = 0
  for _ in range(passes):
    tokens += _tokens(session.search(examples))
  wall, processor = time.perf_counter() - began, processor_seconds() - busy
  figures["search"] = passes * len(lines) / wall, "sentences/s"
  figures["search_tokens"] = tokens / wall, "tokens/s"
  figures["search_tokens_cpu"] = tokens / processor, "tokens/cpu-s"
  figures["programs"] = session.compilations, "compilations"
  figures["peak_memory"] = peak_mib(), "MiB"
  return figures


def _tokens(found) -> int:
  return sum(len(best[0].ids) + 1 for best in found if best)


def _main(values: flags.FlagValues) -> None:
  if not values.workdir or not values.input:
    raise InputError("--workdir and --input are needed: a run and a text.")
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  session = Session(values.workdir, beam=values.beam)
  lines = read_lines(values.input)
  if values.steps:
    examples = [session.example(line) for line in lines]
    session.search(examples)
    for number in itertools.count(1):
      tokens = _tokens(session.search(examples))
      print(f"STEP {number} tokens={tokens} sents={len(lines)}", flush=True)
  show(run(session, lines, values.passes))


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  flags.DEFINE_string("input", None, "Raw text, plain or .gz.")
  flags.DEFINE_integer("beam", 5, "Hypotheses a sentence.")
  flags.DEFINE_integer("passes", 3, "Times the text is translated.")
  flags.DEFINE_bool("steps", False, "Print a line a pass, for ever.")
  cli.main(_main)
