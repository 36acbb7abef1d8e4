"""Who may import whom: read from the import lines, and seen in a process."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = [
  *("data", "syntax", "models", "training", "decode", "scoring"),
  *("inspection", "comparison"),
]
FREE = {"shapes", "config", "errors", "options", "files"}  # open to every room


def imports(path: pathlib.Path) -> set[str]:
  """Modules a file imports, whole names, also inside functions."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      found |= {f"{node.module}.{alias.name}" for alias in node.names}
  return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_before_it(room):
  allowed = FREE | set(ROOMS[: ROOMS.index(room) + 1])
  if room in ("scoring", "comparison"):  # of resolved configs, and of runs
    allowed |= {"plan", "workdir"}
  if room == "inspection":  # of sessions
    allowed |= {"session"}
  for path in (ROOT / "jaxsyn" / room).rglob("*.py"):
    own = {i.split(".")[1] for i in imports(path) if i.startswith("jaxsyn.")}
    assert own <= allowed, f"{path} imports {own - allowed}"


def test_a_story_of_the_data_reads_only_from_those_before_it():
  stories = ["sentence", "store", "loader"]
  for number, story in enumerate(stories):
    for path in (ROOT / "jaxsyn" / "data" / story).rglob("*.py"):
      read = {name.split(".")[2] for name in imports(path) if ".data." in name}
      assert not read & set(stories[number + 1 :]), path


@pytest.mark.parametrize("folder", ["jaxsyn/data", "preprocess", "configs"])
def test_preparing_needs_no_jax(folder):
  for path in (ROOT / folder).rglob("*.py"):
    tops = {i.split(".")[0] for i in imports(path)}
    assert not tops & {"jax", "flax", "optax", "orbax", "tensorflow"}, path


def test_jaxsyn_does_not_import_what_stands_on_it():
  for path in (ROOT / "jaxsyn").rglob("*.py"):
    tops = {i.split(".")[0] for i in imports(path)}
    assert not tops & {"preprocess", "configs", "benchmarks", "tests"}, path


def loaded_by(statement: str) -> set[str]:
  """Top-level modules in a fresh process after a statement."""
  code = (
    f"{statement}\nimport sys\nprint(*{{m.split('.')[0] for m in sys.modules}})"
  )
  done = subprocess.run(
    [sys.executable, "-c", code],
    capture_output=True,
    text=True,
    check=True,
    cwd=ROOT,
  )
  return set(done.stdout.split())


def test_the_data_room_loads_no_jax():
  stories = (
    "loader import split",
    "sentence import example, conllu",
    "store import records",
  )
  loaded = loaded_by("; ".join(f"from jaxsyn.data.{s}" for s in stories))
  assert "numpy" in loaded
  assert not loaded & {"jax", "flax", "tensorflow"}


def test_training_loads_no_tensorflow_and_no_parser():
  loaded = loaded_by("import jaxsyn.train")
  assert "jax" in loaded
  assert not loaded & {"tensorflow", "ufal", "spacy", "spacy_udpipe"}


def test_importing_parses_no_flags_and_starts_no_device():
  code = (
    "import jaxsyn.train, jaxsyn.translate, jaxsyn.score, jax\n"
    "import jaxsyn.inspect, jaxsyn.compare\n"
    "from absl import flags\n"
    "assert 'workdir' not in flags.FLAGS\n"
    "assert not jax._src.xla_bridge._backends"
  )
  subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
