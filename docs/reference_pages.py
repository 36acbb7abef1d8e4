"""Writes the pages of the reference from the code, at each build of the site.

`options.md` has every option, from the fields that are the only place where one
is said (`jaxsyn.options.describe`); `api.md` and its pages have the docstrings
of the public modules.
"""

from __future__ import annotations

import importlib
import pathlib
import re
from collections.abc import Iterable, Iterator

# Public modules by page; what is not here may change without a word. A table
# stands for the modules of its specs and of their bases.
PAGES = {
  "parts": (
    "Parts and windows",
    "What a system can put into attention, in the order of application.",
    (
      "jaxsyn.syntax.modifier",
      "jaxsyn.syntax.maps",
      "jaxsyn.syntax:MODIFIERS",
      "jaxsyn.syntax:WINDOWS",
    ),
  ),
  "models": (
    "Models, training, search",
    "What holds for every model family, and what a training step is.",
    (
      "jaxsyn.models.contract",
      "jaxsyn.models.attention",
      "jaxsyn.models.layers",
      "jaxsyn.models.architectures:ARCHITECTURES",
      "jaxsyn.training.losses:LOSSES",
      "jaxsyn.training.optimiser",
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
      "jaxsyn.session",
      "jaxsyn.decode.requests",
      "jaxsyn.translating.alignments",
      "jaxsyn.translating.risk",
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
    "What an example is, what a prepared folder and a report hold.",
    (
      "jaxsyn.shapes",
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
      "jaxsyn.inspection.curve",
    ),
  ),
}
ABOUT_OPTIONS = """# Options

Every option with its type, bounds, default and meaning, written from the fields that are
read. Set one on the command line after `--config FILE:SYSTEM`, as in
`--config.optimiser.learning_rate=1e-3`, or in a config file, as in
`config.optimiser.learning_rate = 1e-3`; `--helpconfig=optimiser` of each command prints a
section. Options marked ↻ may change when a run goes on.
"""


def write(folder: pathlib.Path) -> None:
  """Writes all pages; those that have not changed keep their time."""
  folder.mkdir(exist_ok=True)
  from jaxsyn.config import Config
  from jaxsyn.options import describe

  _write(folder / "options.md", options(describe(Config)))
  for name, (title, about, modules) in PAGES.items():
    modules = dict.fromkeys(m for one in modules for m in modules_of(one))
    _write(folder / f"{name}.md", page(title, about, modules))


def modules_of(name: str) -> Iterator[str]:
  """A module; or those of a table's specs and of their bases in that room."""
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
  """The page of all options.

  Args:
    rows: of `jaxsyn.options.describe`.
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
  """Text as Markdown in which only backticks mean something."""
  parts = re.split(r"(`[^`]+`)", text)
  parts[::2] = [re.sub(r"([*_<>$|\[\]])", r"\\\1", p) for p in parts[::2]]
  return "".join(parts)


def page(title: str, about: str, modules: Iterable[str]) -> str:
  """A page of docstrings."""
  lines = [f"# {title}\n", f"{about}\n"]
  for module in modules:
    importlib.import_module(module)  # its own error, not Sphinx's
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
  """A signature without the two fields that Flax gives every module."""
  return signature and FLAX_FIELDS.sub("", signature), result


SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Source|Yields):(.*)")
ENTRY = re.compile(r"  (\S.*?): ?(.*)")


def as_restructured_text(app, what, name, found, options, lines) -> None:
  """Makes reStructuredText of a docstring, which is plain text, in place.

  What is set in by two blanks is a formula, a table or a command and stays as
  it is; elsewhere no character has a meaning but single backticks. "Args" and
  "Attributes" become lists. (Napoleon takes "a, b: text" for a type and a name,
  and a colon in a sentence of "Returns" for the end of a type.)
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
  """A line of text in which only backticks mean something."""
  parts = re.split(r"(`[^`]+`)", line.replace("\\", "\\\\"))
  parts[::2] = [re.sub(r"([*|]|_(?=\W|$))", r"\\\1", p) for p in parts[::2]]
  return "".join(parts)
