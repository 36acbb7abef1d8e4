"""The files of one sentence: JSON and pictures."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Sequence

from matplotlib.figure import Figure

from jaxsyn.inspection import arcs, pictures
from jaxsyn.inspection.sentence import Sentence, to_json


def write(
  seen: Sentence,
  folder: pathlib.Path,
  index: int,
  *,
  layers: Sequence[int] | None = None,
) -> None:
  """Writes the files of one sentence.

  Args:
    seen: the sentence.
    folder: where to; it exists.
    index: which of the input, from 1; in the files' names.
    layers: as in `run`.
  """
  if layers is not None:
    seen = dataclasses.replace(
      seen,
      attention=tuple(m for m in seen.attention if m.layer in layers),
      weightings=tuple(m for m in seen.weightings if m.layer in layers),
    )
  name = f"sentence_{index:04d}"
  (folder / f"{name}.json").write_text(to_json(seen, index), encoding="utf-8")
  figures = trees(seen, f"sentence {index}: ", seen.translation)
  for kind, figure in figures.items():
    figure.savefig(folder / f"{name}.{kind}.png")
  for shown in (*seen.attention, *seen.weightings):
    what = [shown.part] if shown.part else []
    if shown.is_attention:
      what = ["attention", *what]
    elif shown.kind != "weighting":
      what.append(shown.kind)
    what += [shown.where, "png"]
    figure = pictures.picture(shown, f"sentence {index}")
    figure.savefig(folder / ".".join([name, *what]))


def trees(
  seen: Sentence, heading: str = "", translation: str = ""
) -> dict[str, Figure]:
  """The tree, the one that a control read, and the one that a head found.

  Args:
    seen: the sentence.
    heading: stands before what each is.
    translation: stands below the first.
  """
  source = seen.source
  tree = functools.partial(arcs.tree, source)
  figures = {"tree": tree(translation, heading=f"{heading}dependency tree")}
  if source.tree not in ("parsed", "none"):  # another tree than the parser's
    what = f"{heading}the {source.tree} tree that the system read"
    figures["tree_read"] = tree(head_W=source.given_head_W, heading=what)
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
    figures["tree_found"] = tree(
      head_W=seen.found_head_W, heading=what, wrong=wrong
    )
  return figures
