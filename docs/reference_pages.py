"""Generates the reference from the code when the site is built.

`options.md` lists all options (`jaxsyn.options.describe`). The other pages
contain the docstrings of the public modules.
"""

from __future__ import annotations

import importlib
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator

# Public modules by page; other modules may change without notice. "MODULE:TABLE"
# stands for the modules of the registered specs and of their base classes.
PAGES = {
  "parts": (
    "Attention modifiers and windows",
    "Modifiers of attention, in the order of application.",
    (
      "jaxsyn.syntax.modifier",
      "jaxsyn.syntax.maps",
      "jaxsyn.syntax:MODIFIERS",
      "jaxsyn.syntax:WINDOWS",
    ),
  ),
  "models": (
    "Models, training and decoding",
    "Interfaces and implementations of models, losses and decoding strategies.",
    (
      "jaxsyn.models.contract",
      "jaxsyn.models.attention",
      "jaxsyn.models.layers",
      "jaxsyn.models.architectures:ARCHITECTURES",
      "jaxsyn.training.losses:LOSSES",
      "jaxsyn.training.optimizers",
      "jaxsyn.training.schedules",
      "jaxsyn.training.step",
      "jaxsyn.training.mesh",
      "jaxsyn.decode.strategies:STRATEGIES",
      "jaxsyn.decode.prefix",
      "jaxsyn.decode.ensemble",
      "jaxsyn.decode.forced",
      "jaxsyn.decode.translator",
    ),
  ),
  "commands": (
    "Commands in Python",
    "Each command is a function; importing has no side effects.",
    (
      "jaxsyn.new",
      "jaxsyn.preprocess.build",
      "jaxsyn.train",
      "jaxsyn.session.session",
      "jaxsyn.decode.requests",
      "jaxsyn.session.alignments",
      "jaxsyn.session.finishing",
      "jaxsyn.translate",
      "jaxsyn.compare",
      "jaxsyn.score",
      "jaxsyn.inspect",
      "jaxsyn.inspection.inspector",
      "jaxsyn.inspection.run",
    ),
  ),
  "data": (
    "Data and results",
    "Examples, datasets, scores and reports.",
    (
      "jaxsyn.arrays.shapes",
      "jaxsyn.options",
      "jaxsyn.errors",
      "jaxsyn.data.schema",
      "jaxsyn.data.sentence.conllu",
      "jaxsyn.data.sentence.tree",
      "jaxsyn.data.sentence.align",
      "jaxsyn.data.sentence.example",
      "jaxsyn.data.annotations",
      "jaxsyn.data.loader.tasks",
      "jaxsyn.data.store.records",
      "jaxsyn.data.store.tfds_metadata",
      "jaxsyn.scoring.scorers",
      "jaxsyn.scoring.metrics",
      "jaxsyn.scoring.ribes",
      "jaxsyn.scoring.significance",
      "jaxsyn.comparison.results",
      "jaxsyn.comparison.hierarchical",
      "jaxsyn.inspection.probe",
      "jaxsyn.inspection.pictures",
    ),
  ),
}
ABOUT_OPTIONS = """# Options

All options with type, bounds, default and description. Set an option on the command line
after `--config FILE:SYSTEM`, as in `--config.optimiser.learning_rate=1e-3`, or in a config
file, as in `config.optimiser.learning_rate = 1e-3`. `--helpconfig=optimiser` of each command
prints a section. Options marked ↻ can be changed when a run is resumed.
"""


def write(folder: pathlib.Path) -> None:
  """Writes all pages. Unchanged files keep their modification time."""
  folder.mkdir(exist_ok=True)
  from jaxsyn.config import Config
  from jaxsyn.options import describe

  _write(folder / "options.md", options(describe(Config)))
  for name, (title, about, modules) in PAGES.items():
    names = itertools.chain.from_iterable(map(modules_of, modules))
    _write(folder / f"{name}.md", page(title, about, dict.fromkeys(names)))


