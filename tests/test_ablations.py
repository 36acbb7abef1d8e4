"""Tables of the papers: tasks, published figures, addresses and overrides."""

import importlib
import pathlib
import re

import documents
import jax
import pytest
from models_under_test import JOINT, batch_of, sentence

from jaxsyn import cli
from jaxsyn.config import read_config
from jaxsyn.configs import base, enja, systems
from jaxsyn.configs.papers import (
  dbsa,
  dependency_relative,
  deps_san,
  pascal,
  syntax_directed,
)
from jaxsyn.configs.papers.ablation import Row
from jaxsyn.errors import InputError
from jaxsyn.models.contract import forward
from jaxsyn.plan import resolve

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAPERS = {
  paper.__name__.split(".")[-1]: paper
  for paper in (pascal, deps_san, dependency_relative, dbsa, syntax_directed)
}
TABLES = {
  f"{name}/{table}": paper.TABLES[table]
  for name, paper in PAPERS.items()
  for table in paper.TABLES
}
LAYERS = pascal.TABLES["layers"]


def task_of(table):
  """The task of a table in its paper."""
  if table == "dependency_relative/keys_values":
    return "wat_ja_en_100k"
  return next(iter(PAPERS[table.split("/")[0]].TASKS))


def row_of(table, row="", task=""):
  """The config of a row, by default on the task of its table."""
  name, _, short = table.partition("/")
  address = f"{task or task_of(table)}:{short}" + (f"/{row}" if row else "")
  return PAPERS[name].get_config(address)


def field(config, path):
  for name in path.split("."):
    config = config[name]
  return config


def test_docstring_of_the_folder_lists_all_tables():
  text = importlib.import_module("jaxsyn.configs.papers").__doc__
  files = {path.stem for path in (ROOT / "configs/papers").glob("*.py")}
  assert files == {*PAPERS, "__init__", "ablation", "paper"}
  assert len(TABLES) == 15
  for name in PAPERS:
    listed = text.partition(f"\n  {name} ")[2]
    for table in PAPERS[name].TABLES:
      assert f"\n    {table} " in re.split(r"\n {0,2}\S", listed)[0], table
      assert table not in systems.SYSTEMS  # an address is either of the two


@pytest.mark.parametrize("table", TABLES)
def test_rows_resolve_with_their_overrides_and_figures(table):
  tasks = set().union(*(paper.TASKS for paper in PAPERS.values()))
  features, configs = documents.features(), []
  for row in TABLES[table].rows:
    config = row_of(table, row.name)
    plan = resolve(read_config(config), JOINT)
    assert config.system == row.system
    values = {path: field(config, path) for path in row.overrides}
    assert values == row.overrides
    reads_trees = any(features[system][0] for system in row.system.split("+"))
    assert bool(plan.features) == reads_trees
    for key, bleu in (row.published or {}).items():
      task, split = key.split()
      assert task in tasks and 5 < bleu < 50
      splits = row_of(table, row.name, task).prepare.splits
      assert split in ("average", *splits)
    assert config.to_dict() not in configs, row.name
    configs.append(config.to_dict())
  assert row_of(table).to_dict() == configs[0]
  assert len({row.name for row in TABLES[table].rows}) == len(configs)


PUBLISHED = """
# Bugliarello & Okazaki, Tables 7a, 7b, 3 and 4.
pascal/layers layer_2: nc11_en_de validation 22.5, nc11_de_en validation 20.1
pascal/variance parent_only: nc11_en_de validation 22.5, nc11_de_en validation 22.4
pascal/results sisa: nc11_en_de test 25.5, nc11_de_en test 27.2, \
wmt18_en_tr test 13.6, wmt16_en_de test 33.6, wmt17_en_de test 25.9, \
wat_en_ja test 43.2
# Peng et al., Table 2a, "[1-6]", and Table 2b, variance 32.
deps_san/layers layers_1_6: iwslt14_de_en validation 29.20, iwslt14_de_en test 28.79
deps_san/variance sigma_32: iwslt14_de_en validation 30.46, iwslt14_de_en test 29.64
# Omote et al., Table 3: b^V crossed out, b^K kept.
dependency_relative/keys_values keys: wat_ja_en_100k test 16.60
# Deguchi et al. 2021, Table 1.
dbsa/results dbsa: wmt14_en_de test 27.31, wmt16_en_ro test 24.13, \
wat_ja_en test 29.57
dbsa/synchronisation weight_0.1: wmt16_en_ro test 24.33
# Chen et al. 2018, Table 2, +SDAtt.
syntax_directed/results gru_double_syntax: wmt14_en_de validation 18.65, \
wmt14_en_de newstest2013 22.11, wmt14_en_de newstest2014 20.75, \
wmt14_en_de newstest2015 22.05, wmt14_en_de average 21.64
"""


