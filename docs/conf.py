"""Configuration of Sphinx: sphinx-build -W --keep-going -n docs docs/_build

The reference is generated from the code at each build (`reference_pages`).
"""

from __future__ import annotations

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import notebook_pages  # noqa: E402
import reference_pages  # noqa: E402

project = "jaxsyn"
author = "the authors of jaxsyn"
extensions = [
  "myst_parser",
  "sphinx.ext.autodoc",
  "sphinx.ext.mathjax",
]
smartquotes = False  # "--config" is copied from docstrings into a shell
html_theme = "furo"
html_title = "jaxsyn"
exclude_patterns = ["_build", "executed"]

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "code"  # docstrings have names between single backticks
# The names of arrays contain their shapes; docstrings describe the types.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# A method of Flax modules with a docstring of Flax.
autodoc_default_options = {"exclude-members": "setup"}
# Types of other projects and private types have no page.
nitpick_ignore_regex = [("py:.*", r"(?!jaxsyn).*|.*\._\w+")]

reference_pages.write(HERE / "reference")
notebook_pages.write(HERE / "reference" / "notebooks")


def setup(app):
  app.connect("autodoc-process-docstring", reference_pages.as_restructured_text)
  app.connect("autodoc-process-signature", reference_pages.without_flax_fields)
