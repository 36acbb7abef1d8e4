"""Results as tables: for a terminal, in Markdown, in LaTeX.

All from `jaxsyn.comparison.results.Results` alone. Scores are mean ± standard
deviation over seeds; the best mean of a column is bold; marks stand for the
p-value over seeds and sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxsyn.comparison.hierarchical import Hierarchical
from jaxsyn.comparison.results import Results, Split, Summary, System
from jaxsyn.scoring.tables import aligned

# p-values below -> mark, the smallest first.
MARKS = ((0.01, "‡"), (0.05, "†"))
LOWER_IS_BETTER = ("TER",)
_TEX = {
  **{c: "\\" + c for c in "&%$#_{}"},
  "\\": r"\textbackslash{}",
  "~": r"\textasciitilde{}",
  "<": "$<$",
  ">": "$>$",
  "|": r"\textbar{}",
  "^": r"\textasciicircum{}",
  "±": r"$\pm$",
  "†": r"$^\dagger$",
  "‡": r"$^\ddagger$",
}


def as_text(results: Results) -> str:
  """The table of scores and what it means, for a terminal."""
  rows = [_head(results)]
  rows += [[label, *cells] for label, cells, _ in _lines(results)]
  return "\n\n".join([aligned(rows), *_notes(results)])


def markdown(results: Results) -> str:
  """report.md: everything but the curves."""
  rows = [_head(results)]
  for label, cells, best in _lines(results):
    bold = [f"**{c}**" if b else c for c, b in zip(cells, best)]
    rows.append([label.replace("  ", "&nbsp;&nbsp;"), *bold])
  parts = [f"# {_title(results)}", _piped(rows), *_notes(results)]
  parts.append("## Differences")
  parts.append(_piped(_differences(results)))
  parts.append(
    "Interval, p and the two standard deviations are over seeds and sentences "
    "(paired by seed; corrected for few seeds with Student's t of so many "
    'degrees of freedom). "p of seeds" are over sentences alone, one trained '
    "pair of systems each."
  )
  for split in results.splits:
    parts += _buckets(results, split)
  parts += ["## Every run", _piped(_runs(results))]
  parts += ["## What was run", *_setting(results)]
  return "\n\n".join(parts)


def latex(results: Results) -> str:
  """report.tex: the table of scores, to be read with booktabs alone."""
  head = _head(results)
  body = []
  for label, cells, best in _lines(results):
    name = _escaped(label.strip())
    name = rf"\quad {name}" if label.startswith(" ") else name
    bold = [
      rf"\textbf{{{_escaped(c)}}}" if b else _escaped(c)
      for c, b in zip(cells, best)
    ]
    body.append(" & ".join([name, *bold]) + r" \\")
  lines = [
    f"% {_title(results)}; needs \\usepackage{{booktabs}}.",
    r"\begin{table}",
    r"\centering",
    r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}",
    r"\toprule",
    " & ".join(map(_escaped, head)) + r" \\",
    r"\midrule",
    *body,
    r"\bottomrule",
    r"\end{tabular}",
    r"\caption{" + _escaped(" ".join(_notes(results))) + "}",
    r"\end{table}",
  ]
  return "\n".join(lines)


def _title(results: Results) -> str:
  if results.ablation:
    return f"{results.ablation.question} After {results.ablation.source}"
  data = results.systems[0].data
  return f"{len(results.systems)} systems on {data.name}"


def _head(results: Results) -> list[str]:
  head = ["system", "seeds"]
  for split in results.splits:
    head += [f"{split.name} {metric}" for metric in results.metrics]
  return head + [f"published, {task}" for task in _tasks(results)]


def _tasks(results: Results) -> list[str]:
  """What papers published figures of, among the systems."""
  found = (task for system in results.systems for task in system.published)
  return list(dict.fromkeys(found))


def _lines(results: Results) -> list[tuple[str, list[str], list[bool]]]:
  """Label, cells, and which of them are the best of their column."""
  best = {
    (split.name, metric): _best(split, metric)
    for split in results.splits
    for metric in results.metrics
  }
  lines = []
  for system, inset in _ordered(results):
    seeds = max(
      (len(s.values) for s in _of(results.splits[0].scores, system.name)),
      default=0,
    )
    cells, bold = [str(seeds)], [False]
    for split in results.splits:
      for metric in results.metrics:
        found = _find(split.scores, system.name, metric)
        mark = _mark(_against(results, split.over_seeds, system.name, metric))
        cells.append(_mean(found) + mark)
        bold.append(
          found is not None
          and f"{found.mean:.2f}" == f"{best[split.name, metric]:.2f}"
        )
    for task in _tasks(results):
      value = system.published.get(task)
      cells.append("" if value is None else f"{value:.1f}")
      bold.append(False)
    lines.append((("  " if inset else "") + system.name, cells, bold))
  return lines


def _ordered(results: Results) -> list[tuple[System, bool]]:
  """The systems, each with its controls below it and set in."""
  there = {system.name: system for system in results.systems}
  lines = []
  for system in results.systems:
    if system.control_of in there:
      continue
    lines.append((system, False))
    lines += [(there[name], True) for name in system.controls]
  return lines


def _best(split: Split, metric: str) -> float:
  choose = min if metric in LOWER_IS_BETTER else max
  return choose(s.mean for s in split.scores if s.metric == metric)


def _of(found: Sequence, system: str) -> list:
  return [one for one in found if one.system == system]


def _find(found: Sequence, system: str, metric: str):
  """The entry of a system and a metric; None where there is none."""
  return next((one for one in _of(found, system) if one.metric == metric), None)


def _against(results: Results, found: Sequence, system: str, metric: str):
  """The difference to the baseline; None where there is none."""
  ours = [one for one in found if one.baseline == results.baseline]
  return _find(ours, system, metric)


def _mean(summary: Summary | None) -> str:
  if summary is None:
    return ""
  spread = "" if summary.sd is None else f" ± {summary.sd:.2f}"
  return f"{summary.mean:.2f}{spread}"


def _mark(found: Hierarchical | None) -> str:
  if found is None or found.p is None:
    return ""
  return next((mark for limit, mark in MARKS if found.p < limit), "")


def _notes(results: Results) -> list[str]:
  """What stands below the table."""
  many = len(results.seeds) > 1
  notes = []
  if many:
    (low, hard), (high, soft) = MARKS
    notes.append(
      f"Mean ± standard deviation over seeds. {soft} p < {high}, {hard} p < "
      f"{low} against {results.baseline}, over seeds and sentences "
      f"(hierarchical bootstrap, {results.samples} resamples, corrected for "
      "few seeds)."
    )
    if len(results.seeds) == 2:
      notes.append("Two seeds are too few for a claim: p is then too small.")
  else:
    notes.append("One seed: nothing here says what another seed would do.")
  if results.failed:
    names = ", ".join(f"{f.system} seed {f.seed}" for f in results.failed)
    notes.append(f"Did not come to their end: {names}.")
  signatures = {
    f"{metric}|{signature}"
    for split in results.splits
    for metric, signature in split.signatures.items()
  }
  notes.append("; ".join(sorted(signatures)) + ".")
  return notes


def _differences(results: Results) -> list[list[str]]:
  rows = [["split", "metric", "system", "against", "difference"]]
  rows[0] += ["95 % interval", "p", "degrees", "sd by seeds", "by sentences"]
  rows[0] += ["of seeds", "p of seeds"]
  for split in results.splits:
    for d in split.over_seeds:
      singles = [
        one.difference.tests[0].p
        for one in split.over_sentences
        if one.difference.system == d.system
        and one.difference.baseline == d.baseline
        and one.difference.metric == d.metric
        and one.difference.tests
      ]
      rows.append(
        [
          *(split.name, d.metric, d.system, d.baseline, f"{d.value:+.2f}"),
          "" if d.low is None else f"{d.low:+.2f} .. {d.high:+.2f}",
          "" if d.p is None else f"{d.p:.4f}" if d.p >= 1e-4 else "<0.0001",
          "" if d.degrees is None else f"{min(d.degrees, 1000):.0f}",
          "" if d.seed_sd is None else f"{d.seed_sd:.2f}",
          f"{d.sentence_sd:.2f}",
          ", ".join(f"{value:+.2f}" for value in d.by_seed),
          ", ".join(f"{p:.3f}" for p in singles),
        ]
      )
  return rows


def _buckets(results: Results, split: Split) -> list[str]:
  """The first metric by length and tree: means, and what is no chance."""
  metric = results.metrics[0]
  names = [system.name for system, _ in _ordered(results)]
  parts = [f"## {split.name} by length and tree, {metric}"]
  for by in dict.fromkeys(bucket.by for bucket in split.buckets):
    rows = [[by, "sentences", *names]]
    for bucket in split.buckets:
      if bucket.by == by and bucket.count:
        cells = [
          _mean(_find(bucket.scores, name, metric))
          + _mark(_against(results, bucket.differences, name, metric))
          for name in names
        ]
        rows.append([bucket.label, str(bucket.count), *cells])
    parts.append(_piped(rows))
  return parts


def _runs(results: Results) -> list[list[str]]:
  rows = [["system", "seed"]]
  for split in results.splits:
    rows[0] += [f"{split.name} {metric}" for metric in results.metrics]
  rows[0] += ["validation BLEU", "at step", "steps", "ended by", "minutes"]
  rows[0] += ["tokens/s", "parameters"]
  for run in results.runs:
    facts = run.facts
    rows.append(
      [
        *(run.system, str(run.seed)),
        *(f"{s.value:.2f}" for scores in run.scores.values() for s in scores),
        *(f"{facts.best_bleu:.2f}", str(facts.best_step), str(facts.step)),
        *(facts.reason, f"{facts.minutes:.1f}", f"{facts.tokens_per_s:.0f}"),
        f"{facts.parameters:,}",
      ]
    )
  return rows


def _setting(results: Results) -> list[str]:
  """Data, machine and versions, each once."""
  parts = []
  if results.config_file:
    parts.append(f"Config: `{results.config_file}`; whole in report.json.")
  data = results.systems[0].data
  records = ", ".join(
    f"{k} {v[:12]}" for k, v in data.hashes["records"].items()
  )
  parts.append(
    f"Data: {data.name}, {data.source_language} to {data.target_language}; "
    f"SHA-256 of records: {records}."
  )
  for m in dict.fromkeys(_machine(run) for run in results.runs):
    parts.append(m)
  return parts


def _machine(run) -> str:
  m = run.facts.machine
  packages = ", ".join(f"{k} {v}" for k, v in m.packages.items())
  return (
    f"Machine: {m.devices} × {m.device}; {m.processor}, {m.cores} cores; "
    f"{m.system}; Python {m.python}; {packages}."
  )


def _piped(rows: Sequence[Sequence[str]]) -> str:
  """A Markdown table; columns but the first to the right."""
  lines = ["| " + " | ".join(row) + " |" for row in rows]
  rule = "|---|" + "---:|" * (len(rows[0]) - 1)
  return "\n".join([lines[0], rule, *lines[1:]])


def _escaped(text: str) -> str:
  return "".join(_TEX.get(character, character) for character in text)
