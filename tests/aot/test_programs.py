"""Programs that fit accelerators, by compiling them for some that are not there.

  python -m pytest -m aot

needs the wheels of the extra "ahead" and minutes. What a program may hold stands
in PROGRAMS: who changes a part or the step sees there what became of it.
"""

import dataclasses
import functools
import re

import pytest

from benchmarks.ahead import hlo, machines, programs
from jaxsyn.config import read_config
from jaxsyn.configs import base, systems
from jaxsyn.syntax import MODIFIERS

pytestmark = pytest.mark.aot

MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Case:
  """A step on a machine, and what it may hold.

  Attributes:
    system: that is trained.
    topology: of `machines`.
    mesh: data, fsdp, tensor.
    dtype: of the computation.
    gathers, scatters: in it.
    peak: MiB at most, on each device.
    sorts: in it.
  """

  system: str
  topology: str
  mesh: tuple[int, int, int]
  dtype: str
  gathers: int
  scatters: int
  peak: float
  sorts: int = 0

  def __str__(self):
    mesh = "x".join(map(str, self.mesh))
    return f"{self.system}-{self.topology}-{mesh}-{self.dtype}"


ONE, EIGHT, ALL = (1, 1, 1), (1, 8, 1), (-1, 1, 1)
F, B = "float32", "bfloat16"
# Compiled with few optimisations, so that each is seconds; the peaks are rounded
# up from those of jax 0.10.2 with libtpu 0.0.42.1.
PROGRAMS = [
  Case("transformer", "v5e:2x4", ALL, B, 3, 1, 50),
  Case("transformer", "v5e:2x4", EIGHT, B, 3, 1, 24),
  Case("transformer", "v5e:4x4", ALL, F, 3, 2, 48),
  Case("transformer", "h100:4", ALL, B, 3, 1, 36),
  Case("gru_global", "v5e:2x4", ALL, B, 3, 1, 56),
  Case("pascal", "v5e:2x4", ALL, F, 3, 1, 48),
  Case("dbsa", "v5e:2x4", ALL, B, 3, 1, 52),
  Case("sisa", "v5e:1x1", ONE, F, 3, 1, 46),
  Case("relative+localness_query", "v5e:1x1", ONE, B, 3, 1, 50),
  Case("dependency_relative", "h100:1", ONE, B, 3, 1, 36),
  # Each of six factors has a table.
  Case("factors", "v5e:1x1", ONE, B, 9, 7, 46),
  Case("deps_san+given_weighting", "h100:1", ONE, F, 3, 1, 46),
  Case("label_embedding+context_deep_global", "h100:1", ONE, B, 4, 2, 36),
  Case("linear_bias+tree_bias_steps_edges", "v5e:1x1", ONE, B, 3, 1, 46),
  Case("neighbour_heads_gated+dasa", "h100:1", ONE, F, 3, 1, 44),
  Case("graph_block+tree_rotary", "v5e:1x1", ONE, B, 3, 1, 46),
  # Its units of words are found by sorting.
  Case("gru_sdr", "h100:1", ONE, F, 9, 4, 66, sorts=1),
]


@functools.cache
def machine(topology):
  kind = topology.partition(":")[0]
  if not machines.installed(kind):
    pytest.skip(f"{topology} needs compilers: pip install -e '.[ahead]'")
  return machines.machine(topology)


def task(system, topology, mesh, dtype):
  config = base.get_config()
  config.model.update(width=128, dtype=dtype)
  config.model.transformer.update(
    encoder_layers=1,
    decoder_layers=1,
    feed_forward=256,
    # A TPU pads arrays to tiles of 128: of narrower heads a share of a weight
    # takes as much as many shares.
    heads=2,
    dropout=0.1,
    attention_dropout=0.1,
    activation_dropout=0.1,
  )
  config.model.gru.hidden = 128
  config.train.mesh.update(dict(zip(("data", "fsdp", "tensor"), mesh)))
  config.decode.beam = 2
  config.decode.sentences = 8
  return programs.task(
    read_config(systems.apply(config, system)),
    machine(topology),
    rows=8,
    length=32,
    vocabulary=8000,
  )


@functools.cache
def compiled(system, topology, mesh, dtype):
  """The step's text, and its cost."""
  step = programs.compile_step(task(system, topology, mesh, dtype))
  return step.as_text(), hlo.cost(step, machine(topology))


def test_every_part_is_compiled():
  parts = set()
  for case in PROGRAMS:
    config = systems.apply(base.get_config(), case.system)
    parts |= {name for place in config.parts.values() for name in place}
  assert parts == set(MODIFIERS)


@pytest.mark.parametrize("case", PROGRAMS, ids=str)
def test_a_step_holds_what_an_accelerator_is_good_at(case):
  text, cost = compiled(case.system, case.topology, case.mesh, case.dtype)
  count = hlo.count(text)
  assert not re.search(r"\bf64\[", text)
  assert hlo.callbacks(text) == []
  assert count["sort"] == case.sorts
  assert (count["gather"], count["scatter"]) == (case.gathers, case.scatters)
  assert cost.peak <= case.peak * MIB
  if case.mesh != EIGHT:  # nothing of the state is cut
    # XLA may make one scatter of the two into a table that both sides share,
    # for which rows of the batch change their devices.
    assert cost.collectives.keys() <= {"all-reduce", "all-to-all"}
    reduced = cost.collectives.get("all-reduce")
    assert (reduced is not None) == (case.mesh == ALL)
    assert reduced is None or reduced.number <= 5


def test_a_state_that_is_cut_is_gathered_and_takes_a_share():
  whole = compiled("transformer", "v5e:2x4", ALL, B)[1]
  cut = compiled("transformer", "v5e:2x4", EIGHT, B)[1]
  assert cut.collectives.keys() & {"all-gather", "reduce-scatter"}
  assert cut.arguments <= whole.arguments / 6


@pytest.mark.parametrize(
  "system, topology, dtype",
  [("dependency_relative_both", "v5e:1x1", B), ("gru_flexible", "h100:1", F)],
)
def test_a_search_needs_no_host(system, topology, dtype):
  made = task(system, topology, ONE, dtype)
  for program in programs.compile_search(made, machine(topology)):
    text = program.as_text()
    assert not re.search(r"\bf64\[", text)
    assert hlo.callbacks(text) == []
