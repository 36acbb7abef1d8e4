"""Scores translations, with signatures, and says what differs by chance.

python -m jaxsyn.score --reference test.de --hypothesis a.de --hypothesis b.de \\
  --metrics bleu,chrf,ribes --significance all --source test.en

The first hypothesis is the baseline of the others. p-values are two-sided; the
column "sacreBLEU" is the p-value that sacreBLEU's command prints for the test left
of it (`jaxsyn.scoring.significance` says how they differ).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Mapping, Sequence

from absl import flags

from jaxsyn import cli
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import Range
from jaxsyn.scoring import buckets, significance, tokenizers
from jaxsyn.scoring.metrics import measure, scorer_of
from jaxsyn.scoring.tables import Report, as_text


def run(
  references: Sequence[str | os.PathLike],
  hypotheses: Sequence[str | os.PathLike],
  metrics: Sequence[str] = ("bleu", "chrf", "ter"),
  tokenizer: str = "",
  lowercase: bool = False,
  baseline: str | os.PathLike | None = None,
  test: str = "bootstrap",
  samples: int = 0,
  seed: int = significance.SEED,
  source: str | os.PathLike | None = None,
  source_conllu: str | os.PathLike | None = None,
  edges: Sequence[int] = buckets.EDGES,
  language: str = "",
  source_language: str = "",
) -> Report:
  """Scores files side by side.

  Args:
    references: files, plain or .gz, one sentence a line.
    hypotheses: files of the systems.
    metrics: names of `jaxsyn.scoring.metrics.METRICS`.
    tokenizer: sacreBLEU's, of the words of BLEU, RIBES and TER; "": what fits
      the language, as `jaxsyn.scoring.tokenizers` has it.
    lowercase: ignore case; TER always does, as its signature says.
    baseline: the hypothesis to compare with; the first unless given.
    test: a name of `significance.CHOICES`; "none" leaves out the intervals too.
    samples: of each test; 0: 1000 resamples, 10000 shuffles.
    seed: of the tests.
    source: file of the sources, for buckets by length.
    source_conllu: their trees, for buckets by tree; words are then the trees'.
    edges: upper ends of the buckets by length, in words.
    language: of the references; "": one with blanks between words.
    source_language: of the sources, whose words are counted; likewise.

  Returns: scores, differences to the baseline, buckets.
  Raises: InputError: a file cannot be read, lengths differ, unknown names.
  """
  meant = {os.fspath(path): read_lines(path) for path in references}
  said = {os.fspath(path): read_lines(path) for path in hypotheses}
  baseline = _baseline(baseline, hypotheses)
  if test not in significance.CHOICES:
    known = did_you_mean(test, significance.CHOICES)
    raise InputError(f"no test {test!r}. {known}")
  files = meant | said
  if source is not None:
    files[os.fspath(source)] = read_lines(source)
  _check_lengths(files)
  lines = list(meant.values())
  tokenizer = tokenizers.settled(tokenizer, language)
  scorers = [scorer_of(m, lines, tokenizer, lowercase) for m in metrics]
  measured = {
    name: [measure(scorer, text) for scorer in scorers]
    for name, text in said.items()
  }
  interval = test != "none"
  differences = [
    significance.difference(
      (name, baseline),
      system,
      base,
      significance.CHOICES[test],
      samples,
      seed,
      interval,
    )
    for name, systems in measured.items()
    if name != baseline
    for system, base in zip(systems, measured[baseline])
  ]
  tables = _tables(
    source, source_conllu, files, len(said[baseline]), edges, source_language
  )
  found = [
    buckets.scored(table, measured, baseline, interval, samples, seed)
    for table in tables
  ]
  return Report(
    {name: [m.score for m in systems] for name, systems in measured.items()},
    baseline,
    tuple(differences),
    tuple(itertools.chain.from_iterable(found)),
  )


def _baseline(name, hypotheses) -> str:
  names = [os.fspath(path) for path in hypotheses]
  if len(set(names)) < len(names):
    twice = next(n for n in names if names.count(n) > 1)
    raise InputError(f"the hypothesis {twice} is given twice.")
  name = names[0] if name is None else os.fspath(name)
  if name not in names:
    raise InputError(
      f"the baseline {name} is no hypothesis. {did_you_mean(name, names)}"
    )
  return name


def _check_lengths(files: Mapping[str, Sequence[str]]) -> None:
  """All files have as many lines as the first, and at least one."""
  (first, lines), *rest = files.items()
  if not lines:
    raise InputError(f"{first} is empty: there is nothing to score.")
  for name, other in rest:
    if len(other) != len(lines):
      raise InputError(
        f"{name} has {len(other)} lines, but {first} has {len(lines)}: "
        "line N of one must translate line N of the other."
      )


def _tables(
  source, source_conllu, files, count, edges, language
) -> list[buckets.Table]:
  """Which bucket each line is in, by everything that is known of sources."""
  lines = None if source is None else files[os.fspath(source)]
  if source_conllu is None:
    if lines is None:
      return []
    return buckets.of_lines(lines, edges, language)
  blocks = list(conllu.read(source_conllu))
  if lines is not None:
    parses = list(conllu.match(blocks, lines, os.fspath(source)))
  elif len(blocks) == count:
    parses = [conllu.attach([block], block.text) for block in blocks]
  else:
    raise InputError(
      f"{source_conllu} has {len(blocks)} trees for {count} lines. Give the "
      "text too (--source): a line may hold several trees, or none."
    )
  return buckets.of_parses(parses, edges)


def _main(values: flags.FlagValues) -> None:
  if not values.reference or not values.hypothesis:
    raise InputError("--reference and --hypothesis are needed, each a file.")
  report = run(
    values.reference,
    values.hypothesis,
    values.metrics,
    values.tokenizer,
    values.lowercase,
    values.baseline,
    values.significance,
    values.samples,
    values.seed,
    values.source,
    values.source_conllu,
    cli.edges_of(values),
    values.language,
    values.source_language,
  )
  name = values.tokenizer or tokenizers.default(values.language)
  if name in tokenizers.OF_BLANKS and tokenizers.without_blanks(
    read_lines(values.reference[0])
  ):
    print(
      f"{values.reference[0]} has no blanks between its words: to {name} a line "
      "is one word, and BLEU is near 0. Say its language, as in --language ja.",
      file=sys.stderr,
    )
  if values.json:
    print(json.dumps(dataclasses.asdict(report), indent=2, ensure_ascii=False))
  else:
    print(as_text(report))


if __name__ == "__main__":
  flags.DEFINE_multi_string(
    "reference", [], "File of the reference, plain or .gz; repeat it."
  )
  flags.DEFINE_multi_string("hypothesis", [], "File of a system; repeat it.")
  cli.scoring_flags(["bleu", "chrf", "ter"])
  flags.DEFINE_string(
    "language",
    "",
    "Of the references, as in ja or zh-CN: the tokeniser that fits it, where "
    "--tokenizer names none. Japanese, Chinese, Korean, Thai, Khmer, Lao, "
    "Burmese and Tibetan have another than 13a.",
  )
  flags.DEFINE_string(
    "source_language",
    "",
    "Of --source, likewise: by what its length is counted.",
  )
  flags.DEFINE_string(
    "baseline", None, "The hypothesis to compare with; the first unless given."
  )
  cli.number_flag(
    "seed", significance.SEED, Range(0, 2**32 - 1), "Of the tests; sacreBLEU's."
  )
  flags.DEFINE_string(
    "source", None, "File of the sources: adds scores by length, in words."
  )
  flags.DEFINE_string(
    "source_conllu",
    None,
    "CoNLL-U of the sources: adds scores by depth, dependency length, clauses "
    "and projectivity, and counts its words. With --source a line may hold "
    "several trees or none.",
  )
  flags.DEFINE_bool("json", False, "Print JSON instead of tables.")
  cli.main(_main)