@pytest.mark.parametrize(
  "line", [one for one in PUBLISHED.split("\n") if one and one[0] != "#"]
)
def test_published_figures(line):
  address, _, figures = line.partition(": ")
  table, row = address.split()
  expected = dict(figure.rsplit(" ", 1) for figure in figures.split(", "))
  assert TABLES[table].row(row).published == {
    key: float(bleu) for key, bleu in expected.items()
  }


def test_averages_of_chen_et_al():
  table = TABLES["syntax_directed/results"]
  figures = table.others["PBSMT (Moses)"]  # published, but not a row
  assert list(figures) == list(table.rows[0].published)
  validation, *tests, average = figures.values()
  assert validation == 14.89
  assert average == pytest.approx(sum(tests) / 3, abs=0.1)
  wrong = {}
  for row in table.rows:
    _, *tests, average = row.published.values()
    if abs(sum(tests) / 3 - average) > 0.006:
      wrong[row.name] = round(sum(tests) / 3, 2)
  assert len(table.rows) == 9 and wrong == {"gru_sdr": 20.34}  # printed: 20.31


@pytest.mark.parametrize(
  "task, system, ten_thousands",
  [
    # Peng et al., Table 1, "#Param": 74.85M, 105.57M, 74.88M, 105.60M.
    ("iwslt14_de_en", "deps_san", 7485),
    ("wmt16_de_en", "deps_san", 10557),
    ("iwslt14_de_en", "relative", 7488),
    ("wmt16_de_en", "relative", 10560),
  ],
)
def test_model_sizes_of_peng_et_al(task, system, ten_thousands):
  config = read_config(deps_san.get_config(f"{task}:{system}"))
  side = {"size": config.prepare.vocabulary.size, "sha256": "a"}
  manifest = JOINT | {"vocabulary": {"source": side, "target": side}}
  model = resolve(config, manifest).recipe.model
  batch = batch_of([sentence(3, 3, 0)])
  params = jax.eval_shape(
    lambda key: model.init(key, batch, train=False, method=forward),
    jax.random.key(0),
  )
  size = sum(x.size for x in jax.tree.leaves(params["params"]))
  assert size // 10_000 == ten_thousands  # apparently truncated


SCALED = "parts.encoder.parent_scaled"
# Options that test_paper_rows.py does not cover: of other tasks and systems.
OPTIONS = [
  # Bugliarello & Okazaki, Table 2, NC11 De-En: 8 heads, no ignoring.
  (pascal, "nc11_de_en:layers/layer_2", f"{SCALED}.layers", (1,)),
  (pascal, "nc11_de_en:layers/layer_2", f"{SCALED}.heads", tuple(range(8))),
  (pascal, "nc11_de_en:layers/layer_2", f"{SCALED}.ignore", 0.0),
  (pascal, "wmt18_en_tr:components/ignoring", f"{SCALED}.ignore", 0.3),
  (pascal, "wmt18_en_tr:components/ignoring", "prepare.clean.language", False),
  # Systems that Peng et al. compare with.
  (deps_san, "iwslt14_de_en:relative", "parts.encoder.relative.clip", 16),
  (deps_san, "iwslt14_de_en:relative", "parts.decoder.relative.tie", True),
  (deps_san, "wmt16_de_en:relative", "parts.decoder.relative.clip", 16),
  (deps_san, "wmt16_de_en:relative", "parts.encoder.relative.tie", True),
  (deps_san, "iwslt14_de_en:pascal", f"{SCALED}.heads", None),
  (deps_san, "wmt16_de_en:pascal", f"{SCALED}.heads", None),
  # Omote et al., section 5.1: k = 2.
  (dependency_relative, "wat_ja_en:relative", "parts.encoder.relative.clip", 2),
  (
    dependency_relative,
    "wat_ja_en_100k:relative",
    "parts.decoder.relative.clip",
    2,
  ),
  # Deguchi et al., section 5.1 and appendix A; λ_sync as tuned for each task.
  (dbsa, "wmt16_en_ro:sync_attention", "losses.synchronisation.weight", 0.1),
  (dbsa, "wat_ja_en:sync_attention", "losses.synchronisation.weight", 10.0),
  (dbsa, "wmt16_en_ro:synchronisation/weight_5", "batch.tokens", 6_000),
  (dbsa, "wat_ja_en:sync_attention", "batch.tokens", 12_000),
  (dbsa, "wmt16_en_ro:sync_attention", "prepare.vocabulary.size", 40_000),
  (dbsa, "wat_ja_en:sync_attention", "prepare.vocabulary.size", 16_000),
  (dbsa, "wmt16_en_ro:sync_attention", "prepare.vocabulary.joint", True),
  (dbsa, "wat_ja_en:sync_attention", "prepare.vocabulary.joint", False),
  (dbsa, "wmt16_en_ro:sync_attention", "model.tie_embeddings", True),
  (dbsa, "wat_ja_en:sync_attention", "model.tie_embeddings", False),
  (dbsa, "wmt16_en_ro:sync_attention", "prepare.clean.language", False),
]


