"""Measures the speed of translation with a trained run.

  python -m benchmarks.decode_speed --workdir runs/pascal --input test.en.gz \\
    [--beam 5] [--passes 3] [--latency 200]

`parse` and `search` measure the two parts alone. `both` measures
`jaxsyn.translate`, which parses a block of lines while it translates another,
including the start of the parsing processes; `ratio` is its speed over that of the
slower part. --latency translates that many sentences one at a time, from raw text
to raw text. Programs are compiled before. Tokens are output subwords with EOS.
"/cpu-s" is per second of processor time, all processes together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from absl import flags, logging

from benchmarks.figures import Figures, Timer, peak_mib, show, take_turns
from jaxsyn import cli, translate
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.decode import run_flags
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.training.runtime import set_up_jax

BLOCK = 1000  # lines


def run(session: Session, lines: list[str], passes: int) -> Figures:
  """Measures the speed of parsing, search and complete translation."""
  # Parsing processes are closed within a `with` block, since their processor
  # time counts when they have ended.
  with Timer() as first:
    best = [nbest[0] for nbest in session(lines)]
    session.close()
  text = lines * passes
  blocks = [text[i : i + BLOCK] for i in range(0, len(text), BLOCK)]
  with Timer() as parse:
    examples = [session.read(block) for block in blocks]
    session.close()
  with Timer() as search:
    for block in examples:
      session.search(block)
  with Timer() as both:
    for _ in translate.run(session, text, BLOCK):
      pass
    session.close()
  figures: dict[str, tuple[float, str]] = {"first_pass": (first.wall, "s")}
  for name, timer in {"parse": parse, "search": search, "both": both}.items():
    figures[name] = len(text) / timer.wall, "sentences/s"
    figures[f"{name}_cpu"] = len(text) / timer.cpu, "sentences/cpu-s"
  tokens = passes * sum(len(one.ids) + 1 for one in best)
  figures["search_tokens"] = tokens / search.wall, "tokens/s"
  figures["search_tokens_cpu"] = tokens / search.cpu, "tokens/cpu-s"
  ratio = max(parse.wall, search.wall) / both.wall
  figures["ratio"] = ratio, "of the slower"
  return figures


def latency(session: Session, lines: Sequence[str]) -> Figures:
  """Measures the time from one raw sentence to its translation."""
  calls = [lambda line=line: session([line]) for line in lines]
  take_turns(calls, 0)  # compiles the programs
  wall, cpu = take_turns(calls, 0)
  return {
    "latency_p50": (1e3 * float(np.percentile(wall, 50)), "ms"),
    "latency_p95": (1e3 * float(np.percentile(wall, 95)), "ms"),
    "latency_cpu": (1e3 * float(cpu.mean()), "cpu-ms/sentence"),
  }


def _main(values: flags.FlagValues) -> None:
  if not values.workdir or not values.input:
    raise InputError("--workdir and --input are needed: a run and a text.")
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  session = Session(values.workdir, parser=values.parser, beam=values.beam)
  lines = read_lines(values.input)
  show(run(session, lines, values.passes))
  if values.latency:
    show(latency(session, lines[: values.latency]))
  show({"programs": (session.translator.compilations, "compilations")})
  show({"peak_memory": (peak_mib(), "MiB")})


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Run directory.")
  flags.DEFINE_string("input", None, "Raw text, plain or .gz.")
  run_flags.define_parser()
  flags.DEFINE_integer("beam", 5, "Beam size.")
  flags.DEFINE_integer("passes", 3, "Number of passes over the text.")
  flags.DEFINE_integer("latency", 0, "Number of lines to translate singly.")
  cli.main(_main)
