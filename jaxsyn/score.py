"""Scores translations, with signatures and significance tests.

jaxsyn score --reference test.de --hypothesis a.de --hypothesis b.de \\
  --metrics bleu,chrf,ribes --significance all --source test.en

The first hypothesis is the baseline. p-values are two-sided; the column
"(sacreBLEU)" has sacreBLEU's own p-value for the test on its left
(`jaxsyn.scoring.significance` describes the difference).

Log probabilities of translations under a trained model:

jaxsyn score --force --workdir runs/pascal --source test.en --hypothesis a.de

Alignment error rates of word alignments:

jaxsyn score --aer --reference test.align --hypothesis a.align
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from jaxsyn import cli
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.decode import run_flags
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.scoring import alignments, buckets, significance, tokenizers
from jaxsyn.scoring.results import Results, ScoredBucket
from jaxsyn.scoring.scorers import Scored
from jaxsyn.scoring.settings import Settings, of_flags, settings_flags
from jaxsyn.scoring.tables import as_text

DEFAULTS = Settings(metrics=("bleu", "chrf", "ter"))
Path = str | os.PathLike[str]


def run(
  references: Sequence[Path],
  hypotheses: Sequence[Path],
  settings: Settings = DEFAULTS,
  *,
  baseline: Path | None = None,
  language: str = "",
  source: Path | None = None,
  source_conllu: Path | None = None,
  source_language: str = "",
) -> Results:
  """Scores files of translations against references.

  Args:
    references: Files, plain or .gz, with one sentence on each line.
    hypotheses: Files of the systems.
    settings: Metrics, tests and tokenizer.
    baseline: Hypothesis to compare with; by default the first.
    language: Language of the references; "": one with spaces between words.
    source: File of the sources, for buckets by length and for COMET.
    source_conllu: Trees of the sources, for buckets by tree. Lengths are then in
      words of the trees.
    source_language: Language of the sources.

  Returns:
    Scores, differences to the baseline, buckets.

  Raises:
    InputError: A file cannot be read, lengths differ, or a name is unknown.
  """
  reference = {os.fspath(path): read_lines(path) for path in references}
  hypothesis = {os.fspath(path): read_lines(path) for path in hypotheses}
  baseline = _baseline(baseline, hypotheses)
  sources = {} if source is None else {os.fspath(source): read_lines(source)}
  _check_lengths(reference | hypothesis | sources)
  settings = settings.with_defaults(language)
  source_lines = next(iter(sources.values()), [])
  scorers = settings.scorers([*reference.values()], source_lines)
  scored: Scored = {
    name: {0: [scorer.measure(lines) for scorer in scorers]}
    for name, lines in hypothesis.items()
  }
  parses = None
  if source_conllu is not None:
    parses = _parses(source_conllu, sources, len(hypothesis[baseline]))
  tables = []
  if parses is not None or sources:
    facts = buckets.sentence_facts(source_lines, parses, source_language)
    tables = buckets.in_buckets(facts, settings.edges)
  return Results(
    scores={
      name: tuple(measured.score for measured in runs[0])
      for name, runs in scored.items()
    },
    baseline=baseline,
    differences=significance.differences(
      {name: runs[0] for name, runs in scored.items()},
      baseline,
      tests=settings.tests,
      draws=settings.draws,
      interval=bool(settings.tests),
    ),
    buckets=tuple(
      itertools.chain.from_iterable(
        in_buckets(table, scored, baseline, settings) for table in tables
      )
    ),
  )


def in_buckets(
  table: buckets.Buckets, scored: Scored, baseline: str, settings: Settings
) -> Iterator[ScoredBucket]:
  """Yields the scores and baseline differences of each bucket of sentences."""
  for bucket, part in buckets.parts(table, scored):
    measured = {name: runs[0] for name, runs in part.items()}
    yield ScoredBucket(
      **vars(bucket),
      scores={
        name: {m.scorer.name: m.value for m in metrics}
        for name, metrics in measured.items()
      },
      differences=significance.differences(
        measured,
        baseline,
        tests=(),
        draws=settings.draws,
        interval=bool(settings.tests) and bucket.count >= buckets.FEWEST,
      ),
    )


def _baseline(name: Path | None, hypotheses: Sequence[Path]) -> str:
  names = [os.fspath(path) for path in hypotheses]
  if len(set(names)) < len(names):
    twice = next(n for n in names if names.count(n) > 1)
    raise InputError(f"the hypothesis {twice} is given twice.")
  name = names[0] if name is None else os.fspath(name)
  if name not in names:
    raise InputError(
      f"the baseline {name} is not a hypothesis. {did_you_mean(name, names)}"
    )
  return name


def _check_lengths(files: Mapping[str, Sequence[str]]) -> None:
  """Raises InputError unless all files have the same, nonzero line count."""
  (first, lines), *rest = files.items()
  if not lines:
    raise InputError(f"{first} is empty: there is nothing to score.")
  for name, other in rest:
    if len(other) != len(lines):
      raise InputError(
        f"{name} has {len(other)} lines, but {first} has {len(lines)}: "
        "line N of one must translate line N of the other."
      )


def _parses(
  source_conllu: Path, sources: Mapping[str, Sequence[str]], count: int
) -> list[conllu.Parse]:
  """Reads the trees of the source lines from a CoNLL-U file."""
  blocks = list(conllu.read(source_conllu))
  for name, lines in sources.items():
    return list(conllu.match(blocks, lines, name))
  if len(blocks) != count:
    raise InputError(
      f"{source_conllu} has {len(blocks)} trees for {count} lines. Give the "
      "text too (--source): a line may hold several trees, or none."
    )
  return [conllu.attach([block], block.text) for block in blocks]


def _report_tokenizers(values: flags.FlagValues) -> None:
  """Prints to standard error which tokenizer each language flag selects."""
  language, first = values.language, values.reference[0]
  if language and not values.tokenizer:
    print(f"--language: {tokenizers.summary(language)}", file=sys.stderr)
  if values.source and values.source_language:
    message = tokenizers.summary(values.source_language)
    print(f"--source_language: {message}", file=sys.stderr)
  name = values.tokenizer or tokenizers.default(language)
  if name in tokenizers.OF_BLANKS and tokenizers.without_blanks(
    read_lines(first)
  ):
    print(
      f"{first} has no spaces between its words: to {name} a line is one word, "
      "and BLEU is near 0. Give its language, as in --language ja.",
      file=sys.stderr,
    )


def _main(values: flags.FlagValues) -> None:
  if values.force:
    from jaxsyn.session import forcing  # loads JAX

    forcing.main(values)
    return
  output: Any
  if values.aer:
    if len(values.reference) != 1 or not values.hypothesis:
      raise InputError(
        "--aer needs one --reference and at least one --hypothesis, files of "
        "links."
      )
    agreements = alignments.run(values.reference[0], values.hypothesis)
    output = {name: vars(one) for name, one in agreements.items()}
    text = alignments.as_text(agreements)
  else:
    if not values.reference or not values.hypothesis:
      raise InputError("--reference and --hypothesis are needed, each a file.")
    results = run(
      values.reference,
      values.hypothesis,
      of_flags(values),
      baseline=values.baseline,
      language=values.language,
      source=values.source,
      source_conllu=values.source_conllu,
      source_language=values.source_language,
    )
    _report_tokenizers(values)
    output, text = dataclasses.asdict(results), as_text(results)
  if values.json:
    text = json.dumps(output, indent=2, ensure_ascii=False)
  print(text)


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn score`."""
  flags.DEFINE_multi_string("reference", [], "Reference file, plain or .gz.")
  flags.DEFINE_multi_string(
    "hypothesis", [], "File of a system's translations."
  )
  settings_flags(DEFAULTS)
  flags.DEFINE_string(
    "language",
    "",
    "Language of the references, such as ja or zh-CN: selects the tokenizer "
    "if --tokenizer is not given. Japanese, Chinese, Korean, Thai, Khmer, Lao, "
    "Burmese and Tibetan do not use 13a.",
  )
  flags.DEFINE_string(
    "source_language",
    "",
    "Language of --source: selects how words are counted.",
  )
  flags.DEFINE_string(
    "baseline", None, "Hypothesis to compare with; by default the first."
  )
  flags.DEFINE_string(
    "source",
    None,
    "Source file: adds scores by length in words. COMET needs it.",
  )
  flags.DEFINE_string(
    "source_conllu",
    None,
    "CoNLL-U of the sources: adds scores by depth, dependency length, clauses "
    "and projectivity; lengths are then counted in words of this file. With "
    "--source, a line may have several trees or none.",
  )
  flags.DEFINE_bool(
    "aer",
    False,
    "Print alignment error rates. The files contain alignments (i-j), as in "
    "0-0 1-2; the reference may also contain possible links (i?j or ipj).",
  )
  flags.DEFINE_bool("json", False, "Print JSON instead of tables.")
  flags.DEFINE_bool(
    "force",
    False,
    "Print log probabilities of the hypothesis under the run --workdir "
    "instead of scores. Columns: LINE, log p, log p / length penalty, "
    "subwords.",
  )
  flags.DEFINE_bool(
    "nbest_list",
    False,
    "With --force, the hypothesis is an n-best list: LINE ||| text ||| ...",
  )
  flags.DEFINE_bool(
    "conllu",
    False,
    "With --force, whether --source is CoNLL-U; default for *.conllu.",
  )
  run_flags.define_alignments()
  run_flags.define()


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
