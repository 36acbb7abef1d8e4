"""The files of one sentence: JSON and pictures."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

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
  source = seen.source
  heading = f"sentence {number}: dependency tree"
  figure = arcs.tree(source, seen.translation, heading=heading)
  figure.savefig(folder / f"{name}.tree.png")
  if source.tree in ("linear", "random"):  # a control: what it reads instead
    heading = f"sentence {number}: the {source.tree} tree that the system read"
    figure = arcs.tree(source, "", source.given_head_W, heading)
    figure.savefig(folder / f"{name}.tree_read.png")
  if seen.found_head_W is not None:
    heading = f"sentence {number}: each word's parent as the system finds it"
    wrong = []
    if source.parsed:
      pairs = enumerate(zip(seen.found_head_W, source.head_W))
      wrong = [word for word, (found, parsed) in pairs if found != parsed]
      heading += (
        f" ({len(source.words) - len(wrong)} of {len(source.words)} as parsed; "
        "dotted: others)"
      )
    figure = arcs.tree(source, "", seen.found_head_W, heading, wrong)
    figure.savefig(folder / f"{name}.tree_found.png")
  for found in (*seen.attention, *seen.weightings):
    what = [found.part] if found.part else []
    if found.is_attention:
      what = ["attention", *what]
    elif found.kind != "weighting":
      what.append(found.kind)
    what = ".".join(what)
    figure = pictures.picture(found, f"sentence {number}")
    figure.savefig(folder / f"{name}.{what}.{found.place}_{found.layer}.png")
