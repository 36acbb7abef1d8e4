"""Scores translations: BLEU, chrF, TER and exact match, with signatures.

python -m jaxsyn.score --reference test.de --hypothesis a.de --hypothesis b.de
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from absl import flags

from jaxsyn import cli
from jaxsyn.data.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.scoring.metrics import Score, score


def run(
  references: Sequence[str],
  hypotheses: Sequence[str],
  metrics: Sequence[str] = ("bleu", "chrf", "ter"),
  tokenizer: str = "13a",
  lowercase: bool = False,
) -> dict[str, list[Score]]:
  """Scores files side by side.

  Args:
    references: files, plain or .gz, one sentence a line.
    hypotheses: files of the systems.
    metrics: names of `jaxsyn.scoring.metrics.METRICS`.
    tokenizer: sacreBLEU's, of BLEU alone.
    lowercase: ignore case; TER always does, as its signature says.

  Returns: the scores of each hypothesis file, by its name.
  Raises: InputError: a file cannot be read, or their lengths differ.
  """
  sentences = [read_lines(path) for path in references]
  table = {}
  for path in hypotheses:
    lines = read_lines(path)
    for name, reference in zip(references, sentences):
      if len(reference) != len(lines):
        raise InputError(
          f"{path} has {len(lines)} lines, but {name} has {len(reference)}: "
          "line N of one must translate line N of the other."
        )
    table[path] = [
      score(lines, sentences, m, tokenizer, lowercase) for m in metrics
    ]
  return table


def as_text(table: dict[str, list[Score]]) -> str:
  """The scores as a table, the signatures below it."""
  scores = next(iter(table.values()))
  width = max(len(name) for name in (*table, "hypothesis"))
  head = "  ".join(f"{s.metric:>6}" for s in scores)
  rows = [f"{'hypothesis':<{width}}  {head}"]
  for name, found in table.items():
    values = "  ".join(f"{s.value:6.2f}" for s in found)
    rows.append(f"{name:<{width}}  {values}")
  rows += ["", *(f"{s.metric}|{s.signature}" for s in scores)]
  return "\n".join(rows)


def _main(values: flags.FlagValues) -> None:
  if not values.reference or not values.hypothesis:
    raise InputError("--reference and --hypothesis are needed, each a file.")
  table = run(
    values.reference,
    values.hypothesis,
    values.metrics,
    values.tokenizer,
    values.lowercase,
  )
  if values.json:
    plain = {n: [vars(s) for s in scores] for n, scores in table.items()}
    print(json.dumps(plain, indent=2))
  else:
    print(as_text(table))


if __name__ == "__main__":
  flags.DEFINE_multi_string(
    "reference", [], "File of the reference; repeat it."
  )
  flags.DEFINE_multi_string("hypothesis", [], "File of a system; repeat it.")
  flags.DEFINE_list(
    "metrics",
    ["bleu", "chrf", "ter"],
    "Which of bleu, chrf, ter and exact, in order.",
  )
  flags.DEFINE_string("tokenizer", "13a", "sacreBLEU's tokeniser for BLEU.")
  flags.DEFINE_bool(
    "lowercase",
    False,
    "Ignore case, as sacreBLEU's -lc does. TER always ignores it.",
  )
  flags.DEFINE_bool("json", False, "Print JSON instead of a table.")
  cli.main(_main)
