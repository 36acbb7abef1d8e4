"""Training steps compiled for TPUs that are not attached.

  pip install -e '.[tpu]'
  python -m pytest -m slow tests/test_compiled_programs.py

Each case lists the gathers and scatters, which are slow on a TPU, and a
step's memory. Sorting is not allowed.
"""

import dataclasses
import functools
import importlib.util
import re

import jax
import pytest
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks import synthetic
from jaxsyn.config import read_config
from jaxsyn.configs import base, systems
from jaxsyn.plan import resolve
from jaxsyn.training.mesh import Layout
from jaxsyn.training.programs import abstract_state
from jaxsyn.training.step import train_step

pytestmark = pytest.mark.slow

ONE, FSDP, DATA = (1, 1, 1), (1, 8, 1), (-1, 1, 1)  # data, fsdp, tensor
COLLECTIVE = (
  r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
  r"(?:-start)?\(.*channel_id=(\d+)"
)


F, B = "float32", "bfloat16"
# The numbers of gathers and scatters, and the maximum memory of a device in MiB,
# rounded up from jax 0.10.2 with libtpu 0.0.42.1 and few optimizations.
CASES = [
  ("transformer", "v5e:2x4", DATA, B, 3, 1, 50),
  ("transformer", "v5e:2x4", FSDP, B, 3, 1, 24),
  ("transformer", "v5e:4x4", DATA, F, 3, 2, 48),
  ("gru_global", "v5e:2x4", DATA, B, 3, 1, 56),
  ("pascal", "v5e:2x4", DATA, F, 3, 1, 48),
  ("dbsa", "v5e:2x4", DATA, B, 3, 1, 52),
  ("sisa", "v5e:1x1", ONE, F, 3, 1, 46),
  ("relative+localness_query", "v5e:1x1", ONE, B, 3, 1, 50),
  ("factors", "v5e:1x1", ONE, B, 9, 7, 48),  # six embedding tables
  ("linear_bias+tree_bias_steps_edges", "v5e:1x1", ONE, B, 3, 1, 46),
  ("graph_block+tree_rotary", "v5e:1x1", ONE, B, 3, 1, 46),
]


@functools.cache
def devices(topology):
  if importlib.util.find_spec("libtpu") is None:
    pytest.skip(f"{topology} needs a compiler: pip install -e '.[tpu]'")
  options = {}
  if topology.endswith(":1x1"):
    options["chips_per_host_bounds"] = [1, 1, 1]
  return topologies.get_topology_desc(
    platform="tpu", topology_name=topology, **options
  ).devices


def compiled_step(system, topology, mesh, dtype):
  config = base.get_config()
  config.model.update(width=128, dtype=dtype)
  config.model.transformer.update(
    encoder_layers=1,
    decoder_layers=1,
    feed_forward=256,
    heads=2,  # a TPU pads arrays to tiles of 128
    dropout=0.1,
    attention_dropout=0.1,
    activation_dropout=0.1,
  )
  config.model.gru.hidden = 128
  config.train.mesh.fsdp, config.train.mesh.tensor = mesh[1:]
  config = read_config(systems.apply(config, system))
  layout = Layout("jit", config.train.mesh, devices(topology))
  plan = resolve(config, synthetic.manifest(8000))
  text = synthetic.Text(longest=32, vocabulary=8000)
  (batch,) = text.batches(plan.features, 8 * layout.rows, 1)
  # A step limits its logits by the devices of the machine that traces it.
  logits = plan.recipe.logits * layout.mesh.size // jax.device_count()
  recipe = dataclasses.replace(plan.recipe, logits=logits)
  state = abstract_state(recipe, layout, batch)
  step = functools.partial(train_step, recipe=recipe)
  rows = NamedSharding(layout.mesh, PartitionSpec(("data", "fsdp")))
  placed = {
    name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows)
    for name, x in batch.items()
  }
  return layout.compile_train(step, state, placed)


@pytest.mark.parametrize(
  "system, topology, mesh, dtype, gathers, scatters, peak", CASES
)
def test_a_step_has_few_slow_operations_and_fits_in_memory(
  system, topology, mesh, dtype, gathers, scatters, peak
):
  program = compiled_step(system, topology, mesh, dtype)
  text = program.as_text()
  assert not re.search(r"\bf64\[", text)
  assert not re.search(r" (infeed|outfeed|send|recv)\(|callback", text)
  counts = {
    name: len(re.findall(rf" = [^=]*? {name}\(", text))
    for name in ("gather", "scatter", "sort")
  }
  assert counts == {"gather": gathers, "scatter": scatters, "sort": 0}
  assert program.memory_analysis().peak_memory_in_bytes <= peak * 2**20
  # A collective that overlaps other work appears several times in the text.
  collectives = set(re.findall(COLLECTIVE, text))
  kinds = [kind for kind, _ in collectives]
  if mesh != FSDP:
    assert {*kinds} <= {"all-reduce", "all-to-all"}
    assert ("all-reduce" in kinds) == (mesh == DATA)
    assert kinds.count("all-reduce") <= 5
