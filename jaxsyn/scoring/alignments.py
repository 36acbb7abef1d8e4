"""Computes the alignment error rate (AER) of word alignments.

With A the links of a file, S the sure links of the reference and P its possible
links (including the sure ones), all over all sentences:

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
Links = set[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Agreement:
  """Agreement of a word alignment with the reference, as rates from 0 to 1.

  Attributes:
    aer: Alignment error rate; lower is better.
    precision: Fraction of the links that are possible; 1 without links.
    recall: Fraction of the sure links that are found; 1 without sure links.
    links: Number of links.
  """

  aer: float
  precision: float
  recall: float
  links: int


def run(reference: Path, hypotheses: Sequence[Path]) -> dict[str, Agreement]:
  """Computes the alignment error rates of word-alignment files.

  Args:
    reference: File of sure links, i-j, and possible ones, i?j or ipj.
    hypotheses: Files of links, i-j.

  Returns:
    Agreement by file name.

  Raises:
    InputError: A file cannot be read, has an invalid link or another number of
      lines; or there are no links to compare.
  """
  expected = _read(reference, possible=True)
  agreements = {}
  for path in hypotheses:
    lines = _read(path, possible=False)
    if len(lines) != len(expected):
      raise InputError(
        f"{path} has {len(lines)} lines, but {reference} has {len(expected)}: "
        "line N of both must be of the same sentence pair."
      )
    links = sure = sure_hits = possible_hits = 0
    for (_, links_of_line), (sure_links, all_links) in zip(lines, expected):
      links += len(links_of_line)
      sure += len(sure_links)
      sure_hits += len(links_of_line & sure_links)
      possible_hits += len(links_of_line & all_links)
    if not links + sure:
      raise InputError(
        f"{path} has no links, and {reference} no sure ones: there is nothing"
        " to compare."
      )
    agreements[os.fspath(path)] = Agreement(
      aer=1 - (sure_hits + possible_hits) / (links + sure),
      precision=possible_hits / links if links else 1.0,
      recall=sure_hits / sure if sure else 1.0,
      links=links,
    )
  return agreements


def _read(path: Path, *, possible: bool) -> list[tuple[Links, Links]]:
  """Reads word alignments: the sure links and all links of each line."""
  lines = read_lines(path)
  if not lines:
    raise InputError(f"{path} is empty: there is nothing to compare.")
  links = []
  for number, line in enumerate(lines, 1):
    position = f"{os.fspath(path)}:{number}"
    sure, every = alignments.parse_links(line, position, possible=possible)
    links.append((set(sure), set(every)))
  return links


def as_text(agreements: dict[str, Agreement]) -> str:
  """Returns a text table of alignment error rates, in percent."""
  rows = [["alignment", "AER", "precision", "recall", "links"]]
  for name, one in agreements.items():
    rates = (one.aer, one.precision, one.recall)
    rows.append([name, *(f"{100 * x:.2f}" for x in rates), str(one.links)])
  return aligned(rows)
