"""Who may import whom: read from the import lines, and seen in a process."""

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A room is a module, or a folder with all that is in it but what is named here
# by itself. Each imports only from itself and from rooms before it.
ROOMS = [
  *("jaxsyn.__init__", "jaxsyn.commands", "jaxsyn.errors"),
  *("jaxsyn.addresses", "jaxsyn.progress", "jaxsyn.storage", "jaxsyn.exits"),
  *("jaxsyn.workers", "jaxsyn.shapes", "jaxsyn.product", "jaxsyn.sinusoids"),
  "jaxsyn.options",
  *("jaxsyn.data.__init__", "jaxsyn.data.sentence.align"),
  "jaxsyn.data.sentence.text",
  *("jaxsyn.data.sentence.conllu_blocks", "jaxsyn.data.sentence.conllu"),
  *("jaxsyn.data.annotations", "jaxsyn.data.schema", "jaxsyn.data.store.rows"),
  *("jaxsyn.data.sentence", "jaxsyn.data.store.fetch"),
  *("jaxsyn.data.sentence.parsers", "jaxsyn.data.loader.tasks"),
  *("jaxsyn.data.options", "jaxsyn.data.store"),
  *("jaxsyn.data.sentence.parsers.recorded", "jaxsyn.data.loader"),
  *("jaxsyn.syntax", "jaxsyn.syntax.windows", "jaxsyn.syntax.__init__"),
  *("jaxsyn.syntax.placement", "jaxsyn.models", "jaxsyn.training"),
  *("jaxsyn.decode", "jaxsyn.scoring", "jaxsyn.config", "jaxsyn.plan"),
  *("jaxsyn.configs.graph_systems", "jaxsyn.configs.parsing_systems"),
  *("jaxsyn.configs.recurrent_systems", "jaxsyn.configs.systems"),
  *("jaxsyn.validation", "jaxsyn.session", "jaxsyn.cli"),
  *("jaxsyn.exporting", "jaxsyn.inspection", "jaxsyn.comparison"),
  *("jaxsyn.train", "jaxsyn.translate", "jaxsyn.score"),
  *("jaxsyn.serving", "jaxsyn.serve"),
  *("jaxsyn.inspect", "jaxsyn.compare", "jaxsyn.export"),
  *("jaxsyn.configs", "jaxsyn.preprocess.toy", "jaxsyn.preprocess"),
  *("jaxsyn.corpus", "jaxsyn.new", "jaxsyn.__main__"),
  *("benchmarks.figures", "benchmarks"),
]


NO_JAX = (
  *("jaxsyn.data.", "jaxsyn.preprocess.", "jaxsyn.configs."),
  *("jaxsyn.corpus", "jaxsyn.new"),
)


def modules() -> Iterator[tuple[str, pathlib.Path]]:
  """Every module by name; that of a package itself ends with __init__."""
  linked = ("jaxsyn/configs", "jaxsyn/preprocess")  # not followed from above
  for folder in ("jaxsyn", *linked, "benchmarks"):
    for path in (ROOT / folder).rglob("*.py"):
      yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def lines(node: ast.AST) -> Iterator[ast.AST]:
  """All that runs: not what a type checker alone sees."""
  if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
    return
  yield node
  for child in ast.iter_child_nodes(node):
    yield from lines(child)


def imports(path: pathlib.Path) -> set[str]:
  """What a file imports, whole names, also inside functions."""
  names = set()
  for node in lines(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      names |= {f"{node.module}.{alias.name}" for alias in node.names}
  return names


@functools.cache
def graph() -> dict[str, set[str]]:
  """Module -> modules of the project that it imports."""
  paths = dict(modules())

  def module_of(name: str) -> str | None:
    while name:  # a name of a module, of a package, or of something in one
      for module in (name, f"{name}.__init__"):
        if module in paths:
          return module
      name = name.rpartition(".")[0]
    return None

  return {
    module: {m for n in imports(path) if (m := module_of(n))}
    for module, path in paths.items()
  }


def room_of(module: str) -> int:
  """The place in the list."""
  parts = module.split(".")
  names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
  return next(ROOMS.index(name) for name in names if name in ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_before_it(room):
  place = ROOMS.index(room)
  inside = [module for module in graph() if room_of(module) == place]
  assert inside, "there is no such room"
  for module in inside:
    later = {name for name in graph()[module] if room_of(name) > place}
    assert not later, f"{module} imports {later}"


def test_no_module_imports_itself_by_way_of_others():
  graphlib.TopologicalSorter(graph()).prepare()  # names a circle


def test_the_code_of_preparing_uses_no_jax():
  heavy = {"jax", "flax", "optax", "orbax", "tensorflow"}
  for module, path in modules():
    if module.startswith(NO_JAX):
      assert not {name.split(".")[0] for name in imports(path)} & heavy, module


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
    "loader import loader",
    "sentence import example, conllu",
    "store import dataset",
  )
  loaded = loaded_by("; ".join(f"from jaxsyn.data.{s}" for s in stories))
  assert "numpy" in loaded
  assert not loaded & {"jax", "flax", "tensorflow"}


def test_old_doors_lead_to_the_same_modules():
  """`configs` and `preprocess` of a checkout import all else as jaxsyn's."""
  code = (
    "import sys, preprocess.build, preprocess.clean, configs.own, configs.papers.pascal\n"
    "print(*sorted(m for m in sys.modules if m.startswith(('configs', 'preprocess'))))"
  )
  done = subprocess.run(
    [sys.executable, "-c", code],
    capture_output=True, text=True, check=True, cwd=ROOT,
  )  # fmt: skip
  assert done.stdout.split() == [
    *("configs", "configs.own", "configs.papers", "configs.papers.pascal"),
    *("preprocess", "preprocess.build", "preprocess.clean"),
  ]


def test_no_code_imports_by_the_old_doors():
  for folder in (
    "benchmarks",
    "configs",
    "docs",
    "jaxsyn",
    "preprocess",
    "tests",
  ):
    for path in (ROOT / folder).rglob("*.py"):
      tops = {name.split(".")[0] for name in imports(path)}
      assert not tops & {"configs", "preprocess"}, path


def test_a_first_config_needs_no_jax():
  loaded = loaded_by("import jaxsyn.new")
  assert "sacrebleu" in loaded
  assert not loaded & {"jax", "flax", "tensorflow"}


def test_help_loads_next_to_nothing():
  loaded = loaded_by("import jaxsyn.__main__")
  assert not loaded & {"jax", "numpy", "absl", "ml_collections"}


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
