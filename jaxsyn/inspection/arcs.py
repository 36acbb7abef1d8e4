"""Draws dependency trees as arcs above the words, with spaCy's displaCy."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from jaxsyn.inspection.sentence import ReadSource, Sentence

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ufffe\uffff]")  # not allowed in SVG


class Tree(str):
  """A drawn tree: the text of an SVG file, which notebooks display."""

  def _repr_svg_(self) -> str:
    return str(self)


def trees(seen: Sentence) -> dict[str, Tree]:
  """Draws a sentence's parsed tree, control tree and predicted tree.

  Returns:
    "tree", the parser's; "tree_read", if a control replaces it; and
    "tree_found", if a supervised head finds one.
  """
  source = seen.source
  drawn = {"tree": tree(source)}
  if source.tree not in ("parsed", "none"):
    drawn["tree_read"] = tree(source, source.given_head_W)
  if seen.found_head_W is not None:
    drawn["tree_found"] = tree(source, seen.found_head_W)
  return drawn


def tree(source: ReadSource, head_W: Sequence[int] | None = None) -> Tree:
  """Draws a dependency tree.

  An arrow leads from a parent to its child. Roots have the tag "root". Arcs of
  the parser's tree are labeled with their relations.

  Args:
    source: The sentence.
    head_W: Other parents than the parser's, e.g. in a control tree. Their arcs
      have a label only if the parser's tree has them too.
  """
  from spacy.displacy.render import DependencyRenderer  # takes long to load

  parsed_head_W = source.head_W if source.parsed else ()
  if head_W is None:
    head_W = parsed_head_W
  words = [{"text": _CONTROL.sub("", word), "tag": ""} for word in source.words]
  arcs = []
  for child, head in enumerate(head_W):
    if child == head:
      words[child]["tag"] = "root"
      continue
    label = ""
    if parsed_head_W and parsed_head_W[child] == head:
      label = html.escape(_CONTROL.sub("", source.relation_W[child]))
    arcs.append(
      {
        "start": min(child, head),
        "end": max(child, head),
        "label": label,
        "dir": "left" if child < head else "right",
      }
    )
  # As close as the words allow, or the text is tiny where a page scales the tree.
  longest = max((len(word["text"]) for word in words), default=0)
  renderer = DependencyRenderer(
    {
      "distance": max(90, 9 * longest + 16),
      "word_spacing": 30,
      "arrow_spacing": 6,
      "arrow_width": 6,
      "arrow_stroke": 1.5,
    }
  )
  return Tree(renderer.render_svg("tree", words, arcs).strip())
