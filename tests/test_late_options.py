"""Defaults that depend on other options follow their overrides.

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


def plan_of(monkeypatch, address, *options):
  return resolve(read_config(overridden(monkeypatch, address, *options)), JOINT)


LAYERS, SCALED = "model.transformer.encoder_layers", "parts.encoder.tree_scaled"


@pytest.mark.parametrize(
  "address, options, wanted",
  [
    # The lowest three existing layers.
    ("quickstart.py:deps_san", [f"{LAYERS}=6"], [0, 1, 2]),
    ("multi30k_en_de.py:localness_query", [f"{LAYERS}=1"], [0]),
    ("multi30k_en_de.py:deps_san", [f"{SCALED}.layers=(1,3)"], [1, 3]),
    ("multi30k_en_de.py:deps_san", [f"{SCALED}.lowest=2"], [0, 1]),
    ("multi30k_en_de.py:deps_san", [f"{SCALED}.lowest=0"], [0, 1, 2, 3]),
    (
      "multi30k_en_de.py:deps_san",
      [f"{SCALED}.layers=(4,)"],
      "4 is not one of the 4 layers",
    ),
    (
      "multi30k_en_de.py:deps_san",
      [f"{SCALED}.lowest=-1"],
      "lowest must be from 0 to .* got -1",
    ),
  ],
)
def test_layers_follow_overrides(monkeypatch, address, options, wanted):
  if isinstance(wanted, str):
    with pytest.raises(InputError, match=wanted):
      plan_of(monkeypatch, address, *options)
    return
  spec = plan_of(monkeypatch, address, *options).spec
  layers = range(spec.architecture.layers("encoder"))
  modifiers_in = spec.modifiers.modifiers_in_layer
  assert [n for n in layers if modifiers_in("encoder", n)] == wanted


@pytest.mark.parametrize(
  "option, layer",
  [
    # Deguchi et al. 2021: layer 5 of 6; the only layer of one.
    ("model.transformer.decoder_layers=1", 0),
    ("model.transformer.decoder_layers=12", 10),
    ("losses.synchronisation.layer=-1", 3),
  ],
)
def test_synchronisation_uses_the_last_but_one_layer(
  monkeypatch, option, layer
):
  plan = plan_of(monkeypatch, "multi30k_en_de.py:sync_attention", option)
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
  for options, size in (
    ([], 48),  # 3/8 of 128
    (["model.width=256"], 96),
    (["model.width=256", f"{section}.size=40"], 40),
    ([f"{section}.size=40", "model.width=256"], 40),
  ):
    address = f"multi30k_en_de.py:{system}"
    loaded = as_dict(read_config(overridden(monkeypatch, address, *options)))
    for name in section.split("."):
      loaded = loaded[name]
    assert loaded["size"] == size


def test_config_files_use_overridden_options(monkeypatch):
  config = overridden(monkeypatch, "quickstart.py", "prepare.raw_dir=/raw")
  assert config.prepare.parse.source.udpipe.model == "/raw/quickstart.udpipe"
  address = "papers/deps_san.py:iwslt14_de_en:pascal"
  spec = plan_of(monkeypatch, address, "model.transformer.heads=16").spec
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
