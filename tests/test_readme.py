"""The code of the README is run as it stands there."""

import pathlib
import re

import numpy as np
import pytest
from models_under_test import (
  JOINT,
  batch_of,
  logits,
  parameters,
  sentence,
  without_parts,
)

from configs import base, systems
from jaxsyn import syntax
from jaxsyn.config import read_config
from jaxsyn.plan import resolve

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def block(word: str) -> str:
  (found,) = [b for b in BLOCKS if word in b]
  return found


def test_the_worked_example_is_a_part(monkeypatch):
  names: dict = {"__name__": "tree_damped"}
  exec(block("class TreeDamped"), names)
  exec(block("def tree_damped"), names)
  monkeypatch.setitem(syntax.PARTS, "tree_damped", names["TreeDamped"])
  monkeypatch.setitem(systems.SYSTEMS, "tree_damped", names["tree_damped"])
  config = systems.apply(base.get_config(), "tree_damped")
  plan = resolve(read_config(config), JOINT)
  assert plan.needs == {"source_tree_distance"}
  pairs = [sentence(4, 3, 1), sentence(6, 5, 2)]
  batch = batch_of(pairs)
  params = parameters(plan, batch)
  whole = logits(plan, params, batch)
  alone = logits(plan, params, batch_of(pairs[:1]))
  np.testing.assert_allclose(whole[0, :3], alone[0], atol=2e-4)
  unparsed = batch | {"source_parsed_B": batch["source_parsed_B"].at[0].set(0)}
  plain = logits(without_parts(plan), params, batch)
  np.testing.assert_array_equal(logits(plan, params, unparsed)[0], plain[0])
  config.parts.encoder.tree_damped.scale = 1e9  # no edge counts
  flat = resolve(read_config(config), JOINT)
  assert not np.allclose(logits(flat, params, batch), whole, atol=1e-3)


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_all_python_in_it_is_python(code):
  compile(code, "README.md", "exec")
