"""Fused attention is the einsum's; what needs scores is refused by name."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, plan_of, sentence

from jaxsyn.errors import InputError
from jaxsyn.models import attention
from jaxsyn.models.attention import Attention
from jaxsyn.models.contract import sentence_features
from jaxsyn.syntax import MODIFIERS, AttentionSite

VIEW = sentence_features(
  batch_of([sentence(5, 4, 1), sentence(3, 4, 2)], extra=2), "source"
)
B, S = VIEW.real_BS.shape
PLAIN = ()
ADDED = (
  (
    "parent_scaled",
    dataclasses.replace(MODIFIERS["parent_scaled"](), apply="add"),
  ),
  ("localness", MODIFIERS["localness"]()),
)


def run(fused, dtype, parts, place):
  """Attention's output and its gradient, of parameters that follow the key."""
  site = AttentionSite(place, 0, heads=2, width=16, dtype=dtype, relations=5)
  attention = Attention(site, modifiers=parts, fused=fused)
  rng = np.random.default_rng(0)
  x_BSD, seen_BMD = (
    jnp.asarray(rng.normal(size=(B, length, 16)), dtype) for length in (S, S)
  )
  allowed_B1QM = VIEW.real_BS[:, None, None, :]
  if place == "decoder":
    allowed_B1QM = allowed_B1QM & np.tril(np.ones((S, S), bool))
  if place == "cross":
    x_BSD = x_BSD[:, :3]  # fewer ask than are remembered
  view = VIEW.replace(
    position_Q=jnp.arange(x_BSD.shape[1]), position_M=jnp.arange(S)
  )

  @jax.jit
  def of(key):
    inputs = x_BSD, seen_BMD, allowed_B1QM, view
    params = attention.init(key, *inputs)

    def total(params):
      mixed_BQD = attention.apply(params, *inputs).astype(jnp.float32)
      return jnp.sum(jnp.sin(mixed_BQD)), mixed_BQD

    return jax.grad(total, has_aux=True)(params)

  return jax.tree.leaves(of(jax.random.key(0)))


@pytest.mark.parametrize(
  ("place", "parts", "dtype"),
  [
    ("encoder", ADDED, "float32"),
    ("encoder", ADDED, "bfloat16"),
    ("decoder", PLAIN, "float32"),
    ("cross", PLAIN, "bfloat16"),
  ],
)
def test_output_and_gradients_are_those_of_the_einsum(place, parts, dtype):
  wanted, got = (run(fused, dtype, parts, place) for fused in (False, True))
  # A step of bfloat16 is 2⁻⁸; one rounds weights, the other sums of gradients.
  close = 1e-6 if dtype == "float32" else 2 * 2.0**-8
  # Of the largest of all: the gradient of a key's bias is 0 but for rounding.
  largest = max(float(np.abs(x).max()) for x in wanted)
  for one, other in zip(got, wanted, strict=True):
    np.testing.assert_allclose(one, other, rtol=0, atol=close * largest)


@pytest.mark.parametrize(
  ("system", "options", "message"),
  [
    ("pascal", {}, r"config\.parts\.encoder\.parent_scaled: parent_scaled nee"),
    ("relative", {}, r"config\.parts\.encoder\.relative: relative needs"),
    (
      "transformer",
      {"attention_dropout": 0.1},
      r"config\.model\.transformer\.attention_dropout=0\.1: config\.model\.att",
    ),
    ("gru_global", {}, r"config\.model\.attention='fused' is not for family"),
  ],
)
def test_rejects_unsupported_models(system, options, message):
  with pytest.raises(InputError, match=f"^{message}"):
    plan_of(system, attention="fused", **options)
  plan_of("pascal_additive", attention="fused")


def test_logs_once_why_the_kernel_is_not_used(caplog):
  attention._log_fallback.cache_clear()
  for _ in range(2):  # two traces
    run(True, "bfloat16", PLAIN, "encoder")
  (record,) = caplog.records
  assert record.levelname == "WARNING"
  assert "attention=fused does not use cuDNN's kernel: " in record.message
  assert "not compiled for a GPU" in record.message
