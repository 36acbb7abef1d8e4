"""Alignment error rate: how far links are from those that people have made.

With A the links of a file, S the sure links of the reference and P its possible
ones, to which the sure belong, all over all sentences,

  precision = |A ∩ P| / |A|    recall = |A ∩ S| / |S|
  AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

Source: Och & Ney 2003, "A Systematic Comparison of Various Statistical Alignment
Models", section 4.2. `jaxsyn.data.sentence.alignments` reads the links.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from jaxsyn.data.sentence import alignments
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.scoring.tables import aligned

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Agreement:
  """How far one alignment is from another; shares, from 0 to 1.

  Attributes:
    aer: alignment error rate; the lower, the nearer.
    precision: share of its links that are possible; 1 of none.
    recall: share of the sure links that it has; 1 of none.
    links: how many it has.
  """

  aer: float
  precision: float
  recall: float
  links: int


def run(reference: Path, hypotheses: Sequence[Path]) -> dict[str, Agreement]:
  """Scores files of links, a line a sentence pair.

  Args:
    reference: sure links, i-j, and possible ones, i?j or ipj.
    hypotheses: files of links, i-j.

  Returns: by name of the file.
  Raises: InputError: a file cannot be read, has other than links, or another
    number of lines; or there are no links at all.
  """
  due = [
    (frozenset(sure), frozenset(links))
    for sure, links in _read(reference, possible=True)
  ]
  agreements = {}
  for path in hypotheses:
    links = [
      frozenset(hypothesis) for _, hypothesis in _read(path, possible=False)
    ]
    if len(links) != len(due):
      raise InputError(
        f"{path} has {len(links)} lines, but {reference} has {len(due)}: line N"
        " of both must be of the same sentence pair."
      )
    total, sure, sure_found, possible_found = map(
      sum,
      zip(
        *(
          (
            len(hypothesis),
            len(of_s),
            len(hypothesis & of_s),
            len(hypothesis & of_p),
          )
          for hypothesis, (of_s, of_p) in zip(links, due)
        )
      ),
    )
    if not total + sure:
      raise InputError(
        f"{path} has no links, and {reference} no sure ones: there is nothing"
        " to compare."
      )
    agreements[os.fspath(path)] = Agreement(
      aer=1 - (sure_found + possible_found) / (total + sure),
      precision=possible_found / total if total else 1.0,
      recall=sure_found / sure if sure else 1.0,
      links=total,
    )
  return agreements


def _read(
  path: Path, *, possible: bool
) -> list[tuple[alignments.Links, alignments.Links]]:
  lines = read_lines(path)
  if not lines:
    raise InputError(f"{path} is empty: there is nothing to compare.")
  return [
    alignments.parsed(
      line, f"{os.fspath(path)}:{line_number}", possible=possible
    )
    for line_number, line in enumerate(lines, 1)
  ]


def as_text(agreements: dict[str, Agreement]) -> str:
  """A table, in per cent."""
  rows = [["alignment", "AER", "precision", "recall", "links"]]
  for name, one in agreements.items():
    shares = (one.aer, one.precision, one.recall)
    rows.append([name, *(f"{100 * x:.2f}" for x in shares), str(one.links)])
  return aligned(rows)
