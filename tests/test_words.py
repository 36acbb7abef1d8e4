"""Words that have been replaced do not return in names; see docs/glossary.md."""

import ast
import functools
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("jaxsyn", "preprocess", "configs", "benchmarks", "tests")
# Retired word -> the files that may still define it, and why. Only remove files.
RETIRED = {
  "acts": "",
  "agreed": "",
  "ahead": "",
  "anew": "",
  "crew": "",
  "dealt": "",
  "desk": "",
  "doors": "",
  "doubts": "jaxsyn/data/store/manifests.py",  # a key of manifests
  "everyone": "",
  "hold": "tests/faults/test_lock.py",  # a helper
  "if_parsed": "",
  "leave": "jaxsyn/models/transformer_layers.py",  # "enter" is its partner
  "looked_up": "",
  "looks": "tests/test_paper_rows.py",  # a parameter
  "meet": "",
  "mirror": "",
  "of_pairs": "tests/preprocess/test_subset.py",  # a count, not the method
  "remembered": "",
  "sealed": "tests/session/test_workdir.py",
  "settled": "",
  "signed": "",
  "several": "",
  "spare": "",
  "taken": "",
  "tell": "",
  "telling": "",
  "treeless": "tests/models_under_test.py",  # a parameter
  "unsealed": "",
  "untold": "",
}


@functools.cache
def defined(path):
  """The lower-case names that a file defines, without outer underscores."""
  text = path.read_text(encoding="utf-8")
  if not any(word in text.lower() for word in RETIRED):
    return frozenset()
  names = set()
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
      names.add(node.name)
    elif isinstance(node, ast.arg):
      names.add(node.arg)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      names.add(node.id)
  return frozenset(name.strip("_").lower() for name in names)


@pytest.mark.parametrize("word", RETIRED)
def test_retired_words_are_not_defined_again(word):
  paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
  files = {str(p.relative_to(ROOT)) for p in paths if word in defined(p)}
  assert files == set(RETIRED[word].split()), "See docs/glossary.md."
