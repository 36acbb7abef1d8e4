"""Options of models and modifiers that are rejected, with their paths."""

import pytest
from models_under_test import JOINT, check_modifier, config_of, plan_of

from jaxsyn.config import as_dict, read_config
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, from_config
from jaxsyn.plan import resolve
from jaxsyn.syntax import MODIFIERS, WINDOWS
from jaxsyn.syntax.modifier import StackShape


@pytest.mark.parametrize(
  "name, options, message",
  [
    ("decoder.dbsa", {"gold": "always"}, r"gold='always'"),
    ("decoder.tree_rotary", {}, "by=.*the output of a decoder has no tree"),
    ("context", {"context": "deep", "layers": (0,)}, r"context='deep' uses the"),
    ("dbsa", {"rows": "input"}, r"rows='input'"),
    ("dbsa", {"layers": (1, 1)}, r"layers=\(1, 1\) names"),
    ("dbsa", {"heads": (2,)}, r"heads: 2 is not one of the 2 heads"),
    ("factors", {"names": ("upso",)}, r"names\[0\] has no factor 'upso'.*upos"),
    ("factors", {"names": ("upos", "upos")}, r"names=.* has one twice"),
    ("graph_block", {"layers": (0,)}, r"layers=\(0,\) does nothing with at='b"),
    ("graph_block", {"at": "beside", "layers": (2,)}, "layers: 2 is not one of"),
    ("label_embedding", {"size": -1}, "size must be from 0 to .*, got -1"),
    ("label_embedding", {"size": 17}, "size=17 must be"),
    ("localness", {"width": 0.0}, "width must be above 0"),
    ("neighbour_heads", {"relation": "children", "hops": 2}, "hops=2 does noth"),
    ("neighbour_heads", {"relation": "children", "eos": False}, "eos=False does"),
    ("parent_scaled", {"sigma": 0.0}, "sigma must be above 0"),
    ("parent_scaled", {"weighting": "parent_only", "sigma": 2.0}, "sigma=2.0 do"),
    ("relative", {"clip": 0}, "clip must be from 1 to"),
    ("source_dependency", {"size": 17}, "size=17 must be from 0 to .*=16"),
    ("tree_position", {"levels": 5}, "levels=5: branches · levels = 20"),
    ("tree_position", {"kind": "depth", "levels": 3}, "levels=3 does nothing"),
    ("tree_position", {"kind": "laplacian", "eigenvectors": 17}, "eigenvectors=1"),
    ("tree_position", {"flip": False}, "flip=False does nothing with kind='path'"),
    ("tree_rotary", {"by": ("line", "tree")}, "by"),
  ],
)  # fmt: skip
def test_rejects_options_of_modifiers(name, options, message):
  name = name if "." in name else f"encoder.{name}"
  with pytest.raises(InputError, match=rf"parts\.{name}\.{message}"):
    check_modifier(*name.split("."), options)


def test_deep_context_needs_a_previous_layer():
  context, at = MODIFIERS["context"], ConfigPath("config", "x")
  assert context(context="deep").active_heads(3, 1) == {(1, 0), (2, 0)}
  assert len(context(context="deep_global").active_heads(3, 1)) == 3
  for options in ({}, {"layers": ()}, {"heads": ()}):
    spec = context(context="deep", **options)
    spec.check(at, StackShape("encoder", 1 if options else 2, 1, 8))


@pytest.mark.parametrize(
  "name, options",
  [
    ("flexible", {"sigma": 0.0}),
    ("flexible", {"span": -0.1}),
    ("local", {"reach": -1}),
    ("syntax", {"edges": -1}),
  ],
)
def test_rejects_options_of_windows(name, options):
  (option,) = options
  with pytest.raises(InputError, match=f"config.x.{option}"):
    from_config(WINDOWS[name], options, ConfigPath("config", "x"))


@pytest.mark.parametrize(
  "options, message",
  [
    ({"hidden": 0}, r"gru\.hidden must be from 1 "),
    ({"dropout_hidden": 1.0}, r"gru\.dropout_hidden must be at least 0 and b"),
    ({"windows": {}}, r"gru\.windows is empty"),
    ({"windows": {"golbal": {}}}, r"no window 'golbal'.* 'global'"),
    ({"windows": {"local": {"sigme": 1}}}, r"local has no option 'sigme'"),
  ],
)
def test_rejects_options_of_the_recurrent_model(options, message):
  config = as_dict(config_of("gru_global"))
  config["model"]["gru"].update(options)
  with pytest.raises(InputError, match=message):
    resolve(read_config(config), JOINT)


DROPOUT = {"attention": "fused", "attention_dropout": 0.1}
LAST = "both replace the last dimensions of the embeddings"


@pytest.mark.parametrize(
  "system, options, message",
  [
    ("label_embedding+factors", {}, f"label_embedding and factors {LAST}"),
    ("gru_sdr+label_embedding", {}, f"source_dependency and label_.* {LAST}"),
    ("gru_global+pascal", {}, "changes attention of the Transformer"),
    ("dbsa+gru_global", {}, "changes attention of the Transformer"),
    ("relative", {"attention": "fused"}, r"encoder\.relative: relative needs"),
    ("transformer", DROPOUT, r"transformer\.attention_dropout=0\.1: "),
    ("gru_global", {"attention": "fused"}, "'fused' is not for family 'gru'"),
  ],
)
def test_rejects_combinations(system, options, message):
  with pytest.raises(InputError, match=message):
    plan_of(system, **options)


def test_rejects_rematerialization_of_other_architectures():
  config = as_dict(config_of("gru_global"))
  config["train"]["remat"] = "layer"
  with pytest.raises(InputError, match="remat='layer' is not for family 'gru'"):
    resolve(read_config(config), JOINT)
