"""Scores translations, with signatures, and says what differs by chance.

jaxsyn score --reference test.de --hypothesis a.de --hypothesis b.de \\
  --metrics bleu,chrf,ribes --significance all --source test.en

The first hypothesis is the baseline of the others. p-values are two-sided; the
column "sacreBLEU" is the p-value that sacreBLEU's command prints for the test left
of it (`jaxsyn.scoring.significance` says how they differ).

How probable a run finds translations, whoever made them:

python -m jaxsyn.score --force --workdir runs/pascal --source test.en --hypothesis a.de

How far alignments of words are from others, by alignment error rate:

python -m jaxsyn.score --aer --reference test.align --hypothesis a.align
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from absl import flags

from jaxsyn import cli
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.scoring import alignments, buckets, significance, tokenizers
from jaxsyn.scoring.results import Results, ScoredBucket
from jaxsyn.scoring.scorers import Scored
from jaxsyn.scoring.settings import Settings, of_flags, settings_flags
from jaxsyn.scoring.tables import as_text
from jaxsyn.translating import alignment_flags, run_flags

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
  """Scores files side by side.

  Args:
    references: files, plain or .gz, one sentence a line.
    hypotheses: files of the systems.
    settings: how to score.
    baseline: the hypothesis to compare with; the first unless given.
    language: of the references; "": one with blanks between words.
    source: file of the sources, for buckets by length and for COMET.
    source_conllu: their trees, for buckets by tree; words are then the trees'.
    source_language: of the sources, whose words are counted.

  Returns: scores, differences to the baseline, buckets.
  Raises: InputError: a file cannot be read, lengths differ, unknown names.
  """
  reference = {os.fspath(path): read_lines(path) for path in references}
  hypothesis = {os.fspath(path): read_lines(path) for path in hypotheses}
  baseline = _baseline(baseline, hypotheses)
  sources = {} if source is None else {os.fspath(source): read_lines(source)}
  _check_lengths(reference | hypothesis | sources)
  settings = settings.with_defaults(language)
  (source_lines,) = sources.values() or ([],)
  scorers = settings.scorers([*reference.values()], source_lines)
  scored: Scored = {
    name: {0: [scorer.measure(lines) for scorer in scorers]}
    for name, lines in hypothesis.items()
  }
  tables = []
  if source_conllu is not None:
    parses = _parses(source_conllu, sources, len(hypothesis[baseline]))
    tables = buckets.tables((), parses, edges=settings.edges)
  elif sources:
    tables = buckets.tables(
      source_lines, edges=settings.edges, language=source_language
    )
  pairs = [(name, baseline) for name in scored if name != baseline]
  differences = significance.differences(
    scored,
    pairs,
    tests=settings.tests,
    draws=settings.draws,
    interval=bool(settings.tests),
  )
  return Results(
    scores={n: tuple(m.score for m in runs[0]) for n, runs in scored.items()},
    baseline=baseline,
    differences=tuple(difference for _, difference in differences),
    buckets=tuple(
      bucket
      for table in tables
      for bucket in in_buckets(table, scored, pairs, settings=settings)
    ),
  )


def in_buckets(
  table: buckets.Buckets,
  scored: Scored,
  pairs: Sequence[tuple[str, str]],
  *,
  settings: Settings,
) -> Iterator[ScoredBucket]:
  """Scores and differences of the sentences of each bucket.

  Args:
    table: of `buckets.tables`.
    scored: translations, of one seed.
    pairs: systems and what each is compared with.
    settings: how to score.
  """
  for bucket, part in buckets.parts(table, scored):
    enough = settings.tests and bucket.count >= buckets.FEWEST
    differences = significance.differences(
      part, pairs, tests=(), draws=settings.draws, interval=bool(enough)
    )
    yield ScoredBucket(
      **vars(bucket),
      scores={
        name: {m.scorer.name: m.value for m in runs[0]}
        for name, runs in part.items()
      },
      differences=tuple(difference for _, difference in differences),
    )


def _baseline(name: Path | None, hypotheses: Sequence[Path]) -> str:
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


def _parses(
  source_conllu: Path, sources: Mapping[str, Sequence[str]], count: int
) -> list[conllu.Parse]:
  """The trees of all lines."""
  blocks = list(conllu.read(source_conllu))
  for name, lines in sources.items():
    return list(conllu.match(blocks, lines, name))
  if len(blocks) != count:
    raise InputError(
      f"{source_conllu} has {len(blocks)} trees for {count} lines. Give the "
      "text too (--source): a line may hold several trees, or none."
    )
  return [conllu.attach([block], block.text) for block in blocks]


def _report_tokenizer(values: flags.FlagValues) -> None:
  """What words are here, where it was not said; on stderr."""
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
      f"{first} has no blanks between its words: to {name} a line is one word, "
      "and BLEU is near 0. Say its language, as in --language ja.",
      file=sys.stderr,
    )


def _aer(values: flags.FlagValues) -> None:
  if len(values.reference) != 1 or not values.hypothesis:
    raise InputError(
      "--aer needs one --reference and a --hypothesis or more, files of links."
    )
  agreements = alignments.run(values.reference[0], values.hypothesis)
  if values.json:
    plain = {name: dataclasses.asdict(one) for name, one in agreements.items()}
    print(json.dumps(plain, indent=2, ensure_ascii=False))
  else:
    print(alignments.as_text(agreements))


def _main(values: flags.FlagValues) -> None:
  if values.force:
    from jaxsyn.translating import forcing  # loads JAX

    forcing.main(values)
    return
  if values.aer:
    _aer(values)
    return
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
  _report_tokenizer(values)
  if values.json:
    print(json.dumps(dataclasses.asdict(results), indent=2, ensure_ascii=False))
  else:
    print(as_text(results))


def define_flags() -> None:
  """Those of the command."""
  flags.DEFINE_multi_string(
    "reference", [], "File of the reference, plain or .gz; repeat it."
  )
  flags.DEFINE_multi_string("hypothesis", [], "File of a system; repeat it.")
  settings_flags(DEFAULTS)
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
  flags.DEFINE_string(
    "source",
    None,
    "File of the sources: adds scores by length, in words. COMET reads it.",
  )
  flags.DEFINE_string(
    "source_conllu",
    None,
    "CoNLL-U of the sources: adds scores by depth, dependency length, clauses "
    "and projectivity, and counts its words. With --source a line may hold "
    "several trees or none.",
  )
  flags.DEFINE_bool(
    "aer",
    False,
    "The files have alignments, i-j as in 0-0 1-2, the reference also i?j or "
    "ipj, which are possible alone: print alignment error rates.",
  )
  flags.DEFINE_bool("json", False, "Print JSON instead of tables.")
  flags.DEFINE_bool(
    "force",
    False,
    "Print log probabilities of the hypothesis under the run --workdir instead "
    "of scores. Columns: LINE, log p, log p over the length penalty, subwords.",
  )
  flags.DEFINE_bool(
    "nbest_list",
    False,
    "With --force, the hypothesis is an n-best list: LINE ||| text ||| ...",
  )
  flags.DEFINE_bool(
    "conllu", False, "With --force, --source is CoNLL-U (see also .conllu)."
  )
  alignment_flags.define()
  run_flags.define()


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
