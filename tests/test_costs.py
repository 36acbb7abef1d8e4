"""The list of what tests cost, and that the quick ones are of every room."""

import re

import costs
import pytest


def test_what_is_listed_is_there():
  files = list(costs.FILE.parent.rglob("*.py"))
  text = {
    f.relative_to(costs.FILE.parent.parent).as_posix(): f.read_text()
    for f in files
  }
  everything = "\n".join(text.values())
  for name in costs.read():
    file, _, function = name.rpartition("::")
    where = text[file] if file else everything
    function = function.removeprefix("fixture:")
    assert re.search(rf"^def {function}\(", where, re.MULTILINE), (
      f"{name} is gone: python -m pytest --write-costs writes the list anew"
    )


def test_every_folder_has_quick_tests(request):
  everything = {f.parent for f in costs.FILE.parent.rglob("test_*.py")}
  everything.remove(costs.FILE.parent / "aot")  # not of this suite
  items = request.session.items
  if {item.path.parent for item in items} != everything:
    pytest.skip("not all tests are collected")
  quick = {i.path.parent for i in items if i.get_closest_marker("quick")}
  assert quick == everything
