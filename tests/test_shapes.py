"""Tests that the letters of arrays are declared and checked."""

import ast
import pathlib
import re

import numpy as np
import pytest

from jaxsyn.arrays.shapes import LETTERS, agree

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A name that ends in letters: score_BHQM, _windows_B; not _B, MAX_SIZE, utf_8.
ARRAY = re.compile(r"_*[a-z]\w*_([A-Z1-9]*[A-Z][A-Z1-9]*)")


def arrays(tree: ast.AST) -> dict[str, str]:
  """Returns the array names in a file, also in strings, and their letters."""
  names = set()
  for node in ast.walk(tree):
    for field in ("id", "attr", "arg", "name", "value"):
      if isinstance(name := getattr(node, field, None), str):
        names.add(name)
  matches = {name: ARRAY.fullmatch(name) for name in names}
  return {name: match[1] for name, match in matches.items() if match}


def declared(tree: ast.Module) -> set[str]:
  """Returns the letters that the docstring of a file declares."""
  top = ast.get_docstring(tree) or ""
  line = re.search(r"^Letters: ([^.]+)\.$", top, re.M)
  entries = re.split(r";\s+", line[1]) if line else []
  return {re.fullmatch(r"(\w)\s.+", e, re.S)[1] for e in entries}


def test_every_letter_is_declared_where_it_is_used():
  paths = sorted((ROOT / "jaxsyn").rglob("*.py"))
  assert len(paths) > 100
  for path in paths:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used, local = {*"".join(arrays(tree).values())}, declared(tree)
    unknown = used - local - {*LETTERS}
    assert not unknown, f"{path}: declare {unknown} in the docstring"
    assert not local & {*LETTERS}, f"{path}: declared in shapes.py"
    assert local <= used, f"{path}: no array has the letters {local - used}"


@pytest.mark.parametrize(
  "arrays, message",
  [
    ({"a_BHQM": np.zeros((2, 4, 3, 5)), "b_B1QM": np.zeros((2, 1, 3, 5))}, ""),
    ({"a_BS": np.zeros((2, 3)), "b_BSS": None}, ""),
    (
      {"a_BS": np.zeros((2, 3)), "b_BS": np.zeros((2, 4))},
      "axis S: b_BS has 4, but a_BS has 3",
    ),
    ({"a_BSS": np.zeros((2, 3, 4))}, "axis S: a_BSS has 4, but a_BSS has 3"),
    ({"a_BS": np.zeros(2)}, "a_BS must have axes BS"),
    ({"a_B1": np.zeros((2, 2))}, "axis 1: a_B1 has 2, but the letter 1 has 1"),
    ({"a_Bx": np.zeros((2, 2))}, "a_Bx does not end in letters"),
  ],
)
def test_arrays_agree_on_the_size_of_each_letter(arrays, message):
  if not message:
    agree(**arrays)
    return
  with pytest.raises(ValueError, match=message):
    agree(**arrays)
