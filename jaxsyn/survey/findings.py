"""What a look at parallel text has found, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxsyn.survey.pairs import Look


def of(
  looks: Mapping[str, Look], held: int, lacking: Sequence[str]
) -> list[str]:
  """What was found in the text, line by line.

  Args:
    looks: at the files of each split, "train" among them.
    held: pairs of each split that is cut off the training files.
    lacking: the names of those.
  """
  lines = []
  for split, found in looks.items():
    part = f", of the first {found.looked:,}" * (found.looked < found.count)
    sides = " and ".join(
      f"{side.words / found.looked:.1f}"
      for side in (found.source, found.target)
    )
    lines.append(
      f"{split}: {found.count:,} pairs of {found.files}{part}: {sides} words "
      f"between blanks, {found.looked - found.different:,} repeated, "
      f"{found.copies:,} with equal sides"
    )
    if dropped := {k: n for k, n in found.dropped.items() if n}:
      counts = ", ".join(f"{name} {n:,}" for name, n in dropped.items())
      what = "preparing drops" if split == "train" else "kept as they are"
      share = 100 * sum(dropped.values()) / found.looked
      lines.append(f"  {what}: {counts} ({share:.1f} %)")
  train, cut = looks["train"], held * len(lacking)
  keys = {
    split: found.keys for split, found in looks.items() if split != "train"
  }
  if cut:
    keys[" and ".join(lacking)] = train.keys[:cut]
    lines.append(f"{' and '.join(lacking)}: {held:,} pairs each, held out")
  for split, own in keys.items():
    sources, pairs = train.again(own, cut)
    if sources:
      lines.append(
        f"warning: of {len(own):,} pairs of {split} {pairs:,} stand in training "
        f"too, and {sources:,} of their sources: scores will flatter"
      )
  if cut and _unlike(train, cut):
    lines.append(
      "warning: the pairs held out, which are the first, are of other lengths "
      "than the rest; shuffle them: paste SOURCE TARGET | shuf > pairs.tsv"
    )
  return lines


def _unlike(train: Look, cut: int) -> bool:
  """Whether the first pairs are far shorter or longer than all."""
  letters = train.source.characters.total() + train.target.characters.total()
  share = sum(train.lengths[:cut]) / cut / (letters / train.looked)
  return not 0.67 < share < 1.5
