"""Tests that configs resolve to plans, or are rejected by option name."""

import dataclasses
import importlib
import json
import pathlib

import documents
import pytest

from jaxsyn.config import as_dict, read_config, with_defaults
from jaxsyn.configs import base, multi30k_en_de, systems
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.syntax import MODIFIERS
from jaxsyn.syntax.sisa import Sisa

SIDE = {"size": 100, "sha256": "a"}
JOINT = {"vocabulary": {"source": SIDE, "target": SIDE}, "relations": {}}
APART = {
  "vocabulary": {"source": SIDE, "target": {"size": 90, "sha256": "b"}},
  "relations": {},
}
ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA_SETS = sorted(
  path.stem
  for path in (ROOT / "configs").glob("*.py")
  if path.stem not in ("__init__", "base") and "systems" not in path.stem
)
PAPERS = ("pascal", "deps_san", "dependency_relative", "dbsa")
PAPERS += ("syntax_directed",)
ADDRESSES = DATA_SETS + [
  f"papers.{paper}:{task}"
  for paper in PAPERS
  for task in importlib.import_module(f"jaxsyn.configs.papers.{paper}").TASKS
]


def changed(**fields):
  """Returns the base config as a dict, with options such as model__width set."""
  config = base.get_config().to_dict()
  for name, value in fields.items():
    *sections, field = name.split("__")
    section = config
    for part in sections:
      section = section[part]
    section[field] = value
  return config


def test_tasks_add_symbols_after_the_vocabulary():
  manifest = JOINT | {"relations": {"source": ["det", "obj"]}}

  def sizes(system):
    config = read_config(multi30k_en_de.get_config(system))
    plan = resolve(config, manifest)
    assert not plan.translation_features  # so no parser
    return plan.spec.source_vocabulary, plan.spec.target_vocabulary, plan.tag

  assert sizes("transformer") == (100, 100, None)
  # <TR> <PA> ) ^ (? (det (obj
  assert sizes("multitask") == (107, 107, 100)
  assert sizes("mixed_encoder") == (107, 107, None)


@pytest.mark.parametrize(
  "fields, message",
  [
    (
      {"model__transformer__heads": 3},
      r"config\.model\.transformer\.heads=3 must divide config\.model\.width=128",
    ),
    ({"model__width": 9, "model__transformer__heads": 3}, "must be even"),
    (
      {"decode__max_length_factor": 0.0, "decode__max_length_offset": 0},
      "an output can have no subword",
    ),
    ({"decode__nbest": 9}, r"config\.decode\.nbest=9 is more than"),
    (
      {"data__second__brackets": "constituency", "data__tree": "linear"},
      r"config\.data\.tree='linear' .* does not reach .*second\.brackets",
    ),
    ({"train__average": 9}, r"config\.train\.average=9 is more than"),
    ({"losses": {}}, "nothing to train on"),
    (
      {"parts__encoder": {"parent_scaled": {"simga": 2.0}}},
      "no option 'simga'. Did you mean 'sigma'",
    ),
    (
      {"parts__encoder": {"parent_scaled": {"heads": (0, 4)}}},
      r"parent_scaled\.heads: 4 is not one of the 4 heads",
    ),
    (
      {"parts__encoder": {"parent_scaled": {"heads": (1, 2, 1)}}},
      r"parent_scaled\.heads=\(1, 2, 1\) names one of the heads twice",
    ),
    (
      {"parts__encoder": {"parent_scaled": {"layers": (4,)}}},
      r"parent_scaled\.layers: 4 is not one of the 4 layers of the encoder",
    ),
    ({"parts__decoder": {"parent_scaled": {}}}, "it works in encoder only"),
  ],
)
def test_rejects_options_that_are_incompatible(fields, message):
  with pytest.raises(InputError, match=message):
    resolve(read_config(changed(**fields)), JOINT)


def test_tied_embeddings_need_one_vocabulary():
  config = read_config(base.get_config())
  with pytest.raises(InputError, match="tie_embeddings=True needs one"):
    resolve(config, APART)
  model = dataclasses.replace(config.model, tie_embeddings=False)
  spec = resolve(dataclasses.replace(config, model=model), APART).spec
  assert (spec.source_vocabulary, spec.target_vocabulary) == (100, 90)


def test_the_target_language_selects_the_tokenizer_of_scores():
  languages = {"data__source_language": "en", "data__target_language": "zh"}
  config = read_config(changed(**languages))
  assert with_defaults(config).train.tokenizer == "zh"
  config = read_config(changed(**languages, train__tokenizer="char"))
  assert with_defaults(config).train.tokenizer == "char"


def test_combined_systems_have_all_modifiers():
  config = multi30k_en_de.get_config("pascal+deps_san_random_tree")
  assert set(config.parts.encoder) == {"parent_scaled", "tree_scaled"}
  assert config.system == "pascal+deps_san_random_tree"
  assert config.data.tree == "random"


@pytest.mark.parametrize(
  "system, message",
  [
    ("pascall", r"no system 'pascall'.* Did you mean 'pascal'"),
    ("pascal+relativ", r"no system 'relativ'"),
    (
      "pascal_linear_tree+deps_san_random_tree",
      r"they set config\.data\.tree to 'linear' and 'random'",
    ),
    ("pascal_additive+pascal", r"apply to 'add_log' and 'multiply'"),
    ("relative+dependency_relative_both", r"relative\.clip to 16 and 2"),
    ("multitask+mixed_encoder", r"second\.task to 'parse' and 'source'"),
  ],
)
def test_rejects_unknown_and_contradictory_systems(system, message):
  with pytest.raises(InputError, match=message):
    multi30k_en_de.get_config(system)


@pytest.mark.parametrize("index", range(len(ADDRESSES)))
def test_configs_of_all_files_and_systems_resolve(index):
  """Each file with a few systems, and each system with a few files.

  The configs can also be written as JSON.
  """
  name, _, task = ADDRESSES[index].partition(":")
  module = importlib.import_module(f"jaxsyn.configs.{name}")
  for system in list(systems.SYSTEMS)[index % 6 :: 6]:
    config = read_config(module.get_config(f"{task}:{system}".lstrip(":")))
    plan = resolve(config, JOINT)
    assert config.system == system
    assert plan.features == documents.features()[system][0]
    assert read_config(json.loads(json.dumps(as_dict(config)))) == config


@pytest.mark.parametrize(
  "one, other, error",
  [
    ({"layers": (0,), "heads": (1,)}, {"layers": (0,), "heads": (1, 2)}, True),
    ({"layers": (0,), "heads": None}, {"layers": None, "heads": (3,)}, True),
    ({"layers": (0,), "heads": (1,)}, {"layers": (1,), "heads": (1,)}, False),
    ({"layers": (0,), "heads": (1,)}, {"layers": (0,), "heads": (2,)}, False),
  ],
)
def test_rejects_two_modifiers_that_replace_the_same_scores(
  monkeypatch, one, other, error
):
  for name in ("first", "second"):
    monkeypatch.setitem(MODIFIERS, name, Sisa)
  config = read_config(changed(parts__encoder={"first": one, "second": other}))
  if error:
    message = r"encoder: first and second both replace the scores of"
    with pytest.raises(InputError, match=message):
      resolve(config, JOINT)
  else:
    assert len(resolve(config, JOINT).spec.modifiers.encoder) == 2
