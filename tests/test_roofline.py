"""What the roofline reads off programs, on texts and on a step of the CPU."""

import jax
import pytest

from benchmarks import roofline
from benchmarks.ahead import hlo, machines, programs
from jaxsyn.config import read_config
from jaxsyn.configs import base, systems
from jaxsyn.errors import InputError
from jaxsyn.training.flops import product_flops

# Lines as XLA for TPUs and GPUs writes them, cut short.
PROGRAM = """
%fused (p: f32[8,4]) -> f32[8,4] {
  %gather.9 = bf16[8,4]{1,0:T(8,128)(2,1)} gather(%p), channel_id=3
}
ENTRY %main {
  %one = (f32[2,3]{1,0:T(8,128)S(1)}, /*index=1*/bf16[4]{0}) all-reduce(%a, %b), channel_id=1, replica_groups=[1,8]<=[8]
  %two = bf16[16,4]{1,0} all-gather(%c), channel_id=2, replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}
  %again = bf16[16,4]{1,0} all-gather(%c), channel_id=2, replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}
  %three = f32[4]{0} reduce-scatter(%d), channel_id=4, replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}
  %four = (f32[10]{0}, f32[10]{0}, u32[]{:S(2)}) collective-permute-start(%e), channel_id=5
  %five = f32[10]{0} collective-permute-done(%four)
  %six = pred[] custom-call(%f), custom_call_target="xla_ffi_python_gpu_callback"
  ROOT %seven = s4[6]{0} sort(%g), dimensions={0}
}
"""


def test_collectives_are_counted_once_and_by_their_larger_side():
  result = hlo.collectives(PROGRAM, devices=8)
  # Of n bytes on p devices 2 n (p-1)/p are sent for a sum, n (p-1)/p to gather.
  assert result["all-reduce"] == hlo.Collective(1, 24 + 8, 32 * 2 * 7 / 8)
  assert result["all-gather"] == hlo.Collective(1, 128, 128 * 3 / 4)
  assert result["reduce-scatter"] == hlo.Collective(1, 64, 64 * 3 / 4)
  assert result["collective-permute"] == hlo.Collective(1, 40, 40)
  assert set(result) == {*hlo.COLLECTIVES} - {"all-to-all"}


def test_operations_and_what_waits_for_the_host():
  count = hlo.count(PROGRAM)
  assert (count["gather"], count["sort"], count["all-reduce"]) == (1, 1, 1)
  assert count["collective-permute"] == 1
  (line,) = hlo.callbacks(PROGRAM)
  assert line.startswith("%six")


def test_the_bound_is_that_of_the_slowest():
  target = machines.TARGETS["v5e"]
  cost = hlo.Cost(
    flops=197e9,  # 1 ms
    bytes=819e7,  # 10 ms
    arguments=0,
    temporaries=0,
    peak=0,
    collectives={"all-reduce": hlo.Collective(1, 4e8, 4e8)},  # 2 ms
  )
  machine = machines.Machine("v5e:2x4", [], target)
  seconds = cost.seconds(machine)
  assert seconds == pytest.approx(
    {"compute": 1e-3, "memory": 1e-2, "network": 2e-3}
  )
  assert cost.seconds(machine, 394e9)["compute"] == pytest.approx(2e-3)


@pytest.mark.parametrize(
  "topology, told",
  [
    ("v5:2x4", "no chip 'v5'. Did you mean 'v5e'"),
    ("v5e", "says no number of chips"),
    ("v5e:2x", "says no number of chips"),
  ],
)
def test_rejects_unknown_machines(topology, told):
  with pytest.raises(InputError, match=f"--topology={topology}") as error:
    machines.machine(topology)
  assert told in str(error.value)


def config_of(system):
  config = base.get_config()
  config.model.update(width=16)
  config.model.transformer.update(
    encoder_layers=1, decoder_layers=1, feed_forward=16, heads=2
  )
  config.decode.update(beam=2, sentences=2)
  return read_config(systems.apply(config, system))


def test_a_step_and_a_search_of_the_processor_here():
  machine = machines.machine("cpu")
  sizes = {"rows": 2, "length": 6, "vocabulary": 30}
  figures = roofline.run(config_of("pascal"), machine, search=True, **sizes)
  assert figures["rows"] == (2, "sentences a device")
  assert figures["source"] == figures["target"] == (6, "subwords")
  for name in ("bytes", "arguments", "read.flops", "search.bytes"):
    assert figures[name][0] > 0
  assert "mfu_bound" not in figures  # nobody says what this processor can do


def test_prepared_data_gives_the_batch_and_the_vocabulary(tiny):
  machine, config = machines.machine("cpu"), read_config(tiny("dbsa"))
  made = programs.task(config, machine)
  rows, source = made.batch["source_id_BS"].shape
  assert rows * max(source, made.batch["target_id_BT"].shape[1]) <= 1024
  assert made.batch["target_head_BW"].shape[0] == rows
  assert made.plan.spec.source_vocabulary == 300
  other = programs.task(config, machine, rows=3, length=7, vocabulary=50)
  assert other.batch["source_id_BS"].shape == (3, 7)
  assert other.plan.spec.source_vocabulary == 50


def test_products_of_a_step_by_hand():
  machine = machines.machine("cpu")
  made = programs.task(
    config_of("transformer"), machine, rows=2, length=6, vocabulary=30
  )
  rows = 2 * 6
  layer = 4 * 16 * 16 + 2 * 16 * 16  # projections and feed-forward
  pairs = 2 * 2 * 6 * 6 * 16  # scores and their mix
  weights = 2 * layer + 4 * 16 * 16 + 30 * 16  # cross-attention, logits
  # Two FLOPs a product; forward, and twice that back.
  flops = product_flops(made.step, made.state, made.batch)
  assert flops == 2 * 3 * (rows * weights + 3 * pairs)


def test_products_of_a_loop_count_as_often_as_it_runs():
  def function(x):
    five = jax.lax.scan(lambda y, _: (y @ x, None), x, length=5)[0]
    return jax.lax.cond(x[0, 0] > 0, lambda: five @ x, lambda: five)

  shape = jax.ShapeDtypeStruct((3, 3), "float32")
  assert product_flops(function, shape) == 6 * 2 * 3**3
