"""Defaults that depend on other options follow overrides of these options.

A value that a config file computes from an option while it is executed would not
follow an override on the command line.
"""

from __future__ import annotations

import ast
import pathlib
import sys

import pytest
from absl import flags
from ml_collections import config_flags
from models_under_test import JOINT

from jaxsyn.config import as_dict, read_config
from jaxsyn.configs import base
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve

ROOT = pathlib.Path(__file__).resolve().parent.parent


def overridden(monkeypatch, address: str, *options: str):
  """Returns the config of --config ADDRESS --config.OPTION=VALUE ..."""
  argv = ["command", f"--config={ROOT}/configs/{address}"]
  argv += [f"--config.{option}" for option in options]
  monkeypatch.setattr(sys, "argv", argv)
  values = flags.FlagValues()
  config_flags.DEFINE_config_file("config", flag_values=values)
  values(argv)
  return values.config


def in_layers(monkeypatch, address, place, name, *options):
  """Returns the layers of a stack in which a modifier is active."""
  config = overridden(monkeypatch, address, *options)
  spec = resolve(read_config(config), JOINT).spec
  return [
    layer
    for layer in range(spec.architecture.layers(place))
    if name in dict(spec.modifiers.modifiers_in_layer(place, layer))
  ]


@pytest.mark.parametrize(
  "system, part",
  [("deps_san", "tree_scaled"), ("localness_query", "localness")],
)
@pytest.mark.parametrize(
  "file, layers, wanted",
  [
    ("quickstart.py", 6, [0, 1, 2]),
    ("multi30k_en_de.py", 1, [0]),
  ],
)
def test_modifiers_are_in_the_lowest_three_existing_layers(
  monkeypatch, system, part, file, layers, wanted
):
  result = in_layers(
    monkeypatch,
    f"{file}:{system}",
    "encoder",
    part,
    f"model.transformer.encoder_layers={layers}",
  )
  assert result == wanted


def test_given_layers_are_used(monkeypatch):
  address, path = "multi30k_en_de.py:deps_san", "parts.encoder.tree_scaled"
  at = (monkeypatch, address, "encoder", "tree_scaled")
  assert in_layers(*at, f"{path}.layers=(1,3)") == [1, 3]
  assert in_layers(*at, f"{path}.lowest=2") == [0, 1]
  assert in_layers(*at, f"{path}.lowest=0") == [0, 1, 2, 3]
  with pytest.raises(InputError, match="4 is not one of the 4 layers"):
    in_layers(*at, f"{path}.layers=(4,)")
  with pytest.raises(InputError, match=r"lowest must be from 0 to .* got -1"):
    in_layers(*at, f"{path}.lowest=-1")


def test_synchronisation_uses_the_last_but_one_layer(monkeypatch):
  """Deguchi et al. 2021: layer 5 of 6; the only layer of one."""
  for options, layer in (
    (("model.transformer.decoder_layers=1",), 0),
    (("model.transformer.decoder_layers=12",), 10),
    (("losses.synchronisation.layer=-1",), 3),
  ):
    address = "multi30k_en_de.py:sync_attention"
    config = overridden(monkeypatch, address, *options)
    plan = resolve(read_config(config), JOINT)
    assert plan.recipe.losses["synchronisation"].layer == layer


@pytest.mark.parametrize(
  "system, section",
  [
    ("gru_sdr", "parts.encoder.source_dependency"),
    ("gru_double_sdr", "model.gru.windows.source_dependency"),
  ],
)
def test_the_size_of_source_dependency_follows_the_width(
  monkeypatch, system, section
):
  def size(*options):
    config = overridden(monkeypatch, f"multi30k_en_de.py:{system}", *options)
    loaded = as_dict(read_config(config))
    for name in section.split("."):
      loaded = loaded[name]
    return loaded["size"]

  assert size() == 48  # 3/8 of 128
  assert size("model.width=256") == 96
  assert size("model.width=256", f"{section}.size=40") == 40
  assert size(f"{section}.size=40", "model.width=256") == 40


def test_config_files_use_overridden_options(monkeypatch):
  config = overridden(monkeypatch, "quickstart.py", "prepare.raw_dir=/raw")
  assert config.prepare.parse.source.udpipe.model == "/raw/quickstart.udpipe"
  config = overridden(
    monkeypatch,
    "papers/deps_san.py:iwslt14_de_en:pascal",
    "model.transformer.heads=16",
  )
  spec = resolve(read_config(config), JOINT).spec
  (part,) = dict(spec.modifiers.encoder).values()
  assert part.active_heads(1, 16) == {(0, head) for head in range(16)}


def options_read(path: pathlib.Path) -> set[str]:
  """Returns the options whose values a config file reads while it is executed."""
  nodes = list(ast.walk(ast.parse(path.read_text())))
  inner = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}
  methods = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
  defaults, result = base.get_config(), set()
  for node in nodes:
    if not isinstance(node, ast.Attribute) or id(node) in inner:
      continue
    root, *names = ast.unparse(node).split(".")
    if root != "config" or not isinstance(node.ctx, ast.Load):
      continue
    names = names[:-1] if id(node) in methods else names
    section = defaults
    for name in names:
      section = section.get(name, {}) if hasattr(section, "get") else section
    if not hasattr(section, "get"):
      result.add(".".join(names))
  return result


def test_config_files_do_not_read_options_while_they_are_executed():
  known = {  # names of datasets and systems
    "ablation.py": {"data.name", "data.directory", "system"},
    "systems.py": {"system"},
  }
  files = [
    p for f in ("configs", "configs/papers") for p in ROOT.glob(f"{f}/*.py")
  ]
  assert len(files) > 15
  result = {path.name: options_read(path) for path in files}
  assert {name: options for name, options in result.items() if options} == known
