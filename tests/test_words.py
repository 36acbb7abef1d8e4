"""Names that have been replaced do not return; see docs/glossary.md."""

import ast
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("jaxsyn", "preprocess", "configs", "benchmarks", "tests")
RETIRED_WORDS = """
acts agreed ahead anew crew dealt desk doors doubts everyone hold if_parsed
looked_up looks meet mirror of_pairs remembered sealed settled signed
several spare taken tell telling treeless unsealed untold
"""
RETIRED = RETIRED_WORDS.split()
# File -> retired names that it may define. Only remove entries.
ALLOWED: dict[str, set[str]] = {}


def defined(path):
  """Returns the lower-case names that a file defines, without underscores."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
      names.add(node.name)
    elif isinstance(node, ast.arg):
      names.add(node.arg)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      names.add(node.id)
  return {name.strip("_").lower() for name in names}


def test_retired_names_are_not_defined_again():
  paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
  found = {
    str(p.relative_to(ROOT)): defined(p).intersection(RETIRED) for p in paths
  }
  assert {file: names for file, names in found.items() if names} == ALLOWED
