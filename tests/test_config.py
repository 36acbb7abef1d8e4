"""Tests that configs resolve to plans, or are rejected by option name."""

import dataclasses
import json

import documents
import pytest

from jaxsyn import cli
from jaxsyn.config import as_dict, read_config
from jaxsyn.configs import base, multi30k_en_de, systems
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.syntax import MODIFIERS
from jaxsyn.syntax.sisa import Sisa
from jaxsyn.utils import addresses

SIDE = {"size": 100, "sha256": "a"}
JOINT = {"vocabulary": {"source": SIDE, "target": SIDE}, "relations": {}}
APART = {
  "vocabulary": {"source": SIDE, "target": {"size": 90, "sha256": "b"}},
  "relations": {},
}
ADDRESSES = []
for _name in addresses.names():
  _tasks = getattr(cli.module_of(_name), "TASKS", ())  # of a paper
  ADDRESSES += [f"{_name}:{task}" for task in _tasks] or [_name]


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
    ({"model__transformer__heads": 3}, r"heads=3 must divide .*width=128"),
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
    ({"parts__decoder": {"parent_scaled": {}}}, "it works in encoder only"),
  ],
)
def test_rejects_options_that_are_incompatible(fields, message):
  with pytest.raises(InputError, match=message):
    resolve(read_config(changed(**fields)), JOINT)


@pytest.mark.parametrize(
  "options, message",
  [
    ({"simga": 2.0}, "no option 'simga'. Did you mean 'sigma'"),
    ({"heads": (0, 4)}, r"\.heads: 4 is not one of the 4 heads"),
    ({"heads": (1, 2, 1)}, r"\.heads=\(1, 2, 1\) names one of the heads twice"),
    (
      {"layers": (4,)},
      r"\.layers: 4 is not one of the 4 layers of the encoder",
    ),
  ],
)
def test_rejects_invalid_options_of_modifiers(options, message):
  parts = {"parent_scaled": options}
  with pytest.raises(InputError, match=rf"parent_scaled.*{message}"):
    resolve(read_config(changed(parts__encoder=parts)), JOINT)


def test_tied_embeddings_need_one_vocabulary():
  config = read_config(base.get_config())
  with pytest.raises(InputError, match="tie_embeddings=True needs one"):
    resolve(config, APART)
  model = dataclasses.replace(config.model, tie_embeddings=False)
  spec = resolve(dataclasses.replace(config, model=model), APART).spec
  assert (spec.source_vocabulary, spec.target_vocabulary) == (100, 90)


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
def test_combines_systems_that_exist_and_agree(system, message):
  with pytest.raises(InputError, match=message):
    multi30k_en_de.get_config(system)
  config = multi30k_en_de.get_config("pascal+deps_san_random_tree")
  assert set(config.parts.encoder) == {"parent_scaled", "tree_scaled"}
  assert config.system == "pascal+deps_san_random_tree"
  assert config.data.tree == "random"


@pytest.mark.parametrize("index", range(len(ADDRESSES)))
def test_configs_of_all_files_and_systems_resolve(index):
  """Each file with a few systems, and each system with a few files.

  The configs can also be written as JSON.
  """
  for system in list(systems.SYSTEMS)[index % 6 :: 6]:
    config = read_config(cli.load(f"{ADDRESSES[index]}:{system}"))
    plan = resolve(config, JOINT)
    assert config.system == system
    assert plan.features == documents.features()[system][0]
    assert read_config(json.loads(json.dumps(as_dict(config)))) == config


@pytest.mark.parametrize(
  "layers, heads, error",
  [
    (((0,), (0,)), ((1,), (1, 2)), True),
    (((0,), None), (None, (3,)), True),
    (((0,), (1,)), ((1,), (1,)), False),
    (((0,), (0,)), ((1,), (2,)), False),
  ],
)
def test_rejects_two_modifiers_that_replace_the_same_scores(
  monkeypatch, layers, heads, error
):
  parts = {}
  for i, name in enumerate(("first", "second")):
    monkeypatch.setitem(MODIFIERS, name, Sisa)
    parts[name] = {"layers": layers[i], "heads": heads[i]}
  config = read_config(changed(parts__encoder=parts))
  if error:
    message = r"encoder: first and second both replace the scores of"
    with pytest.raises(InputError, match=message):
      resolve(config, JOINT)
  else:
    assert len(resolve(config, JOINT).spec.modifiers.encoder) == 2
