"""Tests the accelerator benchmark on a CPU, and its reports of failures."""

import dataclasses
import json
import sys
import time

import jax
import numpy as np
import pytest

from benchmarks.accelerator import __main__ as command
from benchmarks.accelerator.limits import TRIAL
from benchmarks.accelerator.results import measurements
from benchmarks.train_speed import Trainer
from jaxsyn.errors import InputError
from jaxsyn.training.flops import CHIPS, chip, product_flops


@pytest.fixture(scope="module")
def accelerator_results(tmp_path_factory):
  """Measurements of each kind by name; one measurement fails."""
  out = tmp_path_factory.mktemp("accelerator") / "out.json"
  systems = ("transformer", "no_such_system")
  small_set = {"checked": systems, "paired": systems}
  limits = dataclasses.replace(TRIAL, together=(4,), **small_set)

  def measure(measurement, left):
    assert 0 < left <= command.MAX_SECONDS
    measurement.rows.extend(measurement.measure())

  only = "(?!search pascal|training tiny float32|batch sizes)"
  command.run(out, limits, minutes=60, only=only, measure=measure)
  return {line["name"]: line for line in json.loads(out.read_text())["lines"]}


def test_rows_of_each_kind_of_measurement(accelerator_results):
  """A failed measurement does not stop the others."""
  states = {n: line["state"] for n, line in accelerator_results.items()}
  assert states.pop("pair no_such_system") == "failed"
  assert set(states.values()) == {"done"}
  rows = {name: line["rows"] for name, line in accelerator_results.items()}
  *gradients, unknown = rows["gradients"]
  assert unknown["check"] == "gradient of no_such_system"
  assert unknown["holds"].startswith("InputError")
  assert len(gradients) == 2
  for row in [*rows["steps"], *rows["translations"], *gradients]:
    # bfloat16 is compared with float32, all else with itself: one device.
    assert row["holds"] == "yes", row
    assert "bfloat16" in row["check"] or row["difference"] == 0, row
  (row,) = rows["training tiny bfloat16"]
  assert row["tokens/s"] > 0 and row["TFLOP a step"] > 0
  assert row["MFU %"] == ""  # the peak of a CPU is not known
  assert [r["sentences together"] for r in rows["search"]] == [4]
  for row in rows["search"]:
    assert 1 < row["tokens a sentence"] <= TRIAL.longest
  (row,) = rows["pair transformer"]
  assert row["products over transformer %"] == 0


def test_measurements_after_the_time_limit_are_not_reached(tmp_path):
  out = tmp_path / "out.json"
  command.run(out, TRIAL, minutes=0, measure=lambda *_: None)
  states = [line["state"] for line in json.loads(out.read_text())["lines"]]
  assert states == ["not reached"] * len(measurements(TRIAL))


@pytest.mark.parametrize("only", ["no such name", "("])
def test_rejects_unknown_names(only, tmp_path):
  with pytest.raises(InputError, match=r"no (name begins|regular expression)"):
    command.run(
      tmp_path / "out.json",
      TRIAL,
      minutes=1,
      only=only,
      measure=None,
    )


@pytest.mark.parametrize(
  ("code", "seconds", "message"),
  [
    ("raise ValueError('too little')", 60, "ValueError: too little"),
    ("import os; os.abort()", 60, "SIGABRT"),
    ("import time; time.sleep(60)", 1, "timed out after 1 sec"),
  ],
)
def test_keeps_rows_before_a_failure(code, seconds, message):
  measurement, began = measurements(TRIAL)[0], time.monotonic()
  code = f"print('ROW {{\"a\": 1}}', flush=True)\n{code}"
  with pytest.raises(RuntimeError, match=message):
    command.run_process([sys.executable, "-c", code], measurement, seconds)
  assert measurement.rows == [{"a": 1}]
  assert time.monotonic() - began < 30


def test_reports_the_error_of_a_process(tmp_path, monkeypatch):
  out = tmp_path / "out.json"
  monkeypatch.setattr(sys, "argv", ["accelerator", "--trials"])
  command.run(out, TRIAL, minutes=60, only="device", measure=command.in_process)
  (line,) = json.loads(out.read_text())["lines"]
  assert line["state"] == "failed"
  assert "Unknown command line flag 'trials'" in line["error"]


def test_flops_of_products_in_loops_and_batches():
  x, w = np.ones((3, 4), np.float32), np.ones((4, 4), np.float32)

  def looped(x, w):
    return jax.lax.scan(lambda x, _: (jax.nn.relu(x @ w), None), x, length=5)[0]

  # 2 · 3 · 4 · 4 a product; the gradient of x and of w is one each.
  assert product_flops(looped, x, w) == 5 * 96
  grad = jax.grad(lambda *xw: looped(*xw).sum(), argnums=(0, 1))
  assert product_flops(jax.jit(grad), x, w) == 3 * 5 * 96
  batched = jax.ShapeDtypeStruct((7, 3, 4), np.float32)
  assert product_flops(lambda x, w: x @ w, batched, w) == 7 * 96

  def unused(x):  # the second product
    return jax.jit(lambda x: (x @ x.T, x @ (x.T @ x)))(x)[0]

  assert product_flops(unused, x) == 2 * 3 * 4 * 3


def test_products_of_a_step_by_hand():
  rows, length, width, vocabulary = 2, 8, 16, TRIAL.vocabulary
  plan = TRIAL.plan("transformer", "tiny", "float32")
  batches = TRIAL.text().batches(plan.features, rows, 1)
  trainer = Trainer(plan, batches)
  layer = 4 * width * width + 2 * width * width  # projections, feed-forward
  attention = 2 * length * length * width  # scores and mixed values
  cross = 4 * width * width
  logits = vocabulary * width
  weights = rows * length * (2 * layer + cross + logits)
  # Two FLOPs a product; the gradient takes twice as many as the loss.
  flops = product_flops(trainer.step, trainer.state, batches[0])
  assert flops == 2 * 3 * (weights + 3 * rows * attention)


def test_chips_by_the_longest_beginning():
  assert chip("NVIDIA H100 80GB HBM3") == CHIPS["NVIDIA H100"]
  assert chip("NVIDIA H100 PCIe") == CHIPS["NVIDIA H100 PCIe"]
  assert chip("TPU v5 lite") == CHIPS["TPU v5 lite"]
  assert chip("TPU v5") == CHIPS["TPU v5"]
  assert chip("cpu") is None