@pytest.mark.parametrize("paper, address, path, value", OPTIONS)
def test_tasks_have_the_options_of_their_papers(paper, address, path, value):
  assert field(paper.get_config(address), path) == value


@pytest.mark.parametrize(
  "address, message",
  [
    ("", "needs a task after ':'.* There are nc11_en_de"),
    ("nc11_en_d", "no task .* Did you mean 'nc11_en_de'"),
    ("nc11_en_de:layer/x", "no table .* Did you mean 'layers'"),
    ("nc11_en_de:layer", "no system or table .* Did you mean 'layers/'"),
    ("nc11_en_de:pascall", "'pascall'.* Did you mean 'pascal'"),
    ("nc11_en_de:pascal+relativ", "'relativ'.* Did you mean 'relative'"),
    (
      "nc11_en_de:layers/layer5",
      r"no row 'layer5' in Bugliarello.*Did you mean 'layer_5'.*layer_1, ",
    ),
  ],
)
def test_messages_suggest_similar_names(address, message):
  with pytest.raises(InputError, match=message):
    pascal.get_config(address)


def test_command_line_selects_a_row():
  address = f"{ROOT}/configs/papers/pascal.py:nc11_en_de"
  assert cli.load(address).system == "transformer"
  assert cli.load(f"{address}:pascal+relative").system == "pascal+relative"
  for row, layers in (("/layer_5", (4,)), ("", (0,))):
    config = cli.load(f"{address}:layers{row}")
    assert config.parts.encoder.parent_scaled.layers == layers


def test_rows_can_use_another_dataset():
  config = LAYERS.row("layer_3").on(enja.get_config("transformer"))
  assert config.system == "pascal_ignoring"
  assert config.data.directory == "data/enja"
  assert config.parts.encoder.parent_scaled.layers == (2,)
  assert config.model.width == 128  # of enja
  resolve(read_config(config), JOINT)
  config = LAYERS.row("layer_5").on(enja.get_config("transformer"))
  with pytest.raises(InputError, match="4 is not one of the 4 layers"):
    resolve(read_config(config), JOINT)
  with pytest.raises(InputError, match=r"system is 'pascal', but a row"):
    LAYERS.row("layer_3").on(enja.get_config("pascal"))


def test_other_preparation_has_its_own_directory():
  # enja.py does not filter, pascal.py does: so the other row is the unfiltered one.
  table, paper = "pascal/components", "paper_pascal_nc11_en_de"
  rows = TABLES[table]
  for config, name in (
    (row_of(table, "filtering"), paper),
    (row_of(table, "transformer"), f"{paper}_unfiltered"),
    (rows.row("transformer").on(enja.get_config("transformer")), "enja"),
    (rows.row("filtering").on(enja.get_config("transformer")), "enja_filtered"),
    (
      Row("all", "transformer", {"prepare.max_subwords": 9}).on(
        base.get_config()
      ),
      "corpus_all",
    ),
  ):
    assert config.data.name == name
    assert config.data.directory == f"data/{name}"


@pytest.mark.parametrize(
  "path, value, message",
  [
    ("parts.encoder.parent_scaled.simga", 2.0, "Did you mean 'sigma'"),
    ("modle.width", 8, r"config has no option 'modle'\. Did you mean 'model'"),
    ("seed.width", 8, r"config\.seed is a value and has no option 'width'"),
    ("data", 8, r"config\.data is a section; name one of its options: "),
    ("model.width", "wide", r"config\.model\.width cannot be 'wide'"),
  ],
)
def test_rejects_invalid_overrides(path, value, message):
  row = Row("wrong", "pascal", {path: value})
  with pytest.raises(InputError, match=message):
    row.on(base.get_config())
