"""Writes the text of a report: title, conclusions, notes and setup."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from jaxsyn.comparison.hierarchical import Hierarchical
from jaxsyn.comparison.inference import LEVEL, ErrorVariance
from jaxsyn.comparison.results import Comparison
from jaxsyn.comparison.tables import (
  MARKS,
  p_value,
  points,
  published_tasks,
  score_columns,
  verdict,
)

MIN_BLEU = 1.0  # of a system that has begun to learn
BOLD = "Bold marks the best mean of a column and is not a test."
OF_RUNS = (
  "Minutes and tokens/s depend on other programs on the machine: compare them "
  "only if nothing else ran."
)


def title(results: Comparison) -> str:
  """Returns the title of a comparison report."""
  if results.ablation:
    return f"{results.ablation.question} After {results.ablation.source}"
  name = results.systems[0].data.name
  return f"{len(results.systems)} systems on {name}"


def family_tests(results: Comparison) -> list[Hierarchical]:
  """Returns the tests in the Holm-adjusted family, in the order of pairs."""
  tests = {
    (d.system, d.baseline): d
    for d in results.primary.over_seeds
    if d.adjusted_p is not None
  }
  pairs = [(system, other) for system, other in results.family]
  return [tests[pair] for pair in pairs if pair in tests]


def conclusions(results: Comparison) -> list[str]:
  """Returns warnings, then a sentence per verdict that lists system pairs."""
  tests = family_tests(results)
  metric, where = results.metrics[0], results.primary.name
  texts = _warnings(results)
  for kind in ("better", "worse", "equivalent", "undecided"):
    chosen = [d for d in tests if d.verdict == kind]
    if not chosen:
      continue
    reason = f"Holm-adjusted p < {LEVEL}"
    if kind == "equivalent":
      reason = f"p < {LEVEL}"
    elif kind == "undecided":
      reason = "no significant difference"
      if chosen[0].margin is not None:
        reason += ", and equivalence is not shown"
    pairs = "; ".join(
      f"{d.system} against {d.baseline} {points(d.value, metric, '+')} "
      f"({points(d.low, metric, '+')} to {points(d.high, metric, '+')})"
      for d in sorted(chosen, key=lambda d: -d.value)
    )
    noun = "pair" if len(tests) == 1 else "pairs"
    texts.append(
      f"{metric}, {where}: {verdict(chosen[0])} ({reason}) in {len(chosen)} of "
      f"{len(tests)} {noun}: {pairs}."
    )
  return texts


def _warnings(results: Comparison) -> list[str]:
  """Returns warnings about low BLEU, unfinished training or too few seeds."""
  texts = []
  bleu = [s.mean for s in results.primary.scores if s.metric == "BLEU"]
  if bleu and max(bleu) < MIN_BLEU:
    texts.append(
      f"No system reaches {MIN_BLEU:g} BLEU: differences between systems that "
      "have hardly learned anything mean nothing. Train longer, or compare "
      "likelihoods (--metrics log_likelihood)."
    )
  last = [run.facts.best_step == run.facts.step for run in results.runs]
  if 2 * sum(last) > len(last):
    texts.append(
      f"In {sum(last)} of {len(last)} runs, the last checkpoint is the best: "
      "training was still improving, and longer training may change the "
      "differences."
    )
  if len(results.seeds) == 2:
    (_, double), (_, single) = MARKS
    texts.append(
      "Two seeds are too few for a claim: p-values are too small, so that "
      f"{single}, {double} and verdicts are no evidence."
    )
  return texts


def of_scores(results: Comparison) -> list[str]:
  """Returns the notes below the table of scores."""
  texts = _of_seeds(results)
  if any("↓" in column for column in score_columns(results)):
    texts.append("↓: less is better.")
  if published_tasks(results):
    texts.append(
      "Published scores are those of the paper, on its data and with its "
      "training: only the order of rows can be compared."
    )
  if results.failed:
    names = ", ".join(f"{f.system} seed {f.seed}" for f in results.failed)
    texts.append(f"Failed runs: {names}.")
  versions = collections.Counter(
    f"{run.version} ({run.commit or 'no commit'})" for run in results.runs
  )
  if len(versions) > 1:
    listing = ", ".join(f"{name}: {n} runs" for name, n in versions.items())
    texts.append(f"The runs used several versions of the code: {listing}.")
  for run in results.runs:
    texts += (f"{run.system} seed {run.seed}: {n}" for n in run.facts.notes)
  signatures = set[str]()
  for split in results.splits:
    signatures.update(f"{m}|{text}" for m, text in split.signatures.items())
  texts.append("; ".join(sorted(signatures)) + ".")
  return texts


def _of_seeds(results: Comparison) -> list[str]:
  """Returns the notes about seeds and significance."""
  if len(results.seeds) == 1:
    return ["One seed: another seed may reverse any difference."]
  tests = family_tests(results)
  counts = sorted({len(s.values) for s in results.primary.scores})
  seeds = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
  (strong, double), (weak, single) = MARKS
  texts = [
    f"Mean ± standard deviation over {seeds} seeds. {single} p < {weak}, "
    f"{double} p < {strong} against {results.baseline}, over seeds and "
    f"sentences (hierarchical bootstrap, {results.samples} resamples, corrected "
    f"for few seeds), Holm-adjusted in the family of {len(tests)} "
    f"{'test' if len(tests) == 1 else 'tests'} ({results.metrics[0]}, "
    f"{results.primary.name}). Other scores are unmarked."
  ]
  tested = {(d.system, d.baseline) for d in tests}
  if missing := [pair for pair in results.family if tuple(pair) not in tested]:
    names = ", ".join(" against ".join(pair) for pair in missing)
    texts.append(
      f"Pairs of the family without two common seeds, and so without a test: "
      f"{names}."
    )
  texts += _of_variances(results.primary.errors)
  return texts


def _of_variances(errors: Sequence[ErrorVariance]) -> list[str]:
  """Returns the notes about the error variances that the tests use."""
  if not errors:
    return []
  sds = ", ".join(f"{e.metric} {points(e.sd, e.metric)}" for e in errors)
  largest = ", ".join(
    f"{e.metric} {points(e.largest_sd, e.metric)} ({e.largest})" for e in errors
  )
  texts = [
    "The tests do not use the ± of each system but residual standard "
    "deviations, which exclude the effect that a seed has on all systems. "
    f"Pooled over {errors[0].systems} systems, with {errors[0].degrees} "
    f"degrees of freedom: {sds}. Largest of any system: {largest}."
  ]
  for error in errors:
    if error.p is not None and error.p < LEVEL:
      texts.append(
        f"The residuals of {error.largest} in {error.metric} are significantly "
        f"larger than those of the other systems (p = {p_value(error.p)}): "
        f"tests with {error.largest} are too liberal, others too conservative. "
        "Use --variance separate."
      )
  return texts


def of_differences(results: Comparison) -> str:
  """Returns the note below the table of differences."""
  if len(results.seeds) == 1:
    return (
      "One seed: intervals and p-values are over sentences alone. They compare "
      "two trained models, not two systems."
    )
  return (
    "Interval, p and the two standard deviations are over seeds and sentences "
    "(paired by seed; corrected for few seeds with Student's t). "
    '"p of each seed" is over sentences alone: it compares two trained models, '
    "not two systems."
  )


def setting(results: Comparison) -> list[str]:
  """Returns sentences that describe config, decoding, data and machines."""
  parts = []
  if results.config_file:
    text = f"Config: {results.config_file}"
    if results.overrides:
      text += f" with {', '.join(results.overrides)}"
    parts.append(f"{text}; complete in report.json.")
  others = results.ablation.others if results.ablation else {}
  for name, bleu in others.items():
    scores = ", ".join(f"{task} {value:.2f}" for task, value in bleu.items())
    parts.append(f"Published, not trained here: {name}: BLEU {scores}.")
  decode = results.system(results.baseline).config["decode"]
  parts.append(
    f"Translated with {_checkpoint(results)}, {_search(decode)}, length "
    f"penalty {decode['length_penalty']} {decode['alpha']}."
  )
  data = results.systems[0].data
  if data.left_out:
    parts.append(f"Test sets without files: {', '.join(data.left_out)}.")
  pairs = ", ".join(f"{split} {count:,}" for split, count in data.pairs.items())
  hashes = data.hashes["records"].items()
  records = ", ".join(f"{split} {value[:12]}" for split, value in hashes)
  parts.append(
    f"Data: {data.name}, {data.source_language} to {data.target_language}; "
    f"pairs: {pairs}; SHA-256 of records: {records}."
  )
  for run in results.runs:
    m = run.facts.machine
    packages = ", ".join(f"{k} {v}" for k, v in m.packages.items())
    parts.append(
      f"Machine: {m.devices} × {m.device}; {m.processor}, {m.cores} cores; "
      f"{m.system}; Python {m.python}; {packages}."
    )
  return list(dict.fromkeys(parts))


def _search(decode: Mapping[str, Any]) -> str:
  """Describes the decoding strategy, for example "beam 5"."""
  name = decode.get("search", "beam")
  if name == "beam":
    return f"beam {decode['beam']}"
  size_option = "nbest" if name == "sample" else "beam"
  options = {size_option: decode[size_option], **decode.get(name, {})}
  listing = ", ".join(f"{option} {value}" for option, value in options.items())
  return f"search {name} ({listing})"


def _checkpoint(results: Comparison) -> str:
  """Describes the checkpoint whose parameters produced the translations."""
  config = results.system(results.baseline).config
  if (averaged := config["train"]["average"]) > 1:
    return f"the mean of the last {averaged} checkpoints"
  if config["decode"]["checkpoint"] == "last":
    return "the last checkpoint"
  metrics = dict.fromkeys(run.facts.selection for run in results.runs)
  return f"the best checkpoint by validation {' or '.join(metrics)}"
