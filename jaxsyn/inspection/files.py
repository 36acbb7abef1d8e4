"""The files of one sentence: JSON and pictures."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

from matplotlib.figure import Figure

from jaxsyn.inspection import arcs, pictures
from jaxsyn.inspection.sentence import Sentence, to_json


def write(
  seen: Sentence,
  folder: pathlib.Path,
  number: int,
  layers: Sequence[int] | None = None,
) -> None:
  """Writes the files of one sentence.

  Args:
    seen: of `look`.
    folder: where to; it exists.
    number: which of the input, from 1; in the files' names.
    layers: as in `run`.
  """
  if layers is not None:
    seen = dataclasses.replace(
      seen,
      attention=tuple(m for m in seen.attention if m.layer in layers),
      weightings=tuple(m for m in seen.weightings if m.layer in layers),
    )
  name = f"sentence_{number:04d}"
  (folder / f"{name}.json").write_text(to_json(seen, number), encoding="utf-8")
  drawn = trees(seen, f"sentence {number}: ", seen.translation)
  for kind, figure in drawn.items():
    figure.savefig(folder / f"{name}.{kind}.png")
  for found in (*seen.attention, *seen.weightings):
    what = [found.part] if found.part else []
    if found.is_attention:
      what = ["attention", *what]
    elif found.kind != "weighting":
      what.append(found.kind)
    what = ".".join(what)
    figure = pictures.picture(found, f"sentence {number}")
    figure.savefig(folder / f"{name}.{what}.{found.place}_{found.layer}.png")


def trees(
  seen: Sentence, heading: str = "", translation: str = ""
) -> dict[str, Figure]:
  """The tree, the one that a control read, and the one that a head found.

  Args:
    seen: of `look`.
    heading: stands before what each is.
    translation: stands below the first.
  """
  source = seen.source
  found = {
    "tree": arcs.tree(source, translation, None, f"{heading}dependency tree")
  }
  if source.tree in ("linear", "random"):  # a control: what it reads instead
    what = f"{heading}the {source.tree} tree that the system read"
    found["tree_read"] = arcs.tree(source, "", source.given_head_W, what)
  if seen.found_head_W is not None:
    what = f"{heading}each word's parent as the system finds it"
    wrong = []
    if source.parsed:
      pairs = enumerate(zip(seen.found_head_W, source.head_W))
      wrong = [word for word, (ours, parsed) in pairs if ours != parsed]
      what += (
        f" ({len(source.words) - len(wrong)} of {len(source.words)} as parsed; "
        "dotted: others)"
      )
    found["tree_found"] = arcs.tree(source, "", seen.found_head_W, what, wrong)
  return found
