"""Tests the order of packages, and what each entry point loads."""

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Modules, and packages without their modules in the list. Each imports only from
# itself and from earlier ones.
LAYERS = [
  "jaxsyn.__init__",
  "jaxsyn.commands",
  "jaxsyn.errors",
  "jaxsyn.arrays",
  "jaxsyn.storage",
  "jaxsyn.utils",
  "jaxsyn.options",
  "jaxsyn.data.__init__",
  "jaxsyn.data.sentence.align",
  "jaxsyn.data.sentence.sgml",
  "jaxsyn.data.sentence.text",
  "jaxsyn.data.sentence.conllu_blocks",
  "jaxsyn.data.sentence.conllu",
  "jaxsyn.data.annotations",
  "jaxsyn.data.schema",
  "jaxsyn.data.store.rows",
  "jaxsyn.data.sentence",
  "jaxsyn.data.store.fetch",
  "jaxsyn.data.sentence.parsers",
  "jaxsyn.data.loader.tasks",
  "jaxsyn.data.options",
  "jaxsyn.data.store",
  "jaxsyn.data.sentence.parsers.recorded",
  "jaxsyn.data.loader",
  "jaxsyn.syntax",
  "jaxsyn.syntax.windows",
  "jaxsyn.syntax.__init__",
  "jaxsyn.models",
  "jaxsyn.training",
  "jaxsyn.decode",
  "jaxsyn.scoring",
  "jaxsyn.config",
  "jaxsyn.plan",
  "jaxsyn.configs.graph_systems",
  "jaxsyn.configs.parsing_systems",
  "jaxsyn.configs.recurrent_systems",
  "jaxsyn.configs.systems",
  "jaxsyn.validation",
  "jaxsyn.session",
  "jaxsyn.cli",
  "jaxsyn.exporting",
  "jaxsyn.inspection",
  "jaxsyn.comparison",
  "jaxsyn.train",
  "jaxsyn.translate",
  "jaxsyn.score",
  "jaxsyn.serving",
  "jaxsyn.serve",
  "jaxsyn.inspect",
  "jaxsyn.compare",
  "jaxsyn.export",
  "jaxsyn.configs",
  "jaxsyn.preprocess.toy",
  "jaxsyn.preprocess",
  "jaxsyn.new",
  "jaxsyn.__main__",
  "benchmarks.figures",
  "benchmarks",
]


NO_JAX = tuple(
  f"jaxsyn.{name}" for name in ("data.", "preprocess.", "configs.", "new")
)


def modules() -> Iterator[tuple[str, pathlib.Path]]:
  """Yields all modules by name; that of a package itself ends with __init__."""
  linked = ("jaxsyn/configs", "jaxsyn/preprocess")  # not followed from above
  for folder in ("jaxsyn", *linked, "benchmarks"):
    for path in (ROOT / folder).rglob("*.py"):
      yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


@functools.cache
def imports(path: pathlib.Path) -> set[str]:
  """Returns the complete names that a file imports, also inside functions."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      names |= {f"{node.module}.{alias.name}" for alias in node.names}
  return names


@functools.cache
def graph() -> dict[str, set[str]]:
  """Returns the modules of the project that each module imports."""
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


def layer_of(module: str) -> int:
  """Returns the index of a module's layer."""
  while module not in LAYERS:
    module = module.rpartition(".")[0]
  return LAYERS.index(module)


def test_modules_import_only_from_earlier_layers():
  assert {layer_of(module) for module in graph()} == {*range(len(LAYERS))}
  for module, imported in graph().items():
    later = {n for n in imported if layer_of(n) > layer_of(module)}
    assert not later, f"{module} imports {later}"

  graphlib.TopologicalSorter(graph()).prepare()  # its error names a cycle
  tops = {module.split(".")[1] for module in graph() if module[0] == "j"}
  assert len(tops - {"__init__"}) <= 32


def test_data_and_preparation_do_not_import_jax():
  heavy = {"jax", "flax", "optax", "orbax", "tensorflow"}
  for module, path in modules():
    if module.startswith(NO_JAX):
      assert not {name.split(".")[0] for name in imports(path)} & heavy, module


def loaded_by(statement: str) -> set[str]:
  """Returns the modules that a new process loads for a statement."""
  code = f"{statement}\nimport sys\nprint(*sys.modules)"
  command = [sys.executable, "-c", code]
  return {*subprocess.check_output(command, text=True, cwd=ROOT).split()}


JAX = {"jax", "flax", "tensorflow"}


@pytest.mark.parametrize(
  ("statement", "loaded", "not_loaded"),
  [
    ("from jaxsyn.data.loader import loader", "numpy", JAX),
    ("import jaxsyn.new", "sacrebleu", JAX),
    ("import jaxsyn.__main__", "jaxsyn", {"jax", "numpy", "absl"}),
  ],
)
def test_entry_points_load_few_libraries(statement, loaded, not_loaded):
  libraries = loaded_by(statement)
  assert loaded in libraries and not libraries & not_loaded


def test_importing_parses_no_flags_and_starts_no_device():
  """Training loads no parser and not TensorFlow."""
  loaded_by(
    "import jaxsyn.train, sys\n"
    "heavy = {'tensorflow', 'ufal', 'spacy', 'spacy_udpipe'}\n"
    "assert not heavy & {*sys.modules}\n"
    "import jaxsyn.translate, jaxsyn.score, jaxsyn.inspect, jaxsyn.compare\n"
    "import jax\nfrom absl import flags\n"
    "assert 'workdir' not in flags.FLAGS\n"
    "assert not jax._src.xla_bridge._backends"
  )


def test_configs_and_preprocess_of_a_checkout_are_packages_of_jaxsyn():
  """`configs` and `preprocess` import all other modules from jaxsyn."""
  expected = {"preprocess.clean", "configs.own", "configs.papers.pascal"}
  libraries = loaded_by(f"import {','.join(expected)}")
  expected |= {"configs", "configs.papers", "preprocess"}
  tops = ("configs", "preprocess")
  assert {m for m in libraries if m.startswith(tops)} == expected
  for folder in ("benchmarks", "configs", "docs", "jaxsyn", "tests", *tops):
    for path in (ROOT / folder).rglob("*.py"):
      assert not {n.split(".")[0] for n in imports(path)} & {*tops}, path
