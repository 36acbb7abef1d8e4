"""Figures of any words and of logs; sizes are reasonable."""

import dataclasses
import io
import json
import warnings
import xml.etree.ElementTree

import matplotlib.image
import numpy as np
import pytest

from jaxsyn.inspection import arcs, pictures
from jaxsyn.inspection.maps import Map
from jaxsyn.inspection.pooling import source_units
from jaxsyn.inspection.sentence import ReadSource
from jaxsyn.training import log

ODD = ("$x_1", "日本語", "$", "עברית", "😀", "\u200b", "\\frac{", "a" * 80)


def source(words, head_W, parsed=True) -> ReadSource:
  return ReadSource(
    text=" ".join(words),
    words=tuple(words),
    head_W=tuple(head_W),
    relation_W=("nsubj:pass",) * len(words),
    parsed=parsed,
    tree="parsed",
    given_head_W=tuple(head_W),
    subwords=(*words, "</s>"),
    units=source_units(words, [*range(len(words)), -1]),
    example={},
  )


def pixels(figure) -> np.ndarray:
  page = io.BytesIO()
  with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Glyph .* missing")
    figure.savefig(page, format="png")
  return matplotlib.image.imread(io.BytesIO(page.getvalue()))


def shown(value_HQM, part="", kind="weight") -> Map:
  H, Q, M = value_HQM.shape
  names = tuple(f"word{i}" for i in range(max(Q, M)))
  heads = tuple(range(H))
  labels = {"rows": names[:Q], "columns": names[:M]}
  return Map("encoder", 0, part, kind, heads, value_HQM, ((),) * H, **labels)


def test_a_tree_of_any_words():
  """The SVG is valid XML, in which the words are unchanged."""
  words = (*ODD, "<b>&amp;", "\x00")
  drawn = arcs.tree(source(words, [max(0, i - 1) for i in range(len(words))]))
  root = xml.etree.ElementTree.fromstring(drawn)
  shown = [e.text for e in root.iter() if e.get("class") == "displacy-word"]
  assert shown == [*words[:-1], None]
  assert drawn == drawn._repr_svg_()


def parts(svg, name):
  """Texts or paths of all elements of a class of displaCy."""
  root = xml.etree.ElementTree.fromstring(svg)
  found = [e for e in root.iter() if e.get("class") == f"displacy-{name}"]
  return [element.text or element.get("d") for element in found]


def test_arcs_of_parsed_and_other_trees():
  words = ("a", "b", "c", "d")
  parsed = source(words, (2, 3, 2, 3))  # crossing arcs, two roots
  assert parts(arcs.tree(parsed), "tag") == [None, None, "root", "root"]
  assert parts(arcs.tree(parsed), "label") == ["nsubj:pass"] * 2
  other = arcs.tree(parsed, (2, 0, 1, 3))  # only the first as parsed
  assert parts(other, "tag") == [None, None, None, "root"]
  assert parts(other, "label") == ["nsubj:pass", None, None]
  # The tip of an arrow is at the child: b is left of c, and a of b.
  tips = [float(d[1:].split(",")[0]) for d in parts(other, "arrowhead")]
  assert tips[0] < tips[1] < tips[2]
  unparsed = source(words, (2, 3, 2, 3), parsed=False)
  assert parts(arcs.tree(unparsed), "label") == []
  assert parts(arcs.tree(unparsed), "tag") == [None] * 4


def test_a_grid_of_heads_has_room_for_all():
  rng = np.random.default_rng(0)
  for size, heads in ((2, 1), (9, 8), (70, 2)):
    weight_HQM = rng.dirichlet(np.ones(size), (heads, size))
    image = pixels(pictures.picture(shown(weight_HQM)))
    assert image.std() > 0.01 and max(image.shape) < 6000
  panel = pictures.Panel("$ 翻訳 $", ODD, ODD, np.eye(len(ODD)))
  image = pixels(pictures.matrices([panel], "$ 翻訳 $"))
  assert image.std() > 0.01 and max(image.shape) < 6000


def test_titles_name_heads_and_their_modifiers():
  same = shown(np.ones((3, 2, 2)), "tree_scaled", "weighting")
  (panel,) = pictures.panels(same)
  assert panel.title == "heads 0, 1, 2"
  attention = dataclasses.replace(
    shown(np.ones((2, 2, 2))), parts=(("relative", "tree_scaled"), ())
  )
  titles = [panel.title for panel in pictures.panels(attention)]
  assert titles == ["head 0 (relative, tree_scaled)", "head 1"]


def test_scales_of_maps():
  bias_HQM = np.array([[[0.0, -1e9], [-np.inf, 2.0]], [[np.nan, -1], [1, 1]]])
  figure = pictures.picture(shown(bias_HQM, "localness", "bias"))
  assert pixels(figure).std() > 0.01
  (image,) = figure.axes[0].images
  assert image.norm.vmin == -2.0 and image.norm.vmax == 2.0  # hidden: no part
  assert image.get_array().mask.tolist() == [[False, True], [True, False]]
  # Attention has one scale, and weightings their own.
  weight_HQM = np.full((2, 3, 3), 1 / 3)
  (image,) = pictures.picture(shown(weight_HQM)).axes[1].images
  assert (image.norm.vmin, image.norm.vmax) == (0.0, 1.0)
  part = shown(weight_HQM, "parent_scaled", "weighting")
  (image,) = pictures.picture(part).axes[0].images
  assert (image.norm.vmin, image.norm.vmax) == (0.0, pytest.approx(1 / 3))


def lines_of(figure):
  """Title -> label -> (steps, values)."""
  return {
    axes.get_title(): {
      line.get_label(): tuple(map(list, line.get_data()))
      for line in axes.get_lines()
    }
    for axes in figure.axes
  }


def test_learning_curve_of_a_log(tmp_path):
  figure = pictures.learning_curve(tmp_path)  # before there is a log
  assert lines_of(figure)["bleu"] == {"validation": ([], [])}
  records = [
    {"kind": "train", "step": 10, "loss": 5.5},
    {"kind": "validation", "step": 10, "loss": 5.0, "bleu": 1.25},
    {"kind": "train", "step": 20, "loss": 4.5},
  ]
  lines = [json.dumps({**record, "minutes": 0.1}) + "\n" for record in records]
  (tmp_path / log.FILE).write_text("".join(lines))
  assert lines_of(pictures.learning_curve(tmp_path)) == {
    "loss": {"train": ([10, 20], [5.5, 4.5]), "validation": ([10], [5.0])},
    "bleu": {"validation": ([10], [1.25])},
  }