def modules_of(name: str) -> Iterator[str]:
  """Yields the module, or the modules of a table's specs and their bases."""
  module, _, table = name.partition(":")
  if not table:
    yield module
    return
  room = module.split(".")[:2]
  for spec in getattr(importlib.import_module(module), table).values():
    for cls in reversed(spec.__mro__):
      if cls.__module__.split(".")[:2] == room:
        yield cls.__module__


def _write(path: pathlib.Path, text: str) -> None:
  if not path.exists() or path.read_text(encoding="utf-8") != text:
    path.write_text(text, encoding="utf-8")


def options(rows: Iterable) -> str:
  """Returns the page of all options.

  Args:
    rows: Options from `jaxsyn.options.describe`.
  """
  sections: dict[str, list[str]] = {}
  meanings: dict[str, str] = {}
  for row in rows:
    if row.is_section:
      sections.setdefault(row.name, [])
      meanings[row.name] = row.meaning
      continue
    name = row.name.rpartition(".")[0]
    unit = f" {row.unit}" if row.unit else ""
    again = " ↻" if row.resume else ""
    sections.setdefault(name, []).append(
      f"`{row.name}`{again}\n: `{row.default}`{unit}, {_plain(row.type)}. "
      f"{_plain(row.meaning)}\n"
    )
  lines = [ABOUT_OPTIONS]
  for name, entries in sections.items():
    lines.append(f"## {name}\n")
    if meanings.get(name):
      lines.append(f"{_plain(meanings[name])}\n")
    lines += entries
  return "\n".join(lines)


def _plain(text: str) -> str:
  """Escapes all Markdown except backticks."""
  parts = re.split(r"(`[^`]+`)", text)
  parts[::2] = [re.sub(r"([*_<>$|\[\]])", r"\\\1", p) for p in parts[::2]]
  return "".join(parts)


def page(title: str, about: str, modules: Iterable[str]) -> str:
  """Returns a page with the docstrings of modules."""
  lines = [f"# {title}\n", f"{about}\n"]
  for module in modules:
    importlib.import_module(module)  # shows the import error itself
    lines += [
      f"## {module}\n",
      "```{eval-rst}",
      f".. automodule:: {module}",
      "   :members:",
      "```\n",
    ]
  return "\n".join(lines)


FLAX_FIELDS = re.compile(r"(, )?parent=<[^>]*_Sentinel object>, name=None")


def without_flax_fields(app, what, name, found, options, signature, result):
  """Removes the two fields that Flax adds to every module."""
  return signature and FLAX_FIELDS.sub("", signature), result


SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Source|Yields):(.*)")
ENTRY = re.compile(r"  (\S.*?): ?(.*)")


def as_restructured_text(app, what, name, found, options, lines) -> None:
  """Converts a plain-text docstring to reStructuredText, in place.

  Lines indented by two blanks are literal: formulas, tables or commands. In all
  other lines only single backticks are markup. "Args" and "Attributes" become
  lists. (Napoleon would parse "a, b: text" as a type and a name, and the text
  before a colon in "Returns" as a type.)
  """
  lines[:] = [*_converted(lines)]


def _converted(lines: list[str]) -> Iterator[str]:
  literal, section = False, ""
  for line in lines:
    if opens := SECTION.fullmatch(line):
      literal, section = False, opens[1]
      yield from ("", f"**{section}:** {_escaped(opens[2])}", "")
    elif section in ("Args", "Attributes", "Raises"):
      if entry := ENTRY.fullmatch(line):
        yield f"* ``{entry[1]}``: {_escaped(entry[2])}"
      else:
        yield f"  {_escaped(line.strip())}" if line.strip() else ""
    elif section:
      yield _escaped(line.strip())
    elif not line.startswith("  "):
      if literal and line:
        literal = False
        yield ""
      yield line if literal else _escaped(line)
    else:
      if not literal:
        literal = True
        yield from ("", "::", "")
      yield line


def _escaped(line: str) -> str:
  """Escapes all reStructuredText except backticks."""
  parts = re.split(r"(`[^`]+`)", line.replace("\\", "\\\\"))
  parts[::2] = [re.sub(r"([*|]|_(?=\W|$))", r"\\\1", p) for p in parts[::2]]
  return "".join(parts)
